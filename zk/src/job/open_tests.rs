use std::sync::Arc;

use super::*;
use crate::{
    MemoryStore,
    election::Candidate,
    job::{self, NewAttempt, NewJob, Share, cancel, new_attempt},
    labels::Labels,
    store::CreateMode,
    testing::{FATES, LoseOne, ROOT, Stage},
};

const TASK: &str = "n0000000000000000-7";

/// Submits a job that stays open, and returns its name.
async fn submitted(stage: &Stage) -> String {
    let new = NewJob {
        program: "test",
        program_version: "1",
        kind: "",
        task_type: "",
        name: "a service",
        shared: &[],
        shared_name: "",
        shared_from: "",
        brought: None,
        root_id: ROOT,
        root: b"the root",
        variables: &[],
        attempts_max: 9,
        crashes_max: 3,
        require: Labels::NONE,
        after: &[],
        stays_open: true,
        share: Share::default(),
        submitter: "me",
        now_ms: 1,
    };
    job::submit(&*stage.store, &stage.cluster, &new).await.unwrap()
}

async fn leader(stage: &Stage, job: &str) -> (Arc<MemoryStore>, Fence) {
    let store = stage.tree.connect();
    let dynamic = Arc::clone(&store) as Arc<dyn Store>;
    let mut candidate = Candidate::enter(dynamic, &stage.cluster, job, "a").await.unwrap();
    let fence = candidate.elected().await.unwrap();
    (store, fence)
}

/// The entries of the list, and the parked tasks.
fn tasks(stage: &Stage, attempt: &AttemptPaths) -> [Vec<String>; 2] {
    [stage.names(&attempt.list()), stage.names(&attempt.parked())]
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test]
async fn added_task_with_any_answer_lost_is_added_once() {
    for large in [false, true] {
        for fate in FATES {
            for countdown in 1.. {
                let stage = Stage::new().await;
                let job = submitted(&stage).await;
                let store = stage.tree.connect();
                let envelope = vec![7; if large { 2 << 20 } else { 9 }];
                stage.tree.set_faults(LoseOne { session: store.id(), countdown, fate });
                let adding = || add(&*store, &stage.cluster, &job, TASK, &envelope);
                let first = adding().await;
                let is_lost = first.is_err();
                for _ in 0..2 {
                    let added = loop {
                        match adding().await {
                            Err(error) => assert!(error.is_transient(), "{error}"),
                            Ok(added) => break added,
                        }
                    };
                    assert_eq!(added, Added::Added, "request {countdown}, {fate:?}");
                }
                let paths = stage.cluster.job(&job);
                let attempt = paths.attempt(1);
                let expected = [names(&[ROOT, TASK, "open"]), names(&[ROOT, TASK])];
                assert_eq!(tasks(&stage, &attempt), expected, "request {countdown}, {fate:?}");
                let (content, _) = stage.store.get(&attempt.parked_task(TASK)).await.unwrap();
                let parked = blob::get(&*stage.store, "", &content).await.unwrap();
                assert!(parked == envelope, "request {countdown}, {fate:?}");
                if !is_lost {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn new_attempt_starts_all_added_tasks_and_list_empties_only_after_finish() {
    let stage = Stage::new().await;
    let job = submitted(&stage).await;
    let (store, fence) = leader(&stage, &job).await;
    let paths = stage.cluster.job(&job);
    let added = async |task: &str| add(&*stage.store, &stage.cluster, &job, task, b"more").await;
    let settled = async |attempt| settle(&*store, &fence, &paths, &paths.attempt(attempt)).await;
    assert_eq!(added(TASK).await, Ok(Added::Added));
    let next = new_attempt(&*store, &fence, &stage.cluster, &job, 1, &[], 0).await;
    assert_eq!(next, Ok(NewAttempt::Started(2)));
    let second = paths.attempt(2);
    assert_eq!(tasks(&stage, &second), [names(&[ROOT, "open"]), names(&[ROOT])]);
    // One task is added before the leader reaches it, and has started by then.
    assert_eq!(added("n0000000000000000-9").await, Ok(Added::Added));
    for _ in 0..2 {
        settled(2).await.unwrap();
        let all = [ROOT, TASK, "n0000000000000000-9"];
        let list = names(&[&all[..], &["open"]].concat());
        assert_eq!(tasks(&stage, &second), [list, names(&all)]);
    }
    // A completed task does not start again.
    for gone in [second.task(TASK), second.parked_task(TASK)] {
        stage.store.delete(&gone, None).await.unwrap();
    }
    assert_eq!(finish(&*stage.store, &stage.cluster, &job).await, Ok(true));
    assert_eq!(finish(&*stage.store, &stage.cluster, &job).await, Ok(true), "again");
    assert!(matches!(added("n0000000000000000-8").await, Ok(Added::Not(_))));
    assert_eq!(added(TASK).await, Ok(Added::Added), "an earlier try has added it");
    for _ in 0..2 {
        settled(2).await.unwrap();
        assert_eq!(stage.names(&second.list()), names(&[ROOT, "n0000000000000000-9"]));
    }
}

#[tokio::test]
async fn deposed_leader_cannot_settle() {
    let stage = Stage::new().await;
    let job = submitted(&stage).await;
    let (store, fence) = leader(&stage, &job).await;
    let paths = stage.cluster.job(&job);
    finish(&*stage.store, &stage.cluster, &job).await.unwrap();
    let own = Candidate::enter(store.clone(), &stage.cluster, &job, "a").await.unwrap();
    own.withdraw().await.unwrap();
    let settled = settle(&*store, &fence, &paths, &paths.attempt(1)).await;
    assert_eq!(settled, Err(LeadError::Deposed));
    assert_eq!(stage.names(&paths.attempt(1).list()), names(&[ROOT, "open"]));
}

#[tokio::test]
async fn refused_addition_states_reason() {
    let stage = Stage::new().await;
    let job = submitted(&stage).await;
    let why = async |job: &str| match add(&*stage.store, &stage.cluster, job, TASK, b"").await {
        Ok(Added::Not(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(&stage.job).await.contains("not submitted as one that stays open"));
    assert_eq!(finish(&*stage.store, &stage.cluster, &stage.job).await, Ok(false));
    let roots = stage.cluster.job(&job).roots();
    for number in 0..ROOTS_MAX {
        stage.store.create(&format!("{roots}/{number}"), b"", CreateMode::Persistent).await.unwrap();
    }
    assert!(why(&job).await.contains("10000 tasks"));
    cancel(&*stage.store, &stage.cluster, &job, "", 0).await.unwrap();
    assert!(why(&job).await.contains("over"));
}
