//! Membership, election and variables over the store in memory, with faults.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use proptest::prelude::*;

use crate::{
    CreateMode, Error, Fate, MemoryStore, Store,
    accounting::{self, Transaction},
    election::{Candidate, leaders},
    job::{self, JobState, NewJob},
    labels::Labels,
    mail::{MAILBOX_LETTERS_MAX, Mailbox, Posted, post},
    membership::{Change, Lacks, Member, MemberWatch},
    queue::{JobQueue, Next},
    testing::{FATES, LoseOne, Stage, member},
    variable::{Published, VariableWatch, publish},
};

const SOON: Duration = Duration::from_secs(10);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens in time")
}

fn dynamic(store: &Arc<MemoryStore>) -> Arc<dyn Store> {
    Arc::clone(store) as Arc<dyn Store>
}

fn name(change: &Change) -> (&str, bool) {
    match change {
        Change::Joined(member) => (&member.node, true),
        Change::Named(name) => (name, true),
        Change::Left(name) => (name, false),
    }
}

#[tokio::test]
async fn member_watch_reports_present_joining_and_leaving_nodes() {
    let stage = Stage::new().await;
    let a = stage.member("a").await;
    let mut members = MemberWatch::open(dynamic(&stage.store), &stage.cluster).await.unwrap();
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("a", true));
    let b = stage.member("b").await;
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("b", true));
    stage.tree.expire(a.id());
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("a", false));
    drop(b);
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("b", false));
}

#[tokio::test]
async fn unreadable_member_is_skipped() {
    let stage = Stage::new().await;
    for (node, content) in [("x", &b"garbage"[..]), ("y", br#"{"format":99}"#)] {
        stage.store.create(&stage.cluster.member(node), content, CreateMode::Ephemeral).await.unwrap();
    }
    let _a = stage.member("a").await;
    let mut members = MemberWatch::open(dynamic(&stage.store), &stage.cluster).await.unwrap();
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("a", true));
}

#[tokio::test]
async fn large_membership_reads_some_records_and_others_on_request() {
    let stage = Stage::new().await;
    let names: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
    let mut kept = Vec::new();
    for name in &names {
        kept.push(stage.member(name).await);
    }
    let mut read_by = Vec::new();
    for choice in 0..5 {
        let members = MemberWatch::open(dynamic(&stage.store), &stage.cluster).await.unwrap();
        let (mut members, mut read, mut named) = (members.reading_at_most(4, choice), Vec::new(), Vec::new());
        for _ in &names {
            match soon(members.next()).await.unwrap() {
                Change::Joined(member) => read.push(member.node),
                Change::Named(name) => named.push(name),
                Change::Left(name) => panic!("{name} has not left"),
            }
        }
        assert_eq!((read.len(), named.len()), (4, 16));
        let wanted = named.pop().unwrap();
        members.want("nobody");
        members.want(&read[0]);
        members.want(&wanted);
        assert_eq!(soon(members.next()).await, Ok(Change::Joined(member(&wanted))));
        read_by.push(read);
    }
    read_by.sort();
    read_by.dedup();
    assert!(read_by.len() > 1, "not all read the same: {read_by:?}");
}

#[tokio::test]
async fn named_member_that_is_unreadable_is_reported_as_left() {
    let stage = Stage::new().await;
    let path = stage.cluster.member("x");
    stage.store.create(&path, b"garbage", CreateMode::Ephemeral).await.unwrap();
    let members = MemberWatch::open(dynamic(&stage.store), &stage.cluster).await.unwrap();
    let mut members = members.reading_at_most(0, 0);
    assert_eq!(soon(members.next()).await, Ok(Change::Named("x".to_owned())));
    members.want("x");
    assert_eq!(soon(members.next()).await, Ok(Change::Left("x".to_owned())));
    // A member that leaves while its record is requested is reported as left once.
    let y = stage.member("y").await;
    assert_eq!(soon(members.next()).await, Ok(Change::Named("y".to_owned())));
    members.want("y");
    stage.tree.expire(y.id());
    assert_eq!(soon(members.next()).await, Ok(Change::Left("y".to_owned())));
    let _z = stage.member("z").await;
    assert_eq!(soon(members.next()).await, Ok(Change::Named("z".to_owned())));
}

#[tokio::test]
async fn changes_during_disconnection_are_reported_afterwards() {
    let stage = Stage::new().await;
    let watcher = stage.tree.connect();
    let a = stage.member("a").await;
    let mut members = MemberWatch::open(dynamic(&watcher), &stage.cluster).await.unwrap();
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("a", true));
    stage.tree.set_connected(watcher.id(), false);
    assert_eq!(watcher.get("/").await, Err(Error::ConnectionLost));
    stage.tree.expire(a.id());
    let _b = stage.member("b").await;
    stage.tree.set_connected(watcher.id(), true);
    let mut told = Vec::new();
    while told.len() < 2 {
        match soon(members.next()).await {
            Ok(change) => told.push((name(&change).0.to_owned(), name(&change).1)),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    told.sort();
    assert_eq!(told, [("a".to_owned(), false), ("b".to_owned(), true)]);
}

#[tokio::test]
async fn member_watch_with_lost_answers_or_dropped_futures_misses_no_change() {
    for fate in [Fate::LostBefore, Fate::LostAfter] {
        for countdown in 0..5 {
            for patience_ms in [None, Some(0)] {
                let stage = Stage::new().await;
                let watcher = stage.tree.connect();
                let mut members = MemberWatch::open(dynamic(&watcher), &stage.cluster).await.unwrap();
                let mut kept = Vec::new();
                for node in ["a", "b", "c"] {
                    stage.tree.set_connected(watcher.id(), false);
                    if let Some(ms) = patience_ms {
                        let _ = tokio::time::timeout(Duration::from_millis(ms), members.next()).await;
                    }
                    stage.tree.set_connected(watcher.id(), true);
                    stage.tree.set_faults(LoseOne { session: watcher.id(), countdown, fate });
                    if let Some(ms) = patience_ms {
                        let _ = tokio::time::timeout(Duration::from_millis(ms), members.next()).await;
                    }
                    kept.push(stage.member(node).await);
                    let change = loop {
                        match soon(members.next()).await {
                            Ok(change) => break change,
                            Err(error) => assert!(error.is_transient(), "{error}"),
                        }
                    };
                    assert_eq!(name(&change), (node, true), "request {countdown}, {fate:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn member_watch_that_overflowed_is_set_again() {
    let stage = Stage::new().await;
    let mut members = MemberWatch::open(dynamic(&stage.store), &stage.cluster).await.unwrap();
    for _ in 0..crate::EVENTS_MAX {
        drop(stage.member("passing").await);
    }
    let _kept = stage.member("here").await;
    let mut told = soon(members.next()).await.unwrap();
    while name(&told).0 == "passing" {
        told = soon(members.next()).await.unwrap();
    }
    assert_eq!(name(&told), ("here", true));
    let _new = stage.member("new").await;
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("new", true));
}

#[tokio::test]
async fn lost_leader_is_followed_only_by_next_candidate() {
    let stage = Stage::new().await;
    let stores = [(); 3].map(|()| stage.tree.connect());
    let mut candidates = Vec::new();
    for (store, node) in stores.iter().zip(["a", "b", "c"]) {
        candidates.push(Candidate::enter(dynamic(store), &stage.cluster, &stage.job, node).await.unwrap());
    }
    let [mut first, mut second, mut third] = <[Candidate; 3]>::try_from(candidates).unwrap();
    let fence = soon(first.elected()).await.unwrap();
    assert!(stores[0].multi(vec![fence.check()]).await.is_ok());
    let waiting = tokio::spawn(async move { second.elected().await });
    stage.tree.expire(stores[0].id());
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(stores[1].multi(vec![next.check()]).await.is_ok());
    assert!(stores[1].multi(vec![fence.check()]).await.is_err(), "the first fence holds no more");
    assert!(
        tokio::time::timeout(Duration::from_millis(20), third.elected()).await.is_err(),
        "there is a leader"
    );
}

#[tokio::test]
async fn candidate_with_any_answer_lost_enters_once() {
    for fate in FATES {
        for countdown in 1..5 {
            let stage = Stage::new().await;
            let store = stage.tree.connect();
            stage.tree.set_faults(LoseOne { session: store.id(), countdown, fate });
            let mut candidate = loop {
                match Candidate::enter(dynamic(&store), &stage.cluster, &stage.job, "a").await {
                    Ok(candidate) => break candidate,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            };
            assert_eq!(stage.names(&stage.cluster.election()).len(), 1, "request {countdown}, {fate:?}");
            while candidate.elected().await.is_err() {}
        }
    }
}

#[tokio::test]
async fn candidate_missing_in_stale_list_stays() {
    let stage = Stage::new().await;
    let (first, second) = (stage.tree.connect(), stage.tree.connect());
    let mut leader = Candidate::enter(dynamic(&first), &stage.cluster, &stage.job, "a").await.unwrap();
    soon(leader.elected()).await.unwrap();
    stage.tree.set_faults(LoseOne { session: second.id(), countdown: 3, fate: Fate::LostBehind });
    let mut next = loop {
        match Candidate::enter(dynamic(&second), &stage.cluster, &stage.job, "b").await {
            Ok(candidate) => break candidate,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    stage.tree.fall_behind(second.id());
    let waiting = tokio::spawn(async move { next.elected().await });
    leader.withdraw().await.unwrap();
    second.sync("/").await.unwrap();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn clean_leave_on_stale_server_is_not_a_loss() {
    let stage = Stage::new().await;
    let (a, b, attempt) = (stage.member("a").await, stage.tree.connect(), stage.attempt(1));
    // The next server may not know the changes that this session learned from its watch.
    stage.tree.fall_behind(b.id());
    let leave = Transaction { node: "a".into(), txn: "a-0".into(), leave: true, ..Transaction::default() };
    accounting::commit(&*a, &stage.cluster, &attempt, &leave).await.unwrap();
    assert_eq!(accounting::left_cleanly(&*b, &attempt, "a").await, Ok(true));
}

#[tokio::test]
async fn member_unknown_to_stale_server_has_not_left() {
    let stage = Stage::new().await;
    let watcher = stage.tree.connect();
    let mut members = MemberWatch::open(dynamic(&watcher), &stage.cluster).await.unwrap();
    let next = stage.tree.connect();
    stage.tree.fall_behind(next.id());
    let _a = stage.member("a").await;
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("a", true));
    // The next server does not know the changes that this session's watch reported.
    stage.tree.set_connected(watcher.id(), false);
    stage.tree.join_server_of(watcher.id(), next.id());
    stage.tree.set_connected(watcher.id(), true);
    let _b = stage.member("b").await;
    assert_eq!(name(&soon(members.next()).await.unwrap()), ("b", true), "and a is still there");
}

#[tokio::test]
async fn withdrawal_with_any_answer_lost_lets_next_candidate_lead() {
    for fate in FATES {
        for countdown in 0..4 {
            let stage = Stage::new().await;
            let (first, second) = (stage.tree.connect(), stage.tree.connect());
            let mut leader =
                Candidate::enter(dynamic(&first), &stage.cluster, &stage.job, "a").await.unwrap();
            let mut next = Candidate::enter(dynamic(&second), &stage.cluster, &stage.job, "b").await.unwrap();
            let fence = soon(leader.elected()).await.unwrap();
            stage.tree.set_faults(LoseOne { session: first.id(), countdown, fate });
            while let Err(error) = leader.withdraw().await {
                assert!(error.is_transient(), "{error}");
            }
            assert_eq!(leader.withdraw().await, Ok(()), "however often it is called");
            soon(next.elected()).await.unwrap();
            assert!(first.multi(vec![fence.check()]).await.is_err(), "its fence no longer holds");
            assert!(first.exists("/").await.is_ok(), "and its session continues");
        }
    }
}

#[tokio::test]
async fn each_job_has_its_own_leader() {
    let stage = Stage::new().await;
    let (first, second) = (stage.tree.connect(), stage.tree.connect());
    let jobs = ["j-0000000001", "j-0000000002"];
    for (store, node) in [(&first, "a"), (&second, "b")] {
        for job in jobs {
            let mut candidate = Candidate::enter(dynamic(store), &stage.cluster, job, node).await.unwrap();
            if node == "a" {
                soon(candidate.elected()).await.unwrap();
            }
        }
    }
    let led = |job: &str, node: &str| (job.to_owned(), node.to_owned());
    let both = leaders(&*first, &stage.cluster).await.unwrap();
    assert_eq!(both, [led(jobs[0], "a"), led(jobs[1], "a")]);
    // It no longer leads one job, and continues to lead the other.
    let own = Candidate::enter(dynamic(&first), &stage.cluster, jobs[0], "a").await.unwrap();
    own.withdraw().await.unwrap();
    let now = leaders(&*first, &stage.cluster).await.unwrap();
    assert_eq!(now, [led(jobs[1], "a"), led(jobs[0], "b")]);
}

fn new_job<'a>(program: &'a str, version: &'a str) -> NewJob<'a> {
    NewJob {
        program,
        program_version: version,
        kind: "",
        task_type: "",
        name: "a job",
        shared: &[],
        shared_name: "",
        shared_from: "",
        brought: None,
        root_id: "n0000000000000000-0",
        root: b"",
        variables: &[],
        attempts_max: 1,
        crashes_max: 3,
        require: Labels::NONE,
        after: &[],
        stays_open: false,
        share: job::Share::default(),
        submitter: "me",
        now_ms: 0,
    }
}

/// Returns the next job of a node.
async fn next_job(queue: &mut JobQueue) -> String {
    match soon(queue.next(&BTreeSet::new(), &BTreeSet::new())).await.unwrap() {
        Next::Job(job, _) => job,
        Next::Blocked(..) => panic!("no job waits for another"),
    }
}

#[tokio::test]
async fn queue_returns_jobs_in_order_of_submission() {
    let stage = Stage::new().await;
    let (store, cluster) = (dynamic(&stage.store), &stage.cluster);
    let mut queue = JobQueue::new(Arc::clone(&store), cluster.clone(), member("a"));
    assert_eq!(next_job(&mut queue).await, stage.job);
    for (program, version) in [("other", "1"), ("test", "2")] {
        job::submit(&*store, cluster, &new_job(program, version)).await.unwrap();
    }
    let garbage = format!("{}/j-9999999999", cluster.jobs());
    store.create(&garbage, b"garbage", CreateMode::Persistent).await.unwrap();
    // Znodes that look like a job but have no number in their names, before and after the others.
    let (record, _) = store.get(&cluster.job(&stage.job).record()).await.unwrap();
    for name in ["a-copy", "j-000000001", "j-00000000001", "j-x", "x"] {
        store.create(&cluster.job(name).record(), &record, CreateMode::Persistent).await.unwrap();
    }
    let second = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    let third = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    assert_eq!(next_job(&mut queue).await, stage.job, "as long as it is not over");
    for (over, next) in [(&stage.job, &second), (&second, &third)] {
        job::cancel(&*store, cluster, over, "", 0).await.unwrap();
        assert_eq!(next_job(&mut queue).await, *next);
    }
    job::cancel(&*store, cluster, &third, "", 0).await.unwrap();
    let waiting = tokio::spawn(async move { queue.next(&BTreeSet::new(), &BTreeSet::new()).await });
    let fourth = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    assert!(matches!(soon(waiting).await.unwrap().unwrap(), Next::Job(job, _) if job == fourth));
}

#[tokio::test]
async fn queue_holds_job_until_earlier_jobs_are_done() {
    let stage = Stage::new().await;
    let (store, cluster) = (dynamic(&stage.store), &stage.cluster);
    let after = [stage.job.clone(), "j-0000009999".to_owned()];
    let waits = NewJob { after: &after, ..new_job("test", "1") };
    let second = job::submit(&*store, cluster, &waits).await.unwrap();
    let mut queue = JobQueue::new(Arc::clone(&store), cluster.clone(), member("a"));
    assert_eq!(next_job(&mut queue).await, stage.job);
    // Suspending it does not end it.
    assert!(job::suspend(&*store, cluster, &stage.job, 0).await.unwrap());
    let third = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    assert_eq!(next_job(&mut queue).await, third);
    job::cancel(&*store, cluster, &third, "", 0).await.unwrap();
    let path = cluster.job(&stage.job).record();
    let (mut record, _) = job::read(&*store, cluster, &stage.job).await.unwrap();
    // It cannot be read for a while; the waiting job is notified when it is done.
    store.set(&path, b"garbage", None).await.unwrap();
    let fourth = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    assert_eq!(next_job(&mut queue).await, fourth);
    job::cancel(&*store, cluster, &fourth, "", 0).await.unwrap();
    let waiting = tokio::spawn(async move { queue.next(&BTreeSet::new(), &BTreeSet::new()).await });
    record.state = JobState::Done;
    store.set(&path, &crate::record::write(&record), None).await.unwrap();
    assert!(matches!(soon(waiting).await.unwrap().unwrap(), Next::Job(job, _) if job == second));
    for (state, says) in [(JobState::Failed, "has failed"), (JobState::Cancelled, "was cancelled")] {
        record.state = state;
        store.set(&path, &crate::record::write(&record), None).await.unwrap();
        let mut queue = JobQueue::new(Arc::clone(&store), cluster.clone(), member("a"));
        let Next::Blocked(job, reason) = soon(queue.next(&BTreeSet::new(), &BTreeSet::new())).await.unwrap()
        else {
            panic!("it continues")
        };
        assert!(job == second && reason.contains(&stage.job) && reason.contains(says), "{reason}");
    }
}

#[tokio::test]
async fn queue_returns_jobs_to_nodes_with_required_labels() {
    let stage = Stage::new().await;
    let (store, cluster) = (dynamic(&stage.store), &stage.cluster);
    job::cancel(&*store, cluster, &stage.job, "", 0).await.unwrap();
    let require: Labels = "gpu=yes,zone=a".parse().unwrap();
    let picky = NewJob { require: &require, ..new_job("test", "1") };
    let picky = job::submit(&*store, cluster, &picky).await.unwrap();
    let plain = job::submit(&*store, cluster, &new_job("test", "1")).await.unwrap();
    for (labels, first) in [("gpu=yes,more=1,zone=a", &picky), ("gpu=yes,zone=b", &plain), ("zone=a", &plain)]
    {
        let node = Member { labels: labels.parse().unwrap(), ..member("a") };
        let mut queue = JobQueue::new(Arc::clone(&store), cluster.clone(), node);
        assert_eq!(next_job(&mut queue).await, *first, "{labels}");
    }
    let (record, _) = job::read(&*store, cluster, &picky).await.unwrap();
    let idle = Member { workers: 0, labels: require.clone(), ..member("a") };
    assert_eq!(idle.takes(&record), Err(Lacks::Workers));
    let other = Member { program_version: "2".to_owned(), ..idle };
    assert_eq!(other.takes(&record), Err(Lacks::Release));
}

fn larger(new: &[u8], old: &[u8]) -> bool {
    new > old
}

#[tokio::test]
async fn best_value_with_any_answer_lost_stays() {
    for fate in FATES {
        for countdown in 1..4 {
            let stage = Stage::new().await;
            let (store, path) = (stage.tree.connect(), stage.cluster.job(&stage.job).var("x"));
            let other = stage.tree.connect();
            assert_eq!(publish(&*other, &path, b"3", &larger).await, Ok(Published::Written));
            stage.tree.set_faults(LoseOne { session: store.id(), countdown, fate });
            let written = loop {
                match publish(&*store, &path, b"5", &larger).await {
                    Ok(published) => break published,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            };
            assert_eq!(written, Published::Written);
            assert_eq!(publish(&*other, &path, b"4", &larger).await, Ok(Published::Beaten(b"5".to_vec())));
            assert_eq!(other.get(&path).await.unwrap().0, b"5");
        }
    }
}

#[tokio::test]
async fn variable_watch_reports_first_value_and_changes() {
    let stage = Stage::new().await;
    let path = stage.cluster.job(&stage.job).var("x");
    let mut watch = VariableWatch::open(dynamic(&stage.store), &path).await.unwrap();
    let other = stage.tree.connect();
    let first = tokio::spawn(async move {
        let value = watch.next().await;
        (watch, value)
    });
    let _ = publish(&*other, &path, b"1", &larger).await.unwrap();
    let (mut watch, value) = soon(first).await.unwrap();
    assert_eq!(value.unwrap(), b"1");
    let _ = publish(&*other, &path, b"2", &larger).await.unwrap();
    assert_eq!(soon(watch.next()).await.unwrap(), b"2");
}

#[tokio::test]
async fn letters_arrive_in_order_and_full_mailbox_rejects_more() {
    let stage = Stage::new().await;
    let (a, b, attempt) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
    let number = std::cell::Cell::new(0);
    let send = async |from: &str, text: &[u8]| {
        number.set(number.get() + 1);
        post(&*a, &stage.cluster, &attempt, from, "b", number.get(), text).await.unwrap()
    };
    let to_nobody = post(&*a, &stage.cluster, &attempt, "a", "nobody", 0, b"hello").await;
    assert_eq!(to_nobody, Ok(Posted::NotTaken));
    let mut mailbox = Mailbox::new(dynamic(&b), &attempt, "b");
    let first = tokio::spawn(async move {
        let first = mailbox.next().await;
        (mailbox, first)
    });
    tokio::task::yield_now().await;
    assert_eq!(send("a", b"zero").await, Posted::Posted);
    let (mut mailbox, zero) = soon(first).await.unwrap();
    assert_eq!(zero.unwrap(), b"zero");
    assert_eq!(send("a", b"one").await, Posted::Posted);
    assert_eq!(send("stranger", b"believe me").await, Posted::NotTaken);
    assert_eq!(send("a", b"two").await, Posted::Posted);
    assert_eq!(soon(mailbox.next()).await.unwrap(), b"one");
    assert_eq!(soon(mailbox.next()).await.unwrap(), b"two");
    let large = vec![7; 3 << 20];
    assert_eq!(send("a", &large).await, Posted::Posted);
    assert_eq!(send("stranger", &large).await, Posted::NotTaken);
    assert_eq!(soon(mailbox.next()).await.unwrap(), large);
    assert_eq!(stage.names(&attempt.large()), Vec::<String>::new(), "its chunks are gone");
    let waiting = tokio::spawn(async move { mailbox.next().await });
    assert_eq!(send("a", b"three").await, Posted::Posted);
    assert_eq!(soon(waiting).await.unwrap().unwrap(), b"three");
    for _ in 0..MAILBOX_LETTERS_MAX {
        assert_eq!(send("a", b"again").await, Posted::Posted);
    }
    assert_eq!(send("a", b"again").await, Posted::NotTaken);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any values are published, by any session in any order, and any answers are lost: the best value is in
    /// the znode at the end, and the value never got worse.
    #[test]
    fn concurrent_publishes_leave_the_best_value(
        values in prop::collection::vec((0_usize..3, any::<u8>(), 0_usize..4, any::<bool>()), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new().await;
            let path = stage.cluster.job(&stage.job).var("least");
            let stores = [stage.tree.connect(), stage.tree.connect(), stage.tree.connect()];
            let least = |new: &[u8], old: &[u8]| new < old;
            let mut best = u8::MAX;
            for (who, value, countdown, done) in values {
                let fate = if done { Fate::LostAfter } else { Fate::LostBefore };
                stage.tree.set_faults(LoseOne { session: stores[who].id(), countdown, fate });
                let published = loop {
                    match publish(&*stores[who], &path, &[value], &least).await {
                        Err(error) if error.is_transient() => {}
                        outcome => break outcome.unwrap(),
                    }
                };
                let before = best;
                best = best.min(value);
                let there = stage.store.get(&path).await.unwrap().0;
                assert_eq!(there, [best], "after {value}, which met {before}");
                if let Published::Beaten(better) = published {
                    assert_eq!(better, [best]);
                }
            }
        });
    }
}
