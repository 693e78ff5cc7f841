//! Explanations and summaries of the calls of a graph.

use dataflow_view::{Explanation, Place, State};

use super::{
    Graph, Member, Outcome,
    graph_tests::{graph_of, new_call, version},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId},
    options::Options,
};

const OTHER: Member = Member(1);

fn graph() -> Graph {
    graph_of([1, 1])
}

fn call(graph: &mut Graph, id: CallId, reads: &[CallId]) {
    let arguments = reads.iter().map(|call| Argument::Read(version(*call, 0))).collect();
    graph.call(id, new_call(arguments, 1, Options::DEFAULT));
}

fn explain(graph: &Graph, id: CallId) -> Explanation {
    graph.explain(id, |member| format!("member {}", member.0))
}

fn complete(graph: &mut Graph, id: CallId, ns: u64) {
    let member = if explain(graph, id).place == (Place::Runs { node: "member 0".to_owned() }) {
        Member::HERE
    } else {
        OTHER
    };
    graph.ended(id, member, Outcome::Written { bytes: vec![100], ns: Some(ns) });
}

#[test]
fn explain_waiting_call_names_missing_inputs_and_writers() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    call(&mut graph, 1, &[0, 0]);
    drop(graph.actions());
    let Place::Waits { missing, more } = explain(&graph, 1).place else { panic!("it waits") };
    assert_eq!((missing.len(), more), (1, 0), "an input that is read twice is listed once");
    assert_eq!((missing[0].call, missing[0].state), (0, State::Running));
    assert_eq!(missing[0].task.as_deref(), Some("task"));
    complete(&mut graph, 0, 5);
    drop(graph.actions());
    assert!(matches!(explain(&graph, 1).place, Place::Runs { .. }));
    assert_eq!(explain(&graph, 0).place, Place::Ended);
    assert_eq!(explain(&graph, 2).place, Place::NotMade { next: 2 });
}

#[test]
fn explain_call_of_greatest_number_is_answered() {
    assert_eq!(explain(&graph(), CallId::MAX).place, Place::Over);
}

#[test]
fn explain_ready_call_gives_queue_position_and_room() {
    let mut graph = graph();
    for id in 0..20 {
        call(&mut graph, id, &[]);
    }
    drop(graph.actions());
    let place = |id| explain(&graph, id).place;
    let ready: Vec<_> = (0..20).filter(|id| matches!(place(*id), Place::Ready { .. })).collect();
    let befores = ready.iter().map(|id| match place(*id) {
        Place::Ready { before, nodes: 2, with_room: 0, .. } => before,
        other => panic!("{other:?}"),
    });
    let mut befores: Vec<_> = befores.collect();
    befores.sort_unstable();
    assert!(!ready.is_empty() && befores.into_iter().eq(0..ready.len() as u64));
}

#[test]
fn explain_lost_input_is_marked_as_recomputed() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    call(&mut graph, 1, &[]);
    drop(graph.actions());
    let on_other =
        (0..2).find(|id| explain(&graph, *id).place == (Place::Runs { node: "member 1".to_owned() }));
    let lost = on_other.expect("both have room");
    complete(&mut graph, 0, 1);
    complete(&mut graph, 1, 1);
    graph.lost(OTHER);
    call(&mut graph, 2, &[lost]);
    drop(graph.actions());
    let Place::Waits { missing, .. } = explain(&graph, 2).place else { panic!("it waits") };
    assert!(missing[0].is_made_again);
    assert_eq!(graph.summary().total().repeated, 1);
}

#[test]
fn explain_failed_call_gives_reason_to_dependents_too() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    call(&mut graph, 1, &[0]);
    drop(graph.actions());
    let failed = Outcome::Failed(Failure::new("task", 0, "no space is left"));
    graph.ended(0, Member::HERE, failed);
    assert_eq!(explain(&graph, 0).place, Place::Failed { reason: "no space is left".to_owned() });
    let Place::Failed { reason } = explain(&graph, 1).place else { panic!("its input has failed") };
    assert!(reason.contains("call 0") && reason.contains("no space is left"), "{reason}");
    let summary = graph.summary();
    let total = summary.total();
    assert_eq!((total.failed, total.cancelled, total.unfinished(), total.ended), (1, 1, 0, 0));
    let failed: Vec<_> = summary.failures.iter().map(|failed| (&*failed.call, &*failed.reason)).collect();
    assert_eq!(failed, [("0", "no space is left")], "a cancelled call is no failed one");
}

#[test]
fn summary_counts_calls_by_state() {
    let mut graph = graph();
    graph.observed().observe(true, false);
    for id in 0..10 {
        call(&mut graph, id, &[]);
    }
    call(&mut graph, 10, &[0, 9]);
    drop(graph.actions());
    complete(&mut graph, 0, 30);
    complete(&mut graph, 1, 10);
    drop(graph.actions());
    let summary = graph.summary();
    let total = summary.total();
    assert_eq!((summary.nodes, summary.workers, total.calls()), (2, 2, 11));
    assert_eq!((total.waiting, total.ended, total.ready + total.running), (1, 2, 8));
    assert_eq!(total.running, 2, "the members have a worker each, and calls assigned ahead have not started");
    assert_eq!((total.runs, total.total_ns, total.max_ns, total.mean_ns()), (2, 40, 30, 20));
    let calls = graph.recorded().expect("they are recorded");
    let of = |state| calls.calls.iter().filter(|call| call.state == state).count();
    assert_eq!((calls.calls.len(), of(State::Waiting), of(State::Ended)), (11, 1, 2));
    assert_eq!((of(State::Running), of(State::Ready)), (2, 6));
    assert_eq!(calls.reads, [(0, 10), (9, 10)]);
    assert_eq!(calls.calls[10].level, 1);
}

#[test]
fn observation_off_records_nothing() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    assert_eq!(graph.recorded(), None);
}
