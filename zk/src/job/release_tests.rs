use std::sync::Arc;

use super::*;
use crate::{
    MemoryStore,
    accounting::{self, Claim, Source, Transaction},
    election::{Candidate, Fence},
    job::{self, Closing, Outcome, Retried, SHOWN_BYTES_MAX},
    journal::{self, Writer},
    quarantine::{AboutTask, SetAside},
    testing::{FATES, ROOT, Stage},
};

const LARGE: usize = 1 << 20;

/// The maximum size of the names and records of a job without its result, in bytes.
const RECORD_BYTES_MAX: usize = 4 << 10;

/// Returns the size of the data of a job, in bytes.
async fn bytes(stage: &Stage) -> usize {
    let path = stage.cluster.job(&stage.job).record();
    crate::housekeeping::bytes_kept(&*stage.store, &path).await.unwrap().try_into().unwrap()
}

async fn leader(stage: &Stage) -> Fence {
    let store = Arc::clone(&stage.store) as Arc<dyn Store>;
    let mut candidate = Candidate::enter(store, &stage.cluster, &stage.job, "a").await.unwrap();
    candidate.elected().await.unwrap()
}

/// A job with a large output, a journal and a letter, whose root task `node` holds.
async fn working(stage: &Stage) -> Arc<MemoryStore> {
    let (store, paths) = (stage.member("a").await, stage.attempt(1));
    let source = Source::Parked(ROOT.to_owned());
    let claim = Claim {
        node: "a".to_owned(),
        transit: "a-0-c".to_owned(),
        txn: "a-0".to_owned(),
        settled: None,
        source,
        enrol: None,
    };
    accounting::claim(&*store, &stage.cluster, &paths, &claim, &Some).await.unwrap().unwrap();
    let writer = Writer { node: "a".to_owned(), attempt: 1, generation: 1 };
    let (mut journal, _) = journal::take(&*store, &stage.cluster, &stage.job, &writer, "key").await.unwrap();
    journal.append(&*store, &vec![1; LARGE]).await.unwrap();
    let posted = crate::mail::post(&*store, &stage.cluster, &paths, "a", "a", 0, &vec![2; LARGE]).await;
    assert_eq!(posted, Ok(crate::mail::Posted::Posted));
    store
}

fn flush() -> Transaction {
    Transaction {
        node: "a".to_owned(),
        txn: "a-1".to_owned(),
        settled: Some("a-0".to_owned()),
        take: vec!["a-0-c".to_owned()],
        output: vec![3; LARGE],
        ..Transaction::default()
    }
}

fn outcome(incomplete: Option<&str>) -> Outcome {
    Outcome {
        result: vec![4; LARGE],
        shown: "x".repeat(SHOWN_BYTES_MAX / 2).into(),
        failure: None,
        incomplete: incomplete.map(str::to_owned),
    }
}

async fn close(stage: &Stage, outcome: &Outcome) {
    let fence = leader(stage).await;
    let closed = job::close(&*stage.store, &fence, &stage.cluster, &stage.job, 1, outcome, 9).await;
    assert_eq!(closed, Ok(Closing::Closed));
}

#[tokio::test]
async fn done_job_keeps_only_result_and_record() {
    let stage = Stage::new().await;
    let store = working(&stage).await;
    let done = Transaction { toggles: vec![ROOT.to_owned()], ..flush() };
    accounting::commit(&*store, &stage.cluster, &stage.attempt(1), &done).await.unwrap();
    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert!(bytes(&stage).await > 3 * LARGE, "a job that runs keeps everything");
    close(&stage, &outcome(None)).await;

    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    let kept = bytes(&stage).await;
    assert!(kept <= LARGE + SHOWN_BYTES_MAX / 2 + RECORD_BYTES_MAX, "{kept} bytes");
    let read = job::result(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!(read, outcome(None));
    assert_eq!(stage.names(&stage.attempt(1).outputs()), ["a"], "commands show which nodes took part");

    let late = Transaction { txn: "a-2".to_owned(), settled: None, take: Vec::new(), ..flush() };
    let refused = accounting::commit(&*store, &stage.cluster, &stage.attempt(1), &late).await;
    assert_eq!(refused.map(drop), Err(accounting::CommitError::AttemptOver));
    assert_eq!(bytes(&stage).await, kept, "a late write leaves nothing");
}

#[tokio::test]
async fn job_failed_by_output_records_reason_and_result() {
    let stage = Stage::new().await;
    let failed = Outcome { failure: Some("call 7 has failed".to_owned()), ..outcome(None) };
    close(&stage, &failed).await;
    let (record, _) = read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!((record.state, record.reason), (JobState::Failed, failed.failure.clone()));
    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!(job::result(&*stage.store, &stage.cluster, &stage.job).await.unwrap(), failed);
}

#[tokio::test]
async fn cancelled_job_keeps_its_committed_outputs() {
    let stage = Stage::new().await;
    let store = working(&stage).await;
    let parked = Transaction { park: vec![("task-7".to_owned(), vec![5; LARGE])], ..flush() };
    accounting::commit(&*store, &stage.cluster, &stage.attempt(1), &parked).await.unwrap();
    job::cancel(&*stage.store, &stage.cluster, &stage.job, "enough", 9).await.unwrap();
    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    let outputs = job::outputs(&*stage.store, &stage.attempt(1)).await.unwrap();
    assert_eq!(outputs[0], ("a".to_owned(), vec![3; LARGE]));
    let kept = bytes(&stage).await;
    assert!(kept <= LARGE + RECORD_BYTES_MAX, "{kept} bytes");
}

#[tokio::test]
async fn incomplete_job_is_retried_after_its_release_and_released_again() {
    let stage = Stage::new().await;
    let store = working(&stage).await;
    let about = AboutTask { crashes: 3, reason: "it fell".to_owned(), at_ms: 8 };
    let aside = SetAside { task: ROOT.to_owned(), envelope: vec![6; LARGE], about };
    let aside = Transaction { set_aside: vec![aside], toggles: vec![ROOT.to_owned()], ..flush() };
    accounting::commit(&*store, &stage.cluster, &stage.attempt(1), &aside).await.unwrap();
    close(&stage, &outcome(Some("a task was set aside"))).await;
    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    let retried = job::retry(&*stage.store, &stage.cluster, &stage.job, "key").await;
    assert_eq!(retried, Ok(Retried::Begun(1)));
    let parked = blob::read(&*stage.store, &stage.attempt(2).parked_task(ROOT)).await.unwrap();
    assert_eq!(parked.map(|(_, envelope)| envelope), Some(vec![6; LARGE]));
    assert_eq!(job::shared(&*stage.store, &stage.cluster, &stage.job).await.unwrap().len(), 600 << 10);

    job::fail(&*stage.store, &stage.cluster, &stage.job, "it is wrong", 9).await.unwrap();
    release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    let kept = bytes(&stage).await;
    assert!(kept <= RECORD_BYTES_MAX, "{kept} bytes");
}

#[tokio::test]
async fn release_interrupted_at_any_request_is_completed_by_another_call() {
    for fate in FATES {
        for countdown in 1..100 {
            let stage = Stage::new().await;
            let store = working(&stage).await;
            accounting::commit(&*store, &stage.cluster, &stage.attempt(1), &flush()).await.unwrap();
            close(&stage, &outcome(None)).await;
            let dying = stage.tree.connect();
            let is_lost = stage.lose_one(dying.id(), countdown, fate);
            let _ = release(&*dying, &stage.cluster, &stage.job).await;
            let is_lost = is_lost.load(std::sync::atomic::Ordering::Relaxed);
            release(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
            let kept = bytes(&stage).await;
            assert!(
                kept <= LARGE + SHOWN_BYTES_MAX / 2 + RECORD_BYTES_MAX,
                "{fate:?} {countdown}: {kept} bytes"
            );
            if !is_lost {
                assert!(countdown > 10, "{countdown} requests");
                break;
            }
        }
    }
}
