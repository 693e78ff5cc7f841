use std::sync::Arc;

use super::*;
use crate::{
    CreateMode, MemoryStore, WatchEvent,
    accounting::{self, Claim, Source, Transaction},
    election::Candidate,
    job::{self, NewAttempt},
    mail::{self, Posted},
    testing::{ROOT, Stage},
};

const LARGE: usize = 1 << 20;

/// Returns the fence of a leader in the submitter's session.
async fn leader(stage: &Stage) -> Fence {
    let store = Arc::clone(&stage.store) as Arc<dyn Store>;
    let mut candidate = Candidate::enter(store, &stage.cluster, &stage.job, "a").await.unwrap();
    candidate.elected().await.unwrap()
}

/// Returns the number of znodes below a folder and their size in bytes.
async fn size(stage: &Stage, folder: &str) -> (usize, usize) {
    let paths = stage.tree.paths_below(folder);
    let mut bytes = 0;
    for path in &paths {
        bytes += stage.store.get(path).await.unwrap().0.len();
    }
    (paths.len(), bytes)
}

fn transaction(node: &str, number: u64) -> Transaction {
    let settled = number.checked_sub(1).map(|before| format!("{node}-{before}"));
    Transaction { node: node.to_owned(), txn: format!("{node}-{number}"), settled, ..Transaction::default() }
}

/// Claims tasks, which the next transaction of the node takes.
async fn claim(store: &MemoryStore, stage: &Stage, node: &str, number: u64, source: Source) -> Vec<u8> {
    let Transaction { node, txn, settled, .. } = transaction(node, number);
    let claim = Claim { node, transit: format!("{txn}-c"), txn, settled, source, enrol: None };
    accounting::claim(store, &stage.cluster, &stage.attempt(1), &claim, &Some).await.unwrap().unwrap()
}

fn parked(task: &str) -> Source {
    Source::Parked(task.to_owned())
}

#[tokio::test]
async fn data_of_a_hundred_departed_nodes_is_bounded() {
    let stage = Stage::new().await;
    let (stays, paths) = (stage.member("stays").await, stage.attempt(1));
    let fence = leader(&stage).await;
    claim(&stays, &stage, "stays", 0, parked(ROOT)).await;
    let mut number = 1;
    let mut after_ten = (0, 0);
    for round in 0..100 {
        let node = format!("n{round}");
        let store = stage.member(&node).await;
        for (letter, text) in [(0, vec![1; LARGE]), (1, b"small".to_vec())] {
            let posted = mail::post(&*stays, &stage.cluster, &paths, "stays", &node, letter, &text).await;
            assert_eq!(posted, Ok(Posted::Posted));
        }
        let leave = Transaction {
            park: vec![("task-7".to_owned(), vec![7; LARGE]), ("task-8".to_owned(), vec![8])],
            leave: true,
            output: vec![9; 10],
            ..transaction(&node, 0)
        };
        accounting::commit(&*store, &stage.cluster, &paths, &leave).await.unwrap();
        stage.tree.expire(store.id());
        for task in ["task-7", "task-8"] {
            let claimed = claim(&stays, &stage, "stays", number, parked(task)).await;
            assert_eq!(claimed, if task == "task-7" { vec![7; LARGE] } else { vec![8] });
            number += 1;
        }
        let take = [number - 2, number - 1].map(|claimed| format!("stays-{claimed}-c")).into();
        let flush = Transaction { take, ..transaction("stays", number) };
        accounting::commit(&*stays, &stage.cluster, &paths, &flush).await.unwrap();
        number += 1;
        left_behind(&*stage.store, &fence, &stage.cluster, &paths).await.unwrap();
        if round == 10 {
            after_ten = size(&stage, &paths.base()).await;
        }
    }
    let (znodes, bytes) = size(&stage, &paths.base()).await;
    // The node's output and the record of its leave stay.
    assert_eq!(znodes, after_ten.0 + 2 * 89);
    assert_eq!(bytes, after_ten.1 + 11 * 89);
    assert_eq!(stage.names(&paths.mail()), Vec::<String>::new());
    assert_eq!(stage.names(&paths.large()), Vec::<String>::new());
    assert_eq!(stage.names(&paths.txns()), [format!("stays-{}", number - 1)]);
}

#[tokio::test]
async fn data_that_may_be_referenced_stays() {
    let stage = Stage::new().await;
    let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
    let fence = leader(&stage).await;
    let large = |byte| vec![byte; LARGE];
    let park = |task: &str| (task.to_owned(), large(1));
    let leave = Transaction {
        park: vec![park("task-1"), park("task-2")],
        output: large(2),
        leave: true,
        ..transaction("a", 0)
    };
    accounting::commit(&*a, &stage.cluster, &paths, &leave).await.unwrap();
    // One task is parked, one is claimed by a transaction whose answer may be requested again, and the third
    // will be referenced next.
    assert_eq!(claim(&b, &stage, "b", 0, parked("task-1")).await, large(1));
    let about_to_park = paths.large_of("b-1-task-3");
    stage.store.create(&about_to_park, b"", CreateMode::Persistent).await.unwrap();
    left_behind(&*stage.store, &fence, &stage.cluster, &paths).await.unwrap();
    assert_eq!(claim(&b, &stage, "b", 0, parked("task-1")).await, large(1), "the same claim again");
    assert_eq!(claim(&b, &stage, "b", 1, parked("task-2")).await, large(1));
    assert!(stage.store.exists(&about_to_park).await.unwrap().is_some());
    assert_eq!(job::outputs(&*stage.store, &paths).await.unwrap()[0], ("a".to_owned(), large(2)));
    // The leave may be requested again as well.
    accounting::commit(&*a, &stage.cluster, &paths, &leave).await.unwrap();
}

#[tokio::test]
async fn lost_node_chunks_with_references_stay() {
    let stage = Stage::new().await;
    let (x, y, b) = (stage.member("x").await, stage.member("y").await, stage.member("b").await);
    let (paths, fence) = (stage.attempt(1), leader(&stage).await);
    let large = |byte| vec![byte; LARGE];
    let flush = Transaction {
        output: large(1),
        held: large(2),
        give: vec![("x-g0~y".to_owned(), large(3)), ("x-g1~b".to_owned(), large(4))],
        park: vec![("task-1".to_owned(), large(5))],
        ..transaction("x", 0)
    };
    accounting::commit(&*x, &stage.cluster, &paths, &flush).await.unwrap();
    // Data that was being written when its node was lost, including a node that never enrolled.
    let z = stage.stranger("z").await;
    for unnamed in ["x-1", "x-1-held", "z-0-claim", "b-1-held"] {
        let folder = paths.large_of(unnamed);
        stage.store.create(&folder, b"", CreateMode::Persistent).await.unwrap();
        stage.store.create(&format!("{folder}/000000"), b"1", CreateMode::Persistent).await.unwrap();
    }
    let tidied = async || {
        left_behind(&*stage.store, &fence, &stage.cluster, &paths).await.unwrap();
        stage.store.children(&paths.large()).await.unwrap()
    };
    let of_x = ["x-0", "x-0-give0", "x-0-give1", "x-0-held", "x-0-task-1"];
    assert_eq!(tidied().await, [&["b-1-held"], &of_x[..], &["x-1", "x-1-held", "z-0-claim"]].concat());
    stage.tree.expire(z.id());
    assert_eq!(tidied().await, [&["b-1-held"], &of_x[..], &["x-1", "x-1-held"]].concat());
    for lost in [&x, &y] {
        stage.tree.expire(lost.id());
        assert_eq!(tidied().await, [&["b-1-held"], &of_x[..]].concat());
    }
    let to_y = Source::Transit { name: "x-g0~y".to_owned(), gone: Some("y".to_owned()) };
    let sources = [Source::Held("x".to_owned()), to_y, parked("task-1")];
    for (number, (source, byte)) in (1..).zip(sources.into_iter().zip([2, 3, 5])) {
        assert!(claim(&b, &stage, "b", number, source).await == large(byte));
        tidied().await;
    }
    let of_b = ["b-1-claim", "b-1-held", "b-2-claim", "b-3-claim"];
    assert_eq!(tidied().await, [&of_b[..], &["x-0", "x-0-give1"]].concat());
    let outputs = job::outputs(&*stage.store, &paths).await.unwrap();
    assert!(outputs.contains(&("x".to_owned(), large(1))));
    let taken = ["b-1-c", "b-2-c", "b-3-c", "x-g1~b"].map(str::to_owned).into();
    let take = Transaction { take: taken, ..transaction("b", 4) };
    accounting::commit(&*b, &stage.cluster, &paths, &take).await.unwrap();
    assert_eq!(tidied().await, ["b-1-held", "x-0"]);
}

#[tokio::test]
async fn earlier_attempt_is_removed_and_current_stays() {
    let stage = Stage::new().await;
    let (store, fence) = (Arc::clone(&stage.store), leader(&stage).await);
    let lost = ["b".to_owned()];
    let begun = job::new_attempt(&*store, &fence, &stage.cluster, &stage.job, 1, &lost, 0).await.unwrap();
    assert_eq!(begun, NewAttempt::Started(2));
    let job = stage.cluster.job(&stage.job);
    for number in 0..1_000 {
        store
            .create(&stage.attempt(1).task(&format!("t-{number}")), b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let mut events = store.watch_tree(&stage.attempt(1).list()).await.unwrap();
    earlier_attempts(&*store, &fence, &job, 2).await.unwrap();
    assert_eq!(store.children(&job.attempts()).await.unwrap(), ["2"]);
    assert_eq!(stage.names(&stage.attempt(2).parked()), [ROOT]);
    // No observer ever sees the list without a task.
    let (list, mut last) = (stage.attempt(1).list(), String::new());
    while last != list {
        let WatchEvent::Deleted(path) = events.next().await else { continue };
        last = path;
    }
    let deposed = Arc::clone(&store);
    drop(events);
    deposed.close().await.unwrap();
    let refused = earlier_attempts(&*stage.tree.connect(), &fence, &job, 3).await;
    assert!(matches!(refused, Err(Error::Multi { index: 0, .. })), "{refused:?}");
}

#[test]
fn chunk_folder_names_encode_their_owner() {
    assert_eq!(Chunks::of("n1-7"), Some(Chunks::Written { by: "n1" }));
    assert_eq!(Chunks::of("n1-7-n2-9"), Some(Chunks::Written { by: "n1" }));
    assert_eq!(Chunks::of("mail-n1-n2-9"), Some(Chunks::Letter { from: "n1", to: "n2" }));
    assert_eq!(Chunks::of("mail"), None);
}

#[test]
fn folder_is_removed_together_with_its_last_children() {
    for count in 0..3 * REMOVED_MAX + 2 {
        let children = vec!["child"; count];
        let requests = requests("folder", &children);
        let (last, before) = requests.split_last().unwrap();
        assert_eq!(requests.concat().len(), count + 1);
        assert!(requests.iter().all(|some| some.len() <= REMOVED_MAX), "{count}");
        assert!(before.iter().all(|some| !some.contains(&"folder")), "{count}");
        assert!(last.ends_with(&["folder"]) && (count == 0 || last.len() > 1), "{count}");
    }
}
