//! Tests of combinations of results, and of memory limits, on the real runtimes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Batch, Node, Stage, platform::Platform as _, reduced_name, tests::results};
use crate::{
    host::Host,
    order::Order,
    reduction::Reduce,
    space::Space,
    tally::Tally,
    testing::{Fixture, fixture, package},
    wire::ErrorKind,
};

const MODULE: &str = r#"
import time

def square(n):
    if n % 100 == 7:
        raise ValueError(f"no {n}")
    return [n * n / 7]

def merge(values):
    return [sum(value[0] for value in values)]

def count(values):
    return sum(value if isinstance(value, int) else len(value) for value in values)

def refuses(values):
    if len(values) < 900:
        raise ValueError("too few")
    return [0]

def fills(mib):
    memory = b"x" * (mib << 20)
    while mib >= 400:
        time.sleep(1)
    return len(memory)
"#;

/// Returns the order of a job whose results a routine combines.
fn order(entry: &str, more: &str, calls: i64, reducer: Option<&str>) -> Order {
    let Fixture { folder, store } = fixture();
    let deploy = |entry: &str, more: &str| {
        let package = package(folder, MODULE, entry, more);
        store.deploy(&package).unwrap();
        package.digest
    };
    let routine = reducer.map(|entry| deploy(entry, "reducer = true"));
    let key = format!("{:032x}", rand::random::<u128>());
    let reduce = Reduce { routine, ..Reduce::default() };
    Order::new(deploy(entry, more), key, Space::Range { from: 0, to: calls }, reduce)
}

/// Runs the job on nodes with workers, and returns the combined value.
fn combined(order: &Order, nodes: usize, ended: u64, failed: u64) -> Value {
    let report = Batch::job(order.clone(), "test".to_owned()).nodes(nodes).workers(2).run().unwrap();
    assert!(report.output.is_combined);
    let all_failed = report.output.failed.values().sum::<u64>();
    assert_eq!((report.output.ended, all_failed), (ended, failed), "combinations are no calls");
    serde_json::from_slice(&fixture().store.objects.get(&reduced_name(&order.key)).unwrap()).unwrap()
}

#[test]
fn routine_combines_each_successful_result_once_to_the_same_bits() {
    let expected = |reduce: &dyn Fn(&[f64]) -> f64| {
        // As the rounds combine them: parts of 1,000 results, without those of failed calls.
        let all: Vec<Option<f64>> =
            (0..2_500).map(|n| (n % 100 != 7).then(|| f64::from(n * n) / 7.0)).collect();
        let parts = all.chunks(1_000).map(|part| reduce(&part.iter().flatten().copied().collect::<Vec<_>>()));
        reduce(&parts.collect::<Vec<_>>())
    };
    let sum = expected(&|values| values.iter().sum());
    for nodes in [1, 3] {
        let value = combined(&order("square", "", 2_500, Some("merge")), nodes, 2_500, 25);
        assert_eq!(value[0].as_f64().map(f64::to_bits), Some(sum.to_bits()), "{value}, not {sum}");
    }
    assert_eq!(combined(&order("square", "", 2_500, Some("count")), 2, 2_500, 25), json!(2_475));
}

#[test]
fn tasks_of_round_share_results_that_they_combine() {
    let order = order("square", "", 1_500, Some("merge"));
    combined(&order, 1, 1_500, 15);
    let host = Host::current().unwrap();
    let partials = |round, inputs| host.partials(&order.key, round, inputs).unwrap();
    let (first, second) = (partials(1, 1_500), partials(2, 2));
    assert!(Arc::ptr_eq(&first, &partials(1, 1_500)) && !Arc::ptr_eq(&first, &second));
    let node = |number, inputs| Node::new(host, &order, Stage::Round { number, inputs }).unwrap();
    assert!(std::ptr::eq(node(1, 1_500).partials().unwrap(), &raw const *first));
    let last = Arc::downgrade(&first);
    drop(first);
    assert!(last.upgrade().is_none(), "they are kept without a task");
}

#[test]
fn combination_of_no_results_is_the_neutral_element() {
    assert_eq!(combined(&order("square", "", 0, Some("merge")), 1, 0, 0), json!([0]));
    assert_eq!(combined(&order("square", "", 1, Some("count")), 1, 1, 0), json!(1));
}

#[test]
fn failed_combination_leaves_results_and_its_reason() {
    for (reducer, part) in [("refuses", "too few"), ("absent", "cannot be loaded")] {
        let order = order("square", "", 1_500, Some(reducer));
        let Tally { ended, is_combined, uncombined, .. } =
            Batch::job(order.clone(), "test".to_owned()).workers(2).run().unwrap().output;
        assert!(!is_combined && ended == 1_500);
        let (_, reason) = uncombined.unwrap();
        assert!(reason.contains(part), "{reason}");
        assert_eq!(results(&order, 1_500).len(), 1_500);
    }
}

#[test]
fn only_call_that_exceeds_memory_fails_and_names_limit_and_remedy() {
    let Fixture { folder, store } = fixture();
    let package = package(folder, MODULE, "fills", "memory = 200");
    store.deploy(&package).unwrap();
    let space = Space::List(["1", "400", "2", "3"].map(str::to_owned).to_vec());
    let order =
        Order::new(package.digest, format!("{:032x}", rand::random::<u128>()), space, Reduce::default());
    let report = Batch::job(order.clone(), "test".to_owned()).workers(2).run().unwrap();
    assert_eq!(report.output.failed.into_iter().collect::<Vec<_>>(), [(ErrorKind::Memory, 1)]);
    let lines = results(&order, 4).lines(0, 4, usize::MAX).unwrap();
    let error = &serde_json::from_str::<Value>(&lines[1].json).unwrap()["error"];
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["kind"], "memory");
    assert!(message.contains("limit of 200 MiB") && message.contains("larger `memory`"), "{message}");
}
