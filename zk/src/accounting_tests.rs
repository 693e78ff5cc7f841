use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed};

use proptest::prelude::*;

use super::*;
use crate::{
    Fate, blob,
    job::{self, remove},
    testing::{FATES, LoseOne, ROOT, Stage},
    tree::REQUEST_BYTES_MAX,
};

pub(super) fn transaction(node: &str, number: u64, toggles: &[&str]) -> Transaction {
    Transaction {
        node: node.to_owned(),
        txn: format!("{node}-{number}"),
        settled: number.checked_sub(1).map(|before| format!("{node}-{before}")),
        toggles: toggles.iter().map(|&id| id.to_owned()).collect(),
        output: format!("output {number}").into_bytes(),
        ..Transaction::default()
    }
}

fn root_claim(node: &str) -> Claim {
    Claim {
        node: node.to_owned(),
        txn: format!("{node}-c"),
        settled: None,
        source: Source::Parked(ROOT.to_owned()),
        transit: format!("{node}-c"),
        enrol: None,
    }
}

/// Returns the tasks in transit in the first attempt, with the names of the znodes.
pub(super) async fn in_transit(stage: &Stage) -> Vec<(String, Vec<u8>)> {
    let mut transits = Vec::new();
    for name in stage.names(&stage.attempt(1).transits()) {
        let path = stage.attempt(1).transit(&name);
        let (content, _) = stage.store.get(&path).await.unwrap();
        transits.push((name, blob::get(&*stage.store, &path, &content).await.unwrap()));
    }
    transits
}

/// Repeats a recipe until its outcome is known.
macro_rules! until_known {
    ($call:expr) => {
        loop {
            match $call.await {
                Err(CommitError::Store(error)) if error.is_transient() => {}
                outcome => break outcome,
            }
        }
    };
}

#[tokio::test]
async fn commit_toggles_tasks_and_keeps_at_most_two_transaction_ids() {
    let stage = Stage::new().await;
    let node = stage.member("a").await;
    let paths = stage.attempt(1);
    for (number, toggles) in [&["x", "y"][..], &["y", "z"], &[ROOT]].into_iter().enumerate() {
        commit(&*node, &stage.cluster, &paths, &transaction("a", number as u64, toggles)).await.unwrap();
    }
    assert_eq!(stage.names(&paths.list()), ["x", "z"]);
    assert_eq!(list(&*node, &paths).await.unwrap().len(), 2);
    assert_eq!(stage.names(&paths.txns()), ["a-2"]);
    assert_eq!(job::outputs(&*node, &paths).await.unwrap(), [("a".to_owned(), b"output 2".to_vec())]);
}

#[tokio::test]
async fn scoped_task_is_separate_entry_until_both_toggles() {
    let stage = Stage::new().await;
    let (a, b) = (stage.member("a").await, stage.member("b").await);
    let paths = stage.attempt(1);
    commit(&*a, &stage.cluster, &paths, &transaction("a", 0, &["x~s", "x~t", "w"])).await.unwrap();
    commit(&*b, &stage.cluster, &paths, &transaction("b", 0, &["x~s", "y~s", "x"])).await.unwrap();
    assert_eq!(stage.names(&paths.list()), [ROOT, "w", "x", "x~t", "y~s"]);
    commit(&*a, &stage.cluster, &paths, &transaction("a", 1, &["y~s"])).await.unwrap();
    assert_eq!(stage.names(&paths.list()), [ROOT, "w", "x", "x~t"], "nothing of the scope s is left");
}

#[tokio::test]
async fn claim_of_task_removed_with_its_attempt_reports_attempt_over() {
    for over in [true, false] {
        let stage = Stage::new().await;
        let (node, paths) = (stage.member("a").await, stage.attempt(1));
        let parked = Transaction {
            park: vec![("n0000000000000001-1".to_owned(), vec![7; REQUEST_BYTES_MAX])],
            ..transaction("a", 0, &[ROOT])
        };
        commit(&*node, &stage.cluster, &paths, &parked).await.unwrap();
        if over {
            let (path, _) = paths.record_and_number().unwrap();
            let content = node.get(path).await.unwrap().0;
            let mut record: JobRecord = record::read(path, &content).unwrap();
            record.attempt = 2;
            node.set(path, &record::write(&record), None).await.unwrap();
        }
        remove(&*node, paths.large()).await.unwrap();
        let source = Source::Parked("n0000000000000001-1".to_owned());
        let of_parked = Claim { source, ..root_claim("a") };
        match claim(&*node, &stage.cluster, &paths, &of_parked, &Some).await {
            Err(CommitError::AttemptOver) => assert!(over),
            Err(CommitError::Store(Error::NoNode { .. })) => {
                assert!(!over, "nothing is skipped silently");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn commit_with_any_answer_lost_counts_once() {
    for fate in FATES {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let (node, paths) = (stage.member("a").await, stage.attempt(1));
            commit(&*node, &stage.cluster, &paths, &transaction("a", 0, &["x", "y"])).await.unwrap();
            stage.tree.set_faults(LoseOne { session: node.id(), countdown, fate });
            let second =
                Transaction { park: vec![("p".into(), b"!".to_vec())], ..transaction("a", 1, &["y", "z"]) };
            let first_try = commit(&*node, &stage.cluster, &paths, &second).await;
            let hit = first_try.is_err();
            if hit {
                until_known!(commit(&*node, &stage.cluster, &paths, &second)).unwrap();
            }
            assert_eq!(stage.names(&paths.list()), [ROOT, "x", "z"], "request {countdown}, {fate:?}");
            assert_eq!(stage.names(&paths.txns()), ["a-1"]);
            assert_eq!(stage.names(&paths.parked()), [ROOT, "p~a-1"]);
            if !hit {
                assert!(countdown > 3, "the recipe has at least three requests");
                break;
            }
        }
    }
}

#[tokio::test]
async fn clean_leave_retried_after_membership_ended_counts_once() {
    for gone in [false, true] {
        let stage = Stage::new().await;
        let (node, paths) = (stage.member("a").await, stage.attempt(1));
        let leave = Transaction { leave: true, ..transaction("a", 0, &["x"]) };
        // Until the lost answer is that of the multi.
        for countdown in 1.. {
            stage.tree.set_faults(LoseOne { session: node.id(), countdown, fate: Fate::LostAfter });
            assert!(commit(&*node, &stage.cluster, &paths, &leave).await.is_err(), "an answer is lost");
            if left_cleanly(&*stage.store, &paths, "a").await.unwrap() {
                break;
            }
        }
        assert_eq!(stage.names(&stage.cluster.members()), ["a"], "it may work on other jobs");
        let store = if gone {
            stage.tree.expire(node.id());
            stage.store.delete(&paths.txn(&leave.txn), None).await.unwrap();
            stage.tree.connect()
        } else {
            node
        };
        commit(&*store, &stage.cluster, &paths, &leave).await.unwrap();
        assert_eq!(stage.names(&paths.list()), [ROOT, "x"]);
        assert!(left_cleanly(&*stage.store, &paths, "a").await.unwrap());
    }
}

#[tokio::test]
async fn transit_to_member_that_left_the_attempt_can_be_claimed() {
    let stage = Stage::new().await;
    let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
    let give = Transaction { give: vec![("a-1-b".into(), b"task".to_vec())], ..transaction("a", 0, &[]) };
    commit(&*a, &stage.cluster, &paths, &give).await.unwrap();
    let source = Source::Transit { name: "a-1-b".into(), gone: Some("b".into()) };
    let mine = Claim { transit: "a-2-c".into(), txn: "a-2".into(), source, ..root_claim("a") };
    assert_eq!(claim(&*a, &stage.cluster, &paths, &mine, &Some).await, Ok(None), "it may still take it");
    assert!(orphans(&*a, &stage.cluster, &paths).await.unwrap().members.contains(&"b".to_owned()));
    let leave = Transaction { leave: true, ..transaction("b", 0, &[]) };
    commit(&*b, &stage.cluster, &paths, &leave).await.unwrap();
    assert_eq!(orphans(&*a, &stage.cluster, &paths).await.unwrap().members, ["a"]);
    assert_eq!(claim(&*a, &stage.cluster, &paths, &mine, &Some).await, Ok(Some(b"task".to_vec())));
}

#[tokio::test]
async fn clean_leave_needs_record_only_if_node_enrolled() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    stage.tree.expire(node.id());
    assert!(!left_cleanly(&*stage.store, &paths, "a").await.unwrap());
    assert!(left_cleanly(&*stage.store, &paths, "b").await.unwrap());
}

#[tokio::test]
async fn commit_of_non_member_is_refused() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    let ghost = stage.tree.connect();
    stage.tree.expire(node.id());
    let refused = commit(&*ghost, &stage.cluster, &paths, &transaction("a", 0, &["x"])).await;
    assert_eq!(refused, Err(CommitError::NotMember));
    assert_eq!(
        claim(&*ghost, &stage.cluster, &paths, &root_claim("a"), &Some).await,
        Err(CommitError::NotMember)
    );
    assert_eq!(enrol(&*ghost, &stage.cluster, &paths, "b", b"").await, Err(CommitError::NotMember));
    assert_eq!(stage.names(&paths.list()), [ROOT]);
    assert_eq!(stage.names(&paths.parked()), [ROOT]);
}

#[tokio::test]
async fn missing_attempt_is_over() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(9));
    let refused = commit(&*node, &stage.cluster, &paths, &transaction("a", 0, &["x"])).await;
    assert_eq!(refused, Err(CommitError::AttemptOver));
    assert_eq!(enrol(&*node, &stage.cluster, &paths, "a", b"").await, Err(CommitError::AttemptOver));
    let refused = claim(&*node, &stage.cluster, &paths, &root_claim("a"), &Some).await;
    assert_eq!(refused, Err(CommitError::AttemptOver));
}

#[tokio::test]
async fn parked_task_with_any_answer_lost_is_claimed_by_one_node() {
    for fate in FATES {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
            stage.tree.set_faults(LoseOne { session: a.id(), countdown, fate });
            let first = claim(&*a, &stage.cluster, &paths, &root_claim("a"), &Some).await;
            let hit = first.is_err();
            let other = claim(&*b, &stage.cluster, &paths, &root_claim("b"), &Some).await.unwrap();
            let mine = if hit {
                until_known!(claim(&*a, &stage.cluster, &paths, &root_claim("a"), &Some))
            } else {
                first
            };
            let mine = mine.unwrap();
            assert_eq!(
                usize::from(mine.is_some()) + usize::from(other.is_some()),
                1,
                "request {countdown}, {fate:?}"
            );
            let winner = if mine.is_some() { "a-c" } else { "b-c" };
            assert_eq!(mine.or(other).unwrap(), b"the root");
            assert_eq!(stage.names(&paths.parked()), Vec::<String>::new());
            assert_eq!(in_transit(&stage).await, [(winner.to_owned(), b"the root".to_vec())]);
            if !hit {
                break;
            }
        }
    }
}

#[tokio::test]
async fn chunked_data_with_any_answer_lost_counts_with_its_transaction() {
    let large = |byte: u8| vec![byte; REQUEST_BYTES_MAX];
    for fate in FATES {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
            let first = Transaction { output: large(1), ..transaction("a", 0, &["x"]) };
            commit(&*a, &stage.cluster, &paths, &first).await.unwrap();
            let is_lost = stage.lose_one(a.id(), countdown, fate);
            let park = (0..3_u8).map(|k| (format!("p{k}"), large(k))).chain([("small".into(), vec![9])]);
            let last = Transaction {
                output: large(2),
                park: park.collect(),
                leave: true,
                ..transaction("a", 1, &["y"])
            };
            let commit_last = || commit(&*a, &stage.cluster, &paths, &last);
            let _ = commit_last().await;
            until_known!(commit_last()).unwrap();
            assert_eq!(stage.names(&paths.list()), [ROOT, "x", "y"], "request {countdown}, {fate:?}");
            let outputs = job::outputs(&*b, &paths).await.unwrap();
            assert_eq!(outputs[0], ("a".to_owned(), large(2)), "request {countdown}, {fate:?}");
            for (task, envelope) in &last.park {
                let (txn, source) = (format!("b-{task}"), Source::Parked(task.clone()));
                let taking = Claim { transit: txn.clone(), txn, source, ..root_claim("b") };
                for _ in 0..2 {
                    let taken = claim(&*b, &stage.cluster, &paths, &taking, &Some).await.unwrap();
                    assert_eq!(taken.as_ref(), Some(envelope), "request {countdown}, {fate:?}");
                }
            }
            if !is_lost.load(Relaxed) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn large_output_keeps_only_the_last_chunks() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    for number in 0..3 {
        let large = Transaction { output: vec![1; REQUEST_BYTES_MAX], ..transaction("a", number, &[]) };
        commit(&*node, &stage.cluster, &paths, &large).await.unwrap();
    }
    assert_eq!(stage.names(&paths.large()), ["a-2", "a-2/000000", "a-2/000001"]);
}

#[tokio::test]
async fn output_beyond_limit_is_refused_with_limit_and_size() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    let beyond = Transaction { output: vec![0; crate::CHUNKED_BYTES_MAX + 1], ..transaction("a", 0, &["x"]) };
    let error = commit(&*node, &stage.cluster, &paths, &beyond).await.unwrap_err().to_string();
    assert!(error.contains("67108865") && error.contains("67108864"), "{error}");
}

#[tokio::test]
async fn claim_enrols_only_its_node() {
    for fate in [Fate::LostBefore, Fate::LostAfter] {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let (a, b, paths) = (stage.stranger("a").await, stage.stranger("b").await, stage.attempt(1));
            stage.tree.set_faults(LoseOne { session: a.id(), countdown, fate });
            let claiming = |node| Claim { enrol: Some(b"nothing".to_vec()), ..root_claim(node) };
            let first = claim(&*a, &stage.cluster, &paths, &claiming("a"), &Some).await;
            let hit = first.is_err();
            let taken = until_known!(claim(&*a, &stage.cluster, &paths, &claiming("a"), &Some)).unwrap();
            assert_eq!(taken.as_deref(), Some(&b"the root"[..]), "request {countdown}, {fate:?}");
            assert_eq!(claim(&*b, &stage.cluster, &paths, &claiming("b"), &Some).await, Ok(None));
            assert_eq!(stage.names(&paths.outputs()), ["a"], "a node that is too late is not enrolled");
            assert_eq!(held(&*b, &paths, "a").await, Ok(Some(b"nothing".to_vec())));
            assert_eq!(in_transit(&stage).await, [("a-c".to_owned(), b"the root".to_vec())]);
            if !hit {
                break;
            }
        }
    }
    // A node that is already enrolled can claim in the same way.
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    let claiming = Claim { enrol: Some(b"nothing".to_vec()), ..root_claim("a") };
    assert!(claim(&*node, &stage.cluster, &paths, &claiming, &Some).await.unwrap().is_some());
    assert_eq!(held(&*node, &paths, "a").await, Ok(Some(Vec::new())), "it stays as it is");
}

#[tokio::test]
async fn toggles_by_two_nodes_cancel() {
    let stage = Stage::new().await;
    let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
    commit(&*a, &stage.cluster, &paths, &transaction("a", 0, &["x"])).await.unwrap();
    commit(&*b, &stage.cluster, &paths, &transaction("b", 0, &["x"])).await.unwrap();
    assert_eq!(stage.names(&paths.list()), [ROOT]);
}

#[tokio::test]
async fn wait_until_empty_returns_when_list_is_empty() {
    let stage = Stage::new().await;
    let (node, paths) = (stage.member("a").await, stage.attempt(1));
    let (watcher, watched) = (stage.tree.connect(), paths.clone());
    let waiting = tokio::spawn(async move { wait_until_empty(&*watcher, &watched).await });
    commit(&*node, &stage.cluster, &paths, &transaction("a", 0, &["x", ROOT])).await.unwrap();
    assert!(!waiting.is_finished());
    commit(&*node, &stage.cluster, &paths, &transaction("a", 1, &["x"])).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
}

/// Generates a family of tasks: the parent of each task except the root, which is task 0.
fn family() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..24).prop_map(|parents| {
        parents.iter().enumerate().map(|(child, parent)| parent.index(child + 1)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tasks complete in any order, on any of three nodes, in batches of any size, and answers are lost. The
    /// list is empty exactly when every task is committed.
    #[test]
    fn list_is_empty_exactly_when_all_tasks_are_committed(
        parents in family(),
        order: prop::sample::Index,
        nodes in prop::collection::vec(0_usize..3, 25),
        flush in prop::collection::vec(any::<bool>(), 25),
        losses in prop::collection::vec(0_usize..6, 25),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new().await;
            let names = ["a", "b", "c"];
            let mut stores = Vec::new();
            for name in names {
                stores.push(stage.member(name).await);
            }
            let paths = stage.attempt(1);
            let count = parents.len() + 1;
            let id = |task: usize| if task == 0 { ROOT.to_owned() } else { format!("t-{task}") };
            let mut tasks: Vec<usize> = (0..count).collect();
            tasks.rotate_left(order.index(count));
            let mut batches = [(); 3].map(|()| BTreeSet::new());
            let mut numbers = [0_u64; 3];
            for (turn, &task) in tasks.iter().enumerate() {
                let who = nodes[turn];
                let children = (1..count).filter(|&child| parents[child - 1] == task);
                for toggled in children.chain([task]) {
                    if !batches[who].remove(&id(toggled)) {
                        batches[who].insert(id(toggled));
                    }
                }
                let last = turn + 1 == count;
                for who in 0..3 {
                    if (last || (who == nodes[turn] && flush[turn])) && !batches[who].is_empty() {
                        assert!(!stage.names(&paths.list()).is_empty(), "empty before the last batch");
                        let toggles: Vec<String> = std::mem::take(&mut batches[who]).into_iter().collect();
                        let refs: Vec<&str> = toggles.iter().map(String::as_str).collect();
                        let batch = transaction(names[who], numbers[who], &refs);
                        numbers[who] += 1;
                        let fate = FATES[turn % FATES.len()];
                        let session = stores[who].id();
                        stage.tree.set_faults(LoseOne { session, countdown: losses[turn], fate });
                        until_known!(commit(&*stores[who], &stage.cluster, &paths, &batch)).unwrap();
                    }
                }
            }
            assert_eq!(stage.names(&paths.list()), Vec::<String>::new());
            assert!(stage.names(&paths.txns()).len() <= 3);
        });
    }
}
