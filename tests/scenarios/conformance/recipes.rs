//! The cases of recipes: members, elections, jobs and journals.

use std::sync::Arc;

use zk::{
    ClusterPaths, Labels,
    accounting::{self, Claim, Source, Transaction},
    election::Candidate,
    job::{self, Closing, JobState, NewJob, Outcome},
    journal::{self, JournalError, Writer},
    membership::{self, Change, Member, MemberWatch},
};

use super::{Connected, World, soon};

pub(super) fn member(node: &str) -> Member {
    Member {
        node: node.to_owned(),
        address: None,
        fingerprint: String::new(),
        workers: 1,
        memory_bytes: 0,
        labels: Labels::default(),
        program: "test".to_owned(),
        program_version: "1".to_owned(),
        started_ms: 0,
        host: "gpu-17".to_owned(),
        pid: 17,
    }
}

/// A job that need not exist.
pub(super) const JOB: &str = "j-0000000000";

pub(super) async fn cluster(store: &Connected, name: &str) -> ClusterPaths {
    let cluster = ClusterPaths::new(name).unwrap();
    cluster.prepare(&**store).await.unwrap();
    cluster.prepare(&**store).await.unwrap();
    cluster
}

pub(super) async fn members_come_and_go(world: World, store: Connected, _: String) {
    let cluster = cluster(&store, "members").await;
    let mut members = MemberWatch::open(Arc::clone(&store), &cluster).await.unwrap();
    let mut sessions = Vec::new();
    for node in ["a", "b", "c"] {
        let session = world.connect().await;
        membership::join(&*session, &cluster, &member(node)).await.unwrap();
        assert_eq!(soon(members.next()).await, Ok(Change::Joined(member(node))));
        sessions.push(session);
    }
    for (node, session) in ["a", "b", "c"].into_iter().zip(sessions) {
        session.close().await.unwrap();
        assert_eq!(soon(members.next()).await, Ok(Change::Left(node.to_owned())));
    }
}

pub(super) async fn the_next_in_line_leads(world: World, store: Connected, _: String) {
    let cluster = cluster(&store, "election").await;
    let (first, second) = (world.connect().await, world.connect().await);
    let mut leader = Candidate::enter(Arc::clone(&first), &cluster, JOB, "a").await.unwrap();
    let mut next = Candidate::enter(Arc::clone(&second), &cluster, JOB, "b").await.unwrap();
    let fence = soon(leader.elected()).await.unwrap();
    assert!(first.multi(vec![fence.check()]).await.is_ok());
    let waiting = tokio::spawn(async move { next.elected().await });
    first.close().await.unwrap();
    let new_fence = soon(waiting).await.unwrap().unwrap();
    assert!(second.multi(vec![new_fence.check()]).await.is_ok());
    assert!(second.multi(vec![fence.check()]).await.is_err());
}

pub(super) const ROOT: &str = "n0000000000000000-0";

pub(super) fn new_job(shared: &[u8]) -> NewJob<'_> {
    NewJob {
        program: "test",
        program_version: "1",
        kind: "",
        task_type: "",
        name: "a job",
        shared,
        shared_name: "",
        shared_from: "",
        brought: None,
        root_id: ROOT,
        root: b"the root",
        variables: &[],
        attempts_max: 3,
        crashes_max: 3,
        require: Labels::NONE,
        after: &[],
        stays_open: false,
        share: job::Share::default(),
        submitter: "me",
        now_ms: 1,
    }
}

pub(super) async fn a_journal_has_one_writer(world: World, store: Connected, _: String) {
    let cluster = cluster(&store, "journal").await;
    let id = job::submit(&*store, &cluster, &new_job(b"")).await.unwrap();
    let (a, b) = (world.connect().await, world.connect().await);
    membership::join(&*a, &cluster, &member("a")).await.unwrap();
    membership::join(&*b, &cluster, &member("b")).await.unwrap();
    let writer = |node: &str, generation| Writer { node: node.to_owned(), attempt: 1, generation };
    let (mut first, _) = journal::take(&*a, &cluster, &id, &writer("a", 1), "key").await.unwrap();
    let large = vec![5; 1_200_000];
    first.append(&*a, b"small").await.unwrap();
    first.append(&*a, &large).await.unwrap();
    first.note(&*a, b"first").await.unwrap();
    first.note(&*a, b"second").await.unwrap();
    let (mut second, written) = journal::take(&*b, &cluster, &id, &writer("b", 2), "other").await.unwrap();
    assert_eq!((written.key.as_str(), written.note.as_deref()), ("key", Some(&b"second"[..])));
    assert_eq!(written.entries, [b"small".to_vec(), large.clone()]);
    // Small, and in chunks.
    assert_eq!(first.append(&*a, b"late").await, Err(JournalError::Replaced));
    assert_eq!(first.append(&*a, &large).await, Err(JournalError::Replaced));
    assert_eq!(first.note(&*a, b"late").await, Err(JournalError::Replaced));
    second.append(&*b, b"all of that").await.unwrap();
    second.forget_before(&*b, 2).await.unwrap();
    let again = journal::take(&*a, &cluster, &id, &writer("a", 1), "").await.unwrap_err();
    assert_eq!(again, JournalError::Replaced);
    soon(b.close()).await.unwrap();
    let (mut third, written) = journal::take(&*a, &cluster, &id, &writer("a", 1), "").await.unwrap();
    assert_eq!(written.entries, [b"all of that".to_vec()]);
    third.append(&*a, b"more").await.unwrap();
    assert_eq!(third.next(), 4);
    job::forget(&*store, &cluster, &id).await.unwrap();
    assert_eq!(third.append(&*a, b"late").await, Err(JournalError::AttemptOver));
}

pub(super) async fn a_job_runs_from_submission_to_result(world: World, store: Connected, _: String) {
    let cluster = cluster(&store, "jobs").await;
    let shared = vec![3; 1_200_000];
    let variables = [("best".to_owned(), b"9".to_vec())];
    let new = NewJob { variables: &variables, ..new_job(&shared) };
    let id = job::submit(&*store, &cluster, &new).await.unwrap();
    let (node, attempt) = (world.connect().await, cluster.job(&id).attempt(1));
    assert_eq!(job::shared(&*node, &cluster, &id).await.unwrap(), shared);
    membership::join(&*node, &cluster, &member("a")).await.unwrap();
    accounting::enrol(&*node, &cluster, &attempt, "a", b"nothing").await.unwrap();
    let claim = Claim {
        node: "a".into(),
        txn: "a-0".into(),
        settled: None,
        source: Source::Parked(ROOT.into()),
        transit: "a-c0~a".into(),
        enrol: None,
    };
    for _ in 0..2 {
        let claimed = accounting::claim(&*node, &cluster, &attempt, &claim, &Some).await.unwrap();
        assert_eq!(claimed.as_deref(), Some(&b"the root"[..]), "however often it is asked");
    }
    let mut transaction = Transaction {
        node: "a".into(),
        txn: "a-1".into(),
        settled: Some("a-0".into()),
        toggles: vec![ROOT.into(), "n1-1".into()],
        output: b"seven".to_vec(),
        held: b"a part".to_vec(),
        give: vec![("a-g0~b".to_owned(), b"another".to_vec())],
        take: vec!["a-c0~a".to_owned()],
        ..Transaction::default()
    };
    for _ in 0..2 {
        accounting::commit(&*node, &cluster, &attempt, &transaction).await.unwrap();
    }
    let list = store.children(&attempt.list()).await.unwrap();
    assert_eq!(list, ["n1-1"], "a transaction counts once");
    let held = accounting::held(&*store, &attempt, "a").await.unwrap();
    let orphans = accounting::orphans(&*store, &cluster, &attempt).await.unwrap();
    assert_eq!(held.as_deref(), Some(&b"a part"[..]));
    assert_eq!(
        (orphans.members, orphans.transits, orphans.held),
        (vec!["a".to_owned()], vec!["a-g0~b".to_owned()], vec!["a".to_owned()])
    );
    (transaction.give, transaction.take) = (Vec::new(), Vec::new());
    (transaction.txn, transaction.settled) = ("a-2".into(), Some("a-1".into()));
    transaction.toggles = vec!["n1-1".into()];
    let empty = {
        let (store, attempt) = (Arc::clone(&store), attempt.clone());
        tokio::spawn(async move { accounting::wait_until_empty(&*store, &attempt).await })
    };
    accounting::commit(&*node, &cluster, &attempt, &transaction).await.unwrap();
    soon(empty).await.unwrap().unwrap();
    let fence =
        Candidate::enter(Arc::clone(&node), &cluster, JOB, "a").await.unwrap().elected().await.unwrap();
    let outcome =
        Outcome { result: b"seven".to_vec(), shown: "seven".into(), failure: None, incomplete: None };
    let closing = job::close(&*node, &fence, &cluster, &id, 1, &outcome, 5).await;
    assert_eq!(closing, Ok(Closing::Closed));
    assert_eq!(job::result(&*node, &cluster, &id).await.unwrap(), outcome);
    let (record, _) = job::read(&*node, &cluster, &id).await.unwrap();
    assert_eq!((record.state, record.finished_ms), (JobState::Done, Some(5)));
    job::forget(&*store, &cluster, &id).await.unwrap();
    assert_eq!(store.children(&cluster.jobs()).await.unwrap(), [""; 0]);
}
