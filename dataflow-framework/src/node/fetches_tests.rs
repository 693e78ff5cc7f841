//! Tests of fetching versions, and of the end of a fetch.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use taskwork::NodeId;

use super::{
    Executor, News, Report, Store,
    fetches::{Ask, Fetches, Missing, PIECE_BYTES, PIECE_BYTES_MAX, Piece, pieces_of, size_of_piece},
};
use crate::{
    core::{Assignment, Manner, Mark, Work},
    encoding::encode,
    ids::{Argument, CallId, VersionId},
    spilled::{Digest, digest},
    task::NOT_RUN,
    value::Value,
};

const VERSION: VersionId = VersionId { call: 3, slot: 1 };

fn peer(number: u64) -> NodeId {
    NodeId(number)
}

/// Returns a version of several pieces: the value, its content, and its hash.
fn large() -> (Value, Vec<u64>, Digest) {
    let list: Vec<u64> = (0..300_000).map(|number| number << 40).collect();
    let encoded = encode(&list).expect("it can be");
    let digest = digest([Ok(encoded.clone())]).expect("it can be read");
    (Value::from_encoded(encoded), list, digest)
}

fn fetches(from: &[u64]) -> Fetches {
    let mut fetches = Fetches::default();
    let from = from.iter().copied().map(peer).collect();
    fetches.add_alone(Missing { version: VERSION, mark: Mark::default(), from, content: None });
    fetches
}

#[test]
fn fetch_after_loss_of_node_continues_at_next_node() {
    let (value, list, digest) = large();
    let mut fetches = fetches(&[1, 2]);
    let answer = |fetches: &mut Fetches, asks: Vec<(NodeId, Ask)>, now_ms| {
        let mut pieces =
            asks.into_iter().map(|(_, ask)| Piece::of(ask, &value, Some(digest)).expect("it is there"));
        pieces.find_map(|piece| fetches.on_piece(piece, now_ms))
    };
    let (first, _) = fetches.asks(0);
    assert_eq!(first.len(), 1);
    assert!(answer(&mut fetches, first, 0).is_none());
    let (some, _) = fetches.asks(0);
    let asked = some.len();
    assert!(answer(&mut fetches, some, 0).is_none());
    let (lost, _) = fetches.asks(0);
    assert!(!lost.is_empty());
    fetches.on_lost(peer(1));
    // The first lost piece is requested only from the next node, to find out whether it has the same version.
    let (next, _) = fetches.asks(1);
    assert_eq!(
        next.iter().map(|(peer, ask)| (*peer, ask.piece)).collect::<Vec<_>>(),
        [(peer(2), asked as u64 + 1)]
    );
    assert!(answer(&mut fetches, next, 1).is_none());
    let arrived = (2..).find_map(|now| {
        let (asks, given_up) = fetches.asks(now);
        assert!(!asks.is_empty() && given_up.is_empty());
        answer(&mut fetches, asks, now)
    });
    let arrived = arrived.expect("all pieces were answered");
    assert!(arrived.value.is_only_spilled());
    assert_eq!(*arrived.value.read::<Vec<u64>>().expect("it is whole"), list);
}

#[test]
fn fetch_restarts_when_next_node_has_another_hash() {
    let (value, list, digest) = large();
    let mut fetches = fetches(&[1, 2]);
    let (first, _) = fetches.asks(0);
    let other = [7; 32];
    assert!(fetches.on_piece(Piece::of(first[0].1, &value, Some(other)).expect("it is there"), 0).is_none());
    fetches.on_lost(peer(1));
    let mut asked = Vec::new();
    let arrived = (1..).find_map(|now| {
        let (asks, _) = fetches.asks(now);
        assert!(!asks.is_empty());
        asked.extend(asks.iter().map(|(_, ask)| ask.piece));
        let mut pieces =
            asks.into_iter().map(|(_, ask)| Piece::of(ask, &value, Some(digest)).expect("it is there"));
        pieces.find_map(|piece| fetches.on_piece(piece, now))
    });
    assert!(asked.contains(&0));
    let arrived = arrived.expect("all pieces were answered");
    assert_eq!(*arrived.value.read::<Vec<u64>>().expect("it is whole"), list);
}

#[test]
fn preparing_node_is_waited_for_and_silent_node_is_not() {
    let mut fetches = fetches(&[1]);
    for round in 0..100 {
        let (asks, given_up) = fetches.asks(round * 500);
        assert_eq!((asks.len(), given_up.len()), (1, 0));
        fetches.on_preparing(peer(1), VERSION, round * 500);
    }
    // A node that does not reply is not waited for.
    let last = (100..200).find(|round| !fetches.asks(round * 500).1.is_empty());
    assert!(last.is_some());
}

#[test]
fn version_above_4_gib_has_all_pieces() {
    let total = (5 << 30) + 1;
    assert_eq!(pieces_of(total), 5 * 4_096 + 1);
    assert_eq!(size_of_piece(5 * 4_096 - 1, total), PIECE_BYTES);
    assert_eq!(size_of_piece(5 * 4_096, total), 1);
    assert_eq!(size_of_piece(5 * 4_096 + 1, total), 0);
    let beyond = Piece::of(Ask { version: VERSION, piece: u64::MAX }, &large().0, None).expect("it is there");
    assert!(beyond.bytes.is_empty() && PIECE_BYTES_MAX as u64 == PIECE_BYTES);
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
    assert_eq!(executor.asks(0), [(peer(1), Ask { version: VERSION, piece: 0 })]);
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
    let value = Value::from_encoded(vec![6]);
    let piece = Piece::of(Ask { version: VERSION, piece: 0 }, &value, None).expect("it is there");
    executor.on_piece(piece, 2);
    assert_eq!(ready(&executor), [10]);
    assert_eq!((executor.small(VERSION), told.told()), (Some(vec![6]), vec!["version 3 is here".to_owned()]));
}
