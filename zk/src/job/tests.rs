use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::{
    CHUNKED_BYTES_MAX, Fate, accounting, blob,
    election::{Candidate, Fence},
    labels::Labels,
    quarantine::{self, AboutTask, SET_ASIDE_MAX, SetAside},
    testing::{FATES, Interrupted, LoseOne, ROOT, Stage},
    tree::REQUEST_BYTES_MAX,
};

fn outcome(result: &[u8]) -> Outcome {
    Outcome {
        result: result.to_vec(),
        shown: serde_json::json!({"output": 7}),
        failure: None,
        incomplete: None,
    }
}

async fn leader(stage: &Stage, node: &str) -> (Arc<crate::MemoryStore>, Fence) {
    let store = stage.tree.connect();
    let mut candidate =
        Candidate::enter(Arc::clone(&store) as Arc<dyn Store>, &stage.cluster, &stage.job, node)
            .await
            .unwrap();
    let fence = candidate.elected().await.unwrap();
    (store, fence)
}

#[tokio::test]
async fn resume_on_stale_server_sees_suspension() {
    for countdown in 1..5 {
        let stage = Stage::new().await;
        let (_, _fence) = leader(&stage, "a").await;
        let (operator, other) = (stage.tree.connect(), stage.tree.connect());
        let fate = Fate::LostBehind;
        stage.tree.set_faults(LoseOne { session: operator.id(), countdown, fate });
        let suspended = suspend(&*operator, &stage.cluster, &stage.job, 0).await;
        assert!(suspended.is_err() || countdown > 3, "request {countdown}");
        while !matches!(resume(&*operator, &stage.cluster, &stage.job, 0).await, Ok(resumed) if resumed) {}
        let (record, _) = read(&*other, &stage.cluster, &stage.job).await.unwrap();
        assert_eq!(record.state, JobState::Running, "request {countdown}");
    }
}

#[tokio::test]
async fn suspended_time_is_recorded_until_resumed_or_cancelled() {
    let stage = Stage::new().await;
    let (store, cluster, job) = (&*stage.store, &stage.cluster, &stage.job);
    let record = async || read(store, cluster, job).await.unwrap().0;
    suspend(store, cluster, job, 1_000).await.unwrap();
    // Repeated, because its answer was lost.
    suspend(store, cluster, job, 1_500).await.unwrap();
    assert_eq!(record().await.suspended_until(3_000), 2_000);
    resume(store, cluster, job, 4_000).await.unwrap();
    assert_eq!(record().await.suspended_until(9_000), 3_000);
    suspend(store, cluster, job, 10_000).await.unwrap();
    cancel(store, cluster, job, "enough", 10_500).await.unwrap();
    assert_eq!(record().await.suspended_until(99_000), 3_500);
}

fn weight(weight: u32) -> NewShare {
    NewShare { weight: std::num::NonZeroU32::new(weight), priority: None }
}

#[tokio::test]
async fn share_is_changed_and_recorded_once_whatever_answer_is_lost() {
    for fate in FATES {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let operator = stage.tree.connect();
            stage.tree.set_faults(LoseOne { session: operator.id(), countdown, fate });
            let set = || set_share(&*operator, &stage.cluster, &stage.job, weight(3), "anna", 7);
            let hit = set().await.is_err();
            if hit {
                set().await.unwrap();
            }
            let (record, _) = read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
            assert_eq!((record.share.weight.get(), record.share.priority), (3, 0), "{fate:?} {countdown}");
            let share = record.share;
            assert_eq!(record.share_changes, [ShareChange { at_ms: 7, by: "anna".to_owned(), share }]);
            if !hit {
                break;
            }
        }
    }
}

#[tokio::test]
async fn share_of_a_job_that_is_over_stays() {
    let stage = Stage::new().await;
    cancel(&*stage.store, &stage.cluster, &stage.job, "enough", 3).await.unwrap();
    let record = set_share(&*stage.store, &stage.cluster, &stage.job, weight(3), "anna", 7).await.unwrap();
    assert_eq!((record.state, record.share), (JobState::Cancelled, Share::default()));
    assert_eq!(record.share_changes, []);
}

#[tokio::test]
async fn recorded_changes_of_a_share_are_bounded() {
    let stage = Stage::new().await;
    for number in 1..=40 {
        let new = NewShare { priority: Some(number), ..weight(2) };
        set_share(&*stage.store, &stage.cluster, &stage.job, new, "anna", 7).await.unwrap();
    }
    let (record, _) = read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!(record.share_changes.len(), share::SHARE_CHANGES_MAX);
    assert_eq!(record.share_changes.last().unwrap().share, Share { priority: 40, ..record.share });
}

#[tokio::test]
async fn submitted_job_runs_with_root_parked() {
    let stage = Stage::new().await;
    let (record, _) = read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!((record.state, record.attempt, record.shared_chunks), (JobState::Running, 1, 2));
    assert_eq!(shared(&*stage.store, &stage.cluster, &stage.job).await.unwrap(), vec![7; 600 << 10]);
    let paths = stage.attempt(1);
    assert_eq!(stage.names(&paths.list()), [ROOT]);
    assert_eq!(stage.names(&paths.parked()), [ROOT]);
    assert_eq!(stage.store.get(&stage.cluster.job(&stage.job).var("best")).await.unwrap().0, b"9");
}

#[tokio::test]
async fn data_beyond_limit_is_refused_with_limit_and_size() {
    let stage = Stage::new().await;
    let data = vec![0; CHUNKED_BYTES_MAX + 1];
    let new = NewJob {
        program: "test",
        program_version: "1",
        kind: "",
        task_type: "",
        name: "large",
        shared: &data,
        shared_name: "",
        shared_from: "",
        brought: None,
        root_id: ROOT,
        root: b"",
        variables: &[],
        attempts_max: 1,
        crashes_max: 3,
        require: Labels::NONE,
        after: &[],
        stays_open: false,
        share: Share::default(),
        submitter: "me",
        now_ms: 0,
    };
    let error = submit(&*stage.store, &stage.cluster, &new).await.unwrap_err().to_string();
    assert!(error.contains("67108865") && error.contains("67108864"), "{error}");
    let jobs = stage.store.children(&stage.cluster.jobs()).await.unwrap();
    assert_eq!(jobs, [stage.job], "nothing is left of it");
}

#[tokio::test]
async fn job_is_closed_with_result_of_any_size() {
    for size in [0, 3, 512 << 10, 1_500_000] {
        let stage = Stage::new().await;
        let (store, fence) = leader(&stage, "a").await;
        let produced: Vec<u8> = (0..size).map(|byte: u32| byte.to_le_bytes()[0]).collect();
        let outcome = outcome(&produced);
        let close = close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome, 5);
        assert_eq!(close.await.unwrap(), Closing::Closed);
        assert_eq!(result(&*stage.store, &stage.cluster, &stage.job).await.unwrap(), outcome);
        let (record, _) = read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
        assert_eq!((record.state, record.finished_ms), (JobState::Done, Some(5)));
    }
}

#[tokio::test]
async fn close_with_any_answer_lost_happens_once() {
    for fate in FATES {
        for countdown in 1.. {
            let stage = Stage::new().await;
            let (store, fence) = leader(&stage, "a").await;
            stage.tree.set_faults(LoseOne { session: store.id(), countdown, fate });
            let outcome = outcome(b"result");
            let closing = || close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome, 5);
            let hit = closing().await.is_err();
            if hit {
                let mut closed = closing().await.unwrap();
                // It read the record from a server that lagged behind; the answer to its own write has
                // brought that server up to date.
                if closed == Closing::NotCurrent && fate == Fate::LostBehind {
                    closed = closing().await.unwrap();
                }
                assert!(matches!(closed, Closing::Closed | Closing::AlreadyOver), "{closed:?}");
            }
            assert_eq!(result(&*stage.store, &stage.cluster, &stage.job).await.unwrap(), outcome);
            if !hit {
                break;
            }
        }
    }
}

#[tokio::test]
async fn deposed_leader_cannot_write() {
    let stage = Stage::new().await;
    let (old, fence) = leader(&stage, "a").await;
    let ghost = stage.tree.connect();
    stage.tree.expire(old.id());
    let (_new, _) = leader(&stage, "b").await;
    let before = stage.tree.paths_below("/");
    let closed = close(&*ghost, &fence, &stage.cluster, &stage.job, 1, &outcome(b""), 0).await;
    assert_eq!(closed, Err(LeadError::Deposed));
    let begun = new_attempt(&*ghost, &fence, &stage.cluster, &stage.job, 1, &[], 0).await;
    assert_eq!(begun, Err(LeadError::Deposed));
    assert_eq!(stage.tree.paths_below("/"), before);
}

#[tokio::test]
async fn lost_node_ends_attempt_and_next_starts_from_root() {
    let stage = Stage::new().await;
    let (store, fence) = leader(&stage, "a").await;
    let (x, y) = (stage.member("x").await, stage.member("y").await);
    let paths = stage.attempt(1);
    assert!(lost(&*store, &stage.cluster, &paths).await.unwrap().is_empty());
    let leave =
        accounting::Transaction { node: "y".into(), txn: "y-0".into(), leave: true, ..Default::default() };
    accounting::commit(&*y, &stage.cluster, &paths, &leave).await.unwrap();
    assert!(lost(&*store, &stage.cluster, &paths).await.unwrap().is_empty(), "y has left cleanly");
    stage.tree.expire(x.id());
    let gone = lost(&*store, &stage.cluster, &paths).await.unwrap();
    assert_eq!(gone, ["x"]);
    let begin = |ended| new_attempt(&*store, &fence, &stage.cluster, &stage.job, ended, &gone, 3);
    assert_eq!(begin(1).await.unwrap(), NewAttempt::Started(2));
    assert_eq!(begin(1).await.unwrap(), NewAttempt::NotCurrent, "once for one loss");
    assert_eq!(stage.names(&stage.attempt(2).list()), [ROOT]);
    assert_eq!(stage.names(&stage.attempt(2).parked()), [ROOT]);
    assert!(stage.names(&stage.attempt(2).outputs()).is_empty());
    assert_eq!(begin(2).await.unwrap(), NewAttempt::Started(3));
    assert_eq!(begin(3).await.unwrap(), NewAttempt::GaveUp);
    let (record, _) = read(&*store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!((record.state, record.lost.len()), (JobState::Failed, 3));
    assert!(record.reason.unwrap().contains('x'));
}

/// Sets a task aside, and ends the job without it.
async fn incomplete(stage: &Stage, envelope: &[u8]) {
    let (store, fence) = leader(stage, "a").await;
    let x = stage.member("x").await;
    let about = AboutTask { crashes: 3, reason: "it panicked".to_owned(), at_ms: 7 };
    let aside = SetAside { task: ROOT.to_owned(), envelope: envelope.to_vec(), about: about.clone() };
    let flush = accounting::Transaction {
        node: "x".into(),
        txn: "x-0".into(),
        toggles: vec![ROOT.to_owned()],
        set_aside: vec![aside],
        ..Default::default()
    };
    accounting::commit(&*x, &stage.cluster, &stage.attempt(1), &flush).await.unwrap();
    assert!(stage.names(&stage.attempt(1).list()).is_empty(), "it counts as complete");
    let listed = quarantine::list(&*store, &stage.attempt(1)).await.unwrap();
    assert_eq!(listed, [(ROOT.to_owned(), about)]);
    let outcome = Outcome { incomplete: Some("a task is missing".to_owned()), ..outcome(b"the rest") };
    let closed = close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome, 5).await.unwrap();
    assert_eq!(closed, Closing::Closed);
    assert_eq!(result(&*store, &stage.cluster, &stage.job).await, Ok(outcome));
}

#[tokio::test]
async fn set_aside_tasks_are_retried_once_with_result_of_others() {
    for size in [3, 700 << 10] {
        for fate in FATES {
            for countdown in 1.. {
                let stage = Stage::new().await;
                let envelope = vec![7; size];
                incomplete(&stage, &envelope).await;
                let client = stage.tree.connect();
                let is_lost = stage.lose_one(client.id(), countdown, fate);
                let begun = loop {
                    match retry(&*client, &stage.cluster, &stage.job, "a key").await {
                        Err(error) => assert!(error.is_transient(), "{error}"),
                        Ok(begun) => break begun,
                    }
                };
                let case = format!("{size} bytes, {fate:?} of request {countdown}");
                assert_eq!(begun, Retried::Begun(1), "{case}");
                let (client, is_lost) = (stage.tree.connect(), is_lost.load(Relaxed));
                let same = retry(&*client, &stage.cluster, &stage.job, "a key").await;
                assert_eq!(same, Ok(Retried::Begun(1)), "{case}");
                let other = retry(&*client, &stage.cluster, &stage.job, "another key").await;
                assert_eq!(other, Ok(Retried::Not(JobState::Running)), "{case}");
                let (record, _) = read(&*client, &stage.cluster, &stage.job).await.unwrap();
                assert_eq!((record.state, record.attempt, record.reason), (JobState::Running, 2, None));
                let next = stage.attempt(2);
                assert_eq!(
                    (stage.names(&next.list()), stage.names(&next.parked())),
                    (vec![ROOT.to_owned()], vec![ROOT.to_owned()])
                );
                let parked = blob::read(&*client, &next.parked_task(ROOT)).await.unwrap().unwrap().1;
                assert!(parked == envelope, "{case}");
                let carried: Vec<Vec<u8>> =
                    outputs(&*client, &next).await.unwrap().into_iter().map(|(_, output)| output).collect();
                assert_eq!(carried, [b"the rest"], "{case}");
                assert!(lost(&*client, &stage.cluster, &next).await.unwrap().is_empty(), "{case}");
                if !is_lost {
                    assert!(countdown > 5, "only {countdown} requests were made");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn maximum_of_set_aside_tasks_can_be_retried() {
    let stage = Stage::new().await;
    let (store, fence) = leader(&stage, "a").await;
    let x = stage.member("x").await;
    let paths = stage.attempt(1);
    let mut settled = None;
    for first in (0..SET_ASIDE_MAX).step_by(100) {
        assert!(!quarantine::is_full(&*store, &paths).await.unwrap());
        let about = AboutTask { crashes: 3, reason: "out of memory; ".repeat(30), at_ms: 7 };
        let aside = |number: usize| SetAside {
            task: format!("n{number:016}-{number}"),
            envelope: vec![7; 200],
            about: about.clone(),
        };
        let txn = format!("x-{first}");
        let flush = accounting::Transaction {
            node: "x".into(),
            txn: txn.clone(),
            settled: settled.replace(txn),
            toggles: if first == 0 { vec![ROOT.to_owned()] } else { Vec::new() },
            set_aside: (first..first + 100).map(aside).collect(),
            ..Default::default()
        };
        accounting::commit(&*x, &stage.cluster, &paths, &flush).await.unwrap();
    }
    assert!(quarantine::is_full(&*store, &paths).await.unwrap());
    let outcome = Outcome { incomplete: Some("tasks are missing".to_owned()), ..outcome(b"the rest") };
    let closed = close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome, 5).await;
    assert_eq!(closed, Ok(Closing::Closed));
    let retried = retry(&*store, &stage.cluster, &stage.job, "a key").await;
    assert_eq!(retried, Ok(Retried::Begun(SET_ASIDE_MAX)));
    assert_eq!(stage.names(&stage.attempt(2).parked()).len(), SET_ASIDE_MAX);
}

#[tokio::test]
async fn forgotten_job_cannot_be_retried() {
    let stage = Stage::new().await;
    incomplete(&stage, b"7").await;
    forget(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    let retried = retry(&*stage.store, &stage.cluster, &stage.job, "a key").await;
    assert!(matches!(retried, Err(Error::NoNode { .. })), "{retried:?}");
}

#[tokio::test]
async fn lost_node_holdings_are_claimed_and_its_output_stays() {
    let stage = Stage::new().await;
    let (x, y, paths) = (stage.member("x").await, stage.member("y").await, stage.attempt(1));
    let flush = accounting::Transaction {
        node: "x".into(),
        txn: "x-0".into(),
        output: b"produced".to_vec(),
        held: b"all of x".to_vec(),
        ..Default::default()
    };
    accounting::commit(&*x, &stage.cluster, &paths, &flush).await.unwrap();
    stage.tree.expire(x.id());
    assert_eq!(accounting::held(&*y, &paths, "x").await, Ok(Some(b"all of x".to_vec())));
    let claim = accounting::Claim {
        node: "y".into(),
        txn: "y-0".into(),
        settled: None,
        source: accounting::Source::Held("x".into()),
        transit: "y-c0~y".into(),
        enrol: None,
    };
    let claimed = accounting::claim(&*y, &stage.cluster, &paths, &claim, &Some).await;
    assert_eq!(claimed, Ok(Some(b"all of x".to_vec())));
    assert_eq!(accounting::held(&*y, &paths, "x").await, Ok(None));
    assert_eq!(lost(&*y, &stage.cluster, &paths).await.unwrap(), ["x"], "it did not leave");
    let produced = [("x".to_owned(), b"produced".to_vec()), ("y".to_owned(), Vec::new())];
    assert_eq!(outputs(&*y, &paths).await.unwrap(), produced);
}

#[tokio::test]
async fn blob_overwritten_during_read_is_read_again() {
    let stage = Stage::new().await;
    let (x, reader, paths) = (stage.member("x").await, stage.tree.connect(), stage.attempt(1));
    let flush = |number: u8| accounting::Transaction {
        node: "x".into(),
        txn: format!("x-{number}"),
        output: vec![7; REQUEST_BYTES_MAX],
        held: vec![number; REQUEST_BYTES_MAX],
        ..Default::default()
    };
    for (number, path) in [(0, paths.output("x")), (2, paths.held_by("x"))] {
        accounting::commit(&*x, &stage.cluster, &paths, &flush(number)).await.unwrap();
        let (x, cluster, its_paths, next) =
            (Arc::clone(&x), stage.cluster.clone(), paths.clone(), flush(number + 1));
        let overwriting = async move {
            accounting::commit(&*x, &cluster, &its_paths, &next).await.unwrap();
            Ok(())
        };
        let reader = Interrupted::new(&reader, path, overwriting);
        assert!(outputs(&reader, &paths).await.unwrap() == [("x".to_owned(), vec![7; REQUEST_BYTES_MAX])]);
        let held = accounting::held(&reader, &paths, "x").await.unwrap();
        assert!(held == Some(vec![number + 1; REQUEST_BYTES_MAX]) && reader.is_over());
    }
    remove(&*stage.store, paths.large()).await.unwrap();
    let missing = outputs(&*reader, &paths).await;
    assert!(matches!(missing, Err(Error::NoNode { .. })), "it is not there for good");
}

#[tokio::test]
async fn outdated_attempt_cannot_close_job() {
    let stage = Stage::new().await;
    let (store, fence) = leader(&stage, "a").await;
    let begun = new_attempt(&*store, &fence, &stage.cluster, &stage.job, 1, &[], 0).await;
    assert_eq!(begun.unwrap(), NewAttempt::Started(2));
    let closed = close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome(b""), 0).await;
    assert_eq!(closed.unwrap(), Closing::NotCurrent);
}

#[tokio::test]
async fn job_ends_once_and_watch_reports_the_state() {
    let stage = Stage::new().await;
    let mut watch =
        JobWatch::open(Arc::clone(&stage.store) as Arc<dyn Store>, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!(watch.next().await.unwrap().state, JobState::Running);
    cancel(&*stage.store, &stage.cluster, &stage.job, "enough", 2).await.unwrap();
    fail(&*stage.store, &stage.cluster, &stage.job, "too late", 3).await.unwrap();
    let record = watch.next().await.unwrap();
    assert_eq!((record.state, record.reason.as_deref()), (JobState::Cancelled, Some("enough")));
}

#[tokio::test]
async fn forgotten_job_leaves_no_znodes() {
    let stage = Stage::new().await;
    let (_x, store) = (stage.member("x").await, stage.tree.connect());
    cancel(&*store, &stage.cluster, &stage.job, "enough", 2).await.unwrap();
    forget(&*store, &stage.cluster, &stage.job).await.unwrap();
    assert!(stage.names(&stage.cluster.jobs()).is_empty());
    forget(&*store, &stage.cluster, &stage.job).await.unwrap();
}

#[tokio::test]
async fn oversized_shown_result_is_omitted_and_result_stays() {
    let stage = Stage::new().await;
    let (store, fence) = leader(&stage, "a").await;
    let large = Outcome { shown: "x".repeat(SHOWN_BYTES_MAX).into(), ..outcome(b"result") };
    assert_eq!(close(&*store, &fence, &stage.cluster, &stage.job, 1, &large, 5).await, Ok(Closing::Closed));
    let read = result(&*store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!((read.result, read.shown), (b"result".to_vec(), serde_json::Value::Null));
}

#[tokio::test]
async fn suspend_and_resume_affect_only_jobs_not_over() {
    let stage = Stage::new().await;
    let (store, fence) = leader(&stage, "a").await;
    assert_eq!(suspend(&*store, &stage.cluster, &stage.job, 0).await, Ok(true));
    let outcome = outcome(b"");
    let close_it = || close(&*store, &fence, &stage.cluster, &stage.job, 1, &outcome, 5);
    assert_eq!(close_it().await, Ok(Closing::NotCurrent));
    let begun = new_attempt(&*store, &fence, &stage.cluster, &stage.job, 1, &[], 0).await;
    assert_eq!(begun, Ok(NewAttempt::NotCurrent), "losses are judged when the job resumes");
    assert_eq!(resume(&*store, &stage.cluster, &stage.job, 0).await, Ok(true));
    assert_eq!(close_it().await, Ok(Closing::Closed));
    assert_eq!(suspend(&*store, &stage.cluster, &stage.job, 0).await, Ok(false));
    assert_eq!(resume(&*store, &stage.cluster, &stage.job, 0).await, Ok(false));
}
