//! Tests of fetching versions, and of the end of a fetch.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use taskwork::{
    NodeId,
    companion::{FetchError, ObjectName},
};
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use super::{
    Answer, Executor, News, Report, Store,
    fetches::{Fetches, Missing, Next},
};
use crate::{
    core::{Assignment, Manner, Mark, Work},
    ids::{Argument, CallId, VersionId},
    task::NOT_RUN,
    value::Value,
};

const VERSION: VersionId = VersionId { call: 3, slot: 1 };

fn peer(number: u64) -> NodeId {
    NodeId(number)
}

/// Returns the name of an object of one byte.
fn object(number: u8) -> ObjectName {
    ObjectName::new([number; 32], 1)
}

/// Replies that a node offers the version as an object. Returns the receiver of the end of the transfer, if one starts.
fn offer(fetches: &mut Fetches, from: u64, object: ObjectName, now_ms: u64) -> Option<Receiver<()>> {
    match fetches.on_answer(peer(from), VERSION, Answer::Object(object), now_ms) {
        Next::Fetch(name, stopped) => {
            assert_eq!(name, object);
            Some(stopped)
        }
        Next::Nothing => None,
        Next::Arrived(_) => panic!("it has not arrived"),
    }
}

/// Fails the transfer of an object.
fn fail(fetches: &mut Fetches, object: ObjectName, error: FetchError) {
    assert!(matches!(fetches.on_fetched(VERSION, object, Err(error)), Next::Nothing));
}

/// Returns the numbers of the nodes that are asked.
fn asked(fetches: &mut Fetches, now_ms: u64) -> Vec<u64> {
    let (asks, given_up) = fetches.asks(now_ms);
    assert!(given_up.is_empty() && asks.iter().all(|(_, version)| *version == VERSION));
    asks.into_iter().map(|(peer, _)| peer.0).collect()
}

fn is_running(stopped: &mut Receiver<()>) -> bool {
    stopped.try_recv() == Err(TryRecvError::Empty)
}

fn fetches(from: &[u64]) -> Fetches {
    let mut fetches = Fetches::default();
    let from = from.iter().copied().map(peer).collect();
    fetches.add_alone(Missing { version: VERSION, mark: Mark::default(), from, content: None });
    fetches
}

#[test]
fn transfer_continues_at_next_node_with_the_same_object() {
    let mut fetches = fetches(&[1, 2]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    let mut stopped = offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    assert_eq!(fetches.owners(VERSION), [peer(1), peer(2)]);
    assert!(asked(&mut fetches, 10_000).is_empty(), "it is being fetched");
    fetches.on_lost(peer(1));
    assert_eq!(fetches.owners(VERSION), [peer(2)]);
    assert_eq!(asked(&mut fetches, 10_001), [2], "it may not offer the object yet");
    assert!(offer(&mut fetches, 2, object(7), 10_001).is_none(), "it is being fetched");
    assert!(asked(&mut fetches, 20_000).is_empty() && is_running(&mut stopped));
    let fetched = fetches.on_fetched(VERSION, object(7), Ok(Value::from_encoded(vec![5])));
    let Next::Arrived(arrived) = fetched else { panic!("it is complete") };
    assert_eq!((arrived.bytes, arrived.awaited.is_alone), (1, true));
    assert_eq!(arrived.value.own::<u8>().expect("it is one"), 5);
}

#[test]
fn transfer_restarts_when_next_node_has_another_object() {
    let mut fetches = fetches(&[1, 2]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    let mut first = offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    fetches.on_lost(peer(1));
    assert_eq!(asked(&mut fetches, 1), [2]);
    let mut second = offer(&mut fetches, 2, object(8), 1).expect("another transfer starts");
    assert!(!is_running(&mut first) && is_running(&mut second));
    let late = fetches.on_fetched(VERSION, object(7), Ok(Value::from_encoded(vec![5])));
    assert!(matches!(late, Next::Nothing), "it was stopped");
    assert!(is_running(&mut second));
}

#[test]
fn failed_transfer_restarts_at_next_node_until_none_is_left() {
    let mut fetches = fetches(&[1, 2]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    fail(&mut fetches, object(7), FetchError::Unknown);
    assert_eq!(asked(&mut fetches, 1), [2]);
    offer(&mut fetches, 2, object(7), 1).expect("another transfer starts");
    fail(&mut fetches, object(7), FetchError::Garbled);
    let (asks, given_up) = fetches.asks(2);
    assert!(asks.is_empty());
    assert!(matches!(&given_up[..], [given_up] if given_up.tried == [peer(1), peer(2)]));
    assert!(fetches.owners(VERSION).is_empty());
}

#[test]
fn transfer_failed_by_a_lost_node_does_not_exclude_the_next_one() {
    let mut fetches = fetches(&[1, 2]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    fetches.on_lost(peer(1));
    assert_eq!(asked(&mut fetches, 1), [2]);
    fail(&mut fetches, object(7), FetchError::Unknown);
    assert_eq!(fetches.owners(VERSION), [peer(2)], "it has not replied yet");
    offer(&mut fetches, 2, object(7), 2).expect("another transfer starts");
}

#[test]
fn busy_node_is_asked_again() {
    let mut fetches = fetches(&[1]);
    for round in 0..20 {
        assert_eq!(asked(&mut fetches, round * 500), [1]);
        offer(&mut fetches, 1, object(7), round * 500).expect("a transfer starts");
        fail(&mut fetches, object(7), FetchError::Busy);
    }
}

#[test]
fn fetch_fails_with_the_local_error() {
    let mut fetches = fetches(&[1, 2]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    fail(&mut fetches, object(7), FetchError::Sink(io::Error::other("the disk is full")));
    let (asks, given_up) = fetches.asks(1);
    let [given_up] = &given_up[..] else { panic!("the fetch has failed") };
    assert!(asks.is_empty());
    assert_eq!(given_up.tried, [peer(1), peer(2)]);
    assert_eq!(given_up.reason.as_deref(), Some("the disk is full"));
}

#[test]
fn transfer_of_version_that_came_otherwise_is_stopped() {
    let mut fetches = fetches(&[1]);
    assert_eq!(asked(&mut fetches, 0), [1]);
    let mut stopped = offer(&mut fetches, 1, object(7), 0).expect("a transfer starts");
    assert!(fetches.on_arrived(VERSION).is_some());
    assert!(!is_running(&mut stopped));
    let late = fetches.on_fetched(VERSION, object(7), Ok(Value::from_encoded(vec![5])));
    assert!(matches!(late, Next::Nothing));
}

#[test]
fn preparing_node_is_waited_for_and_silent_node_is_not() {
    let mut fetches = fetches(&[1]);
    for round in 0..100 {
        let (asks, given_up) = fetches.asks(round * 500);
        assert_eq!((asks.len(), given_up.len()), (1, 0));
        let next = fetches.on_answer(peer(1), VERSION, Answer::Prepares, round * 500);
        assert!(matches!(next, Next::Nothing));
    }
    // A node that does not reply is not waited for.
    let last = (100..200).find(|round| !fetches.asks(round * 500).1.is_empty());
    assert!(last.is_some());
}

/// Records the reports of a node.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn tells(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Report for Told {
    fn tell(&self, news: News) {
        match news {
            News::Ended { call, .. } => self.tells(format!("call {call} has ended")),
            News::Unable { call, .. } => self.tells(format!("call {call} cannot run")),
            News::Copied(version) => self.tells(format!("version {} is here", version.call)),
            News::NotCopied { version, .. } => {
                self.tells(format!("version {} is not available", version.call));
            }
            _ => {}
        }
    }
}

/// Creates a node with peers and assigns it a call that reads a version, or changes it in place. The version is
/// requested from node 1.
fn waiting(in_place: bool) -> (Arc<Executor>, Arc<Told>, u64) {
    let executor =
        Arc::new(Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks));
    let told = Arc::new(Told::default());
    let report: Weak<Told> = Arc::downgrade(&told);
    let epoch = executor.begin(report).epoch;
    executor.assign(epoch, reader(10, in_place), vec![missing(None)]);
    assert_eq!(executor.asks(0), [(peer(1), VERSION)]);
    (executor, told, epoch)
}

fn missing(content: Option<Vec<u8>>) -> Missing {
    Missing { version: VERSION, mark: Mark::default(), from: vec![peer(1)], content }
}

fn reader(call: CallId, in_place: bool) -> Assignment {
    let argument = if in_place { Argument::Update(VERSION) } else { Argument::Read(VERSION) };
    Assignment {
        call,
        work: Work::Task(&NOT_RUN),
        mark: Mark::default(),
        tries: 0,
        arguments: vec![argument].into(),
        in_place: if in_place { vec![true] } else { Vec::new() },
        manner: Manner::default(),
        elsewhere: Vec::new(),
    }
}

/// Returns the calls that wait for a worker.
fn ready(executor: &Executor) -> Vec<CallId> {
    executor.queue.take_back(executor).into_iter().map(|assignment| assignment.call).collect()
}

#[test]
fn version_in_assignment_is_kept_when_the_node_asked_for_it_is_lost() {
    for is_for_a_call in [false, true] {
        let (executor, told, epoch) = waiting(false);
        if is_for_a_call {
            executor.assign(epoch, reader(11, false), vec![missing(Some(vec![5]))]);
            assert_eq!(ready(&executor), [10, 11], "both have their input");
        } else {
            executor.fetch(missing(Some(vec![5])));
            assert_eq!(ready(&executor), [10]);
        }
        assert_eq!(told.told(), ["version 3 is here"]);
        executor.on_lost(peer(1));
        assert!(executor.asks(1).is_empty() && told.told().is_empty());
    }
}

#[test]
fn version_changed_in_place_is_not_reported_as_copy() {
    let (executor, told, epoch) = waiting(true);
    executor.fetch(missing(Some(vec![5])));
    assert_eq!(ready(&executor), [10]);
    assert_eq!(told.told(), ["version 3 is not available"], "it was requested by itself");

    executor.take_back();
    drop(executor.forget(VERSION));
    executor.assign(epoch, reader(11, true), vec![missing(Some(vec![5]))]);
    assert_eq!(ready(&executor), [11]);
    assert!(told.told().is_empty());
}

#[test]
fn output_of_local_call_does_not_complete_fetch() {
    let (executor, told, epoch) = waiting(false);
    // This may not be the valid execution.
    let _begins = executor.start_call(epoch, VERSION.call, Mark::default());
    assert!(executor.keep_own(VERSION, Value::from_encoded(vec![5]), Mark::default(), 1));
    assert!(executor.asks(1).is_empty() && ready(&executor).is_empty());
    executor.on_answer(peer(1), VERSION, Answer::Here(vec![6]), 2);
    assert_eq!(ready(&executor), [10]);
    assert_eq!((executor.small(VERSION), told.told()), (Some(vec![6]), vec!["version 3 is here".to_owned()]));
}
