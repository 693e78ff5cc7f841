//! The times of flushes: of awaited ones, in a large cluster, and after a
//! slow flush.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Action, Cut, Event, Message, Node, PoolView, Transaction, TransactionKind, TransactionResult,
    bases::ABSORBED_MAX,
};
use crate::{
    config::Limits,
    envelope::{Blob, Envelope},
    holdings::{Basis, Holdings, Source, Transit, TransitNumber},
    id::{Attempt, NodeId, TaskId},
};

const ATTEMPT: Attempt = Attempt(1);
const THIEF: NodeId = NodeId(2);
const IDLE: PoolView = PoolView::idle(1);
const BUSY: PoolView = PoolView { idle: 0, queued: 4, ..IDLE };

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn envelope(number: u64) -> Envelope {
    let id = TaskId { node: NodeId(1), number };
    Envelope::new(id, Blob::default(), Blob::default())
}

fn transaction(actions: &[Action]) -> Option<Transaction> {
    actions.iter().find_map(|action| match action {
        Action::Transact { transaction, .. } => Some(transaction.clone()),
        _ => None,
    })
}

fn cuts(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Cut { .. }))
}

/// Passes an event to a node, and the look that follows if the pool was touched.
fn handle(node: &mut Node, ms: u64, event: Event) -> Vec<Action> {
    let mut actions = node.handle(at(ms), BUSY, event);
    if actions.iter().any(Action::touches_pool) {
        actions.extend(node.handle(at(ms), BUSY, Event::Look));
    }
    actions
}

/// Returns a node that has had a task since 100 ms, among other members.
fn at_work(members: u64, limits: Limits) -> Node {
    let mut node = Node::new(NodeId(1), limits, 1);
    for member in 0..members {
        node.handle(at(0), IDLE, Event::Joined { node: NodeId(2 + member) });
    }
    node.handle(at(0), PoolView { stopped: true, ..IDLE }, Event::Attempt { attempt: ATTEMPT });
    node.handle(at(0), PoolView { stopped: true, ..IDLE }, Event::Look);
    let parked = Event::Parked { attempt: ATTEMPT, tasks: vec![TaskId::ROOT] };
    let mut actions = node.handle(at(0), IDLE, parked);
    for ms in 0..100 {
        actions.extend(node.handle(at(ms), IDLE, Event::Tick));
    }
    let claim = transaction(&actions).expect("it claims what is parked");
    let claimed = TransactionResult::Claimed(Holdings::of(vec![envelope(0)]));
    node.handle(at(100), IDLE, Event::Transacted { txn: claim.txn, result: claimed });
    node.handle(at(100), BUSY, Event::Look);
    node
}

/// Returns a cut with a completion and no tasks.
fn done() -> Cut {
    let mut cut = Cut::default();
    cut.toggles.complete(TaskId::ROOT, &[]);
    cut
}

/// Advances the time until the node cuts; returns the time, and the flush.
fn next_flush(node: &mut Node, from: u64) -> (u64, Transaction) {
    next_flush_of(node, from, envelope(0))
}

/// Does the same, with a task that the node holds.
fn next_flush_of(node: &mut Node, from: u64, task: Envelope) -> (u64, Transaction) {
    let cut = (from..from + 10_000).find(|&ms| cuts(&node.handle(at(ms), BUSY, Event::Tick)));
    let cut_at = cut.expect("a node with tasks flushes");
    let cut = Cut { tasks: vec![task], ..Cut::default() };
    let flush = transaction(&node.handle(at(cut_at), BUSY, Event::Cut(cut)));
    (cut_at, flush.expect("a cut is followed by its flush"))
}

fn committed(node: &mut Node, ms: u64, flush: &Transaction) {
    let committed = Event::Transacted { txn: flush.txn, result: TransactionResult::Committed };
    node.handle(at(ms), BUSY, committed);
}

/// Gives a task to the thief, which asks for a flush immediately, while a flush with this duration is in progress.
/// Returns the start of the next one, and that flush.
fn pressed(
    node: &mut Node,
    request: u64,
    (begun, flush): (u64, Transaction),
    took_ms: u64,
) -> (u64, Transaction) {
    let ended = begun + took_ms;
    let message = |message| Event::Message { from: THIEF, attempt: ATTEMPT, message };
    let mut actions = handle(node, begun, message(Message::Steal { request }));
    let take = actions.iter().find_map(|action| match action {
        &Action::Take { thief, request, .. } => Some((thief, request)),
        _ => None,
    });
    let (thief, request) = take.expect("it has queued tasks");
    let taken = Event::Taken { thief, request, tasks: vec![envelope(request)], basis: Basis::FIRM };
    actions = handle(node, begun, taken);
    let granted = actions.iter().find_map(|action| match action {
        Action::Send { message: Message::Grant { grant, .. }, .. } => Some(*grant),
        _ => None,
    });
    let grant = granted.expect("the thief waits");
    handle(node, begun, message(Message::Ack { grant }));
    handle(node, begun, message(Message::Pending { grants: vec![grant], urgent: true }));
    committed(node, ended, &flush);
    let (next, flush) = next_flush(node, ended);
    assert!(
        matches!(&flush.kind, TransactionKind::Flush(flush) if flush.give.iter().any(|gift| gift.grant == grant)),
        "the thief waits for it: {flush:?}"
    );
    (next, flush)
}

/// Returns the time between the first flush of a node and the next one, which the thief awaits.
fn pressed_after(members: u64, limits: Limits, took_ms: u64) -> u64 {
    let mut node = at_work(members, limits);
    let first = next_flush(&mut node, 101);
    let begun = first.0;
    pressed(&mut node, 1, first, took_ms).0 - begun
}

#[test]
fn waiting_thief_gets_its_flush_immediately() {
    assert_eq!(pressed_after(1, Limits::default(), 1), 5);
}

#[test]
fn flush_rate_of_a_large_cluster_is_bounded() {
    let gaps = |limits: Limits| {
        let mut node = at_work(50, limits);
        let mut flush = next_flush(&mut node, 101);
        let mut next = |request| {
            let before = flush.0;
            flush = pressed(&mut node, request, flush.clone(), 1);
            flush.0 - before
        };
        (1..=10).map(&mut next).collect::<Vec<u64>>()
    };
    let limits = Limits { ledger_pause_ms: 1, ..Limits::default() };
    assert_eq!(
        gaps(limits),
        [5, 5, 5, 5, 5, 5, 5, 15, 50, 50],
        "each of 50 members on average every 50 × 1 ms"
    );
    let limits = Limits { ledger_pause_ms: 40, ..Limits::default() };
    let awaited_ms = limits.ledger_awaited_ms;
    assert_eq!(gaps(limits.clone())[8..], [awaited_ms, awaited_ms], "a node waits for it");
    let mut node = at_work(50, limits);
    let (first, flush) = next_flush(&mut node, 101);
    committed(&mut node, first + 1, &flush);
    assert_eq!(next_flush(&mut node, first + 1).0 - first, 2_000, "if no node waits, every 50 × 40 ms");
}

/// Returns a node with task 7 on trial, and the start of the trial.
fn with_trial() -> (Node, u64) {
    let mut node = at_work(0, Limits::default());
    let (begun, flush) = next_flush(&mut node, 101);
    committed(&mut node, begun + 1, &flush);
    let parked = Event::Parked { attempt: ATTEMPT, tasks: vec![envelope(7).id] };
    let mut actions = node.handle(at(begun + 1), IDLE, parked);
    let mut now = begun + 1;
    while transaction(&actions).is_none() {
        now += 1;
        assert!(now < begun + 10_000, "it claims what is parked");
        actions = node.handle(at(now), IDLE, Event::Tick);
    }
    let suspicious = Envelope { crashes: Limits::default().crashes_max - 1, ..envelope(7) };
    let result = TransactionResult::Claimed(Holdings::of(vec![suspicious]));
    let txn = transaction(&actions).map(|claim| claim.txn).unwrap();
    node.handle(at(now), BUSY, Event::Transacted { txn, result });
    let (named_at, flush) = next_flush(&mut node, now);
    let TransactionKind::Flush(written) = &flush.kind else { panic!("{flush:?}") };
    assert_eq!(written.held.suspect.as_ref().map(|suspect| suspect.task), Some(envelope(7).id));
    committed(&mut node, named_at + 1, &flush);
    (node, named_at + 1)
}

/// The cut that was started before the task was woken may end its trial.
#[test]
fn task_that_has_waited_does_not_continue_while_a_flush_starts() {
    let (mut node, from) = with_trial();
    let task = envelope(7).id;
    let woken = PoolView { waiting: 1, untried: Some(task), ..BUSY };
    let tries = |actions: &[Action]| actions.contains(&Action::Try { task });
    assert!(
        tries(&node.handle(at(from), woken, Event::Look)),
        "it has waited for a moment, and is still on trial"
    );
    let cut_at = (from..from + 10_000).find(|&ms| cuts(&node.handle(at(ms), BUSY, Event::Tick)));
    let cut_at = cut_at.expect("a node with tasks flushes");
    assert!(!tries(&node.handle(at(cut_at), woken, Event::Look)), "the cut may say that it waits");
    let suspicious = Envelope { crashes: Limits::default().crashes_max - 1, ..envelope(7) };
    let waits = Cut { tasks: vec![suspicious], waiting_outside: BTreeSet::from([task]), ..Cut::default() };
    let actions = node.handle(at(cut_at), woken, Event::Cut(waits));
    assert!(transaction(&actions).is_some() && !tries(&actions), "{actions:?}");
    assert!(!tries(&node.handle(at(cut_at + 1), woken, Event::Look)), "no task would be blamed");
}

#[test]
fn slow_flush_is_followed_by_an_equal_pause() {
    assert_eq!(pressed_after(1, Limits::default(), 300), 600);
    let interval_ms = Limits::default().ledger_interval_ms;
    assert_eq!(pressed_after(1, Limits::default(), 4 * interval_ms), 5 * interval_ms, "but not longer");
}

#[test]
fn node_with_large_holdings_flushes_less_often() {
    let flushes = |bytes: usize| {
        let mut node = at_work(1, Limits::default());
        let task = Envelope { task: vec![0; bytes].into(), ..envelope(0) };
        let (first, flush) = next_flush_of(&mut node, 101, task.clone());
        committed(&mut node, first + 1, &flush);
        next_flush_of(&mut node, first + 1, task).0 - first
    };
    assert_eq!(flushes(8), Limits::default().ledger_interval_ms);
    assert_eq!(flushes(16 << 20), 4_096, "4 MiB a second");
}

#[test]
fn node_that_runs_dry_repeatedly_is_rate_limited_in_a_large_cluster() {
    let limits = Limits { ledger_pause_ms: 2, commit_patience_ms: 0, ..Limits::default() };
    let batch_ids_commit = limits.batch_ids_commit;
    let dry = PoolView { batch_ids: 1, ..IDLE };
    let mut node = at_work(50, limits);
    let mut next = |from: u64| {
        let cut = (from..from + 10_000).find(|&ms| cuts(&node.handle(at(ms), dry, Event::Tick))).unwrap();
        let flush = transaction(&node.handle(at(cut), dry, Event::Cut(done()))).unwrap();
        let committed = Event::Transacted { txn: flush.txn, result: TransactionResult::Committed };
        node.handle(at(cut + 1), dry, committed);
        cut
    };
    // The first flush writes its claim. The second one comes when none of its requests was answered.
    let first = next(101);
    let mut last = next(first + 1);
    let gaps = [(); 10].map(|()| {
        let now = next(last + 1);
        now - std::mem::replace(&mut last, now)
    });
    assert_eq!(gaps[..2], [5, 5], "a few in a row");
    assert_eq!(gaps[8..], [100, 100], "it is still dry");
    let full = PoolView { batch_ids: batch_ids_commit, ..BUSY };
    assert!(cuts(&node.handle(at(last + 2), full, Event::Tick)), "a full batch does not wait");
}

#[test]
fn node_claims_no_more_than_one_flush_can_absorb() {
    let mut node = at_work(0, Limits { ledger_soon_ms: 1_000_000, ..Limits::default() });
    // Thousands of small claims, as after the loss of a large cluster, and ZooKeeper is too slow for a flush.
    let transits: Vec<Transit> = (0..2 * ABSORBED_MAX as u64)
        .map(|number| Transit { from: NodeId(7), number: TransitNumber::Grant(number), to: NodeId(8) })
        .collect();
    let mut claims = 0;
    let mut now = 200;
    loop {
        let here = transits.iter().skip(claims).copied().collect();
        let members = [NodeId(1)].into();
        let orphans =
            Event::Orphans { attempt: ATTEMPT, look: 99, members, transits: here, held: Vec::new() };
        let actions = node.handle(at(now), IDLE, orphans);
        let Some(claim) = transaction(&actions) else { break };
        assert!(matches!(&claim.kind, TransactionKind::Claim { source: Source::Transit(_), .. }));
        let holdings = Holdings::of(vec![envelope(100 + claims as u64)]);
        node.handle(
            at(now),
            IDLE,
            Event::Transacted { txn: claim.txn, result: TransactionResult::Claimed(holdings) },
        );
        claims += 1;
        now += 1;
        assert!(claims <= ABSORBED_MAX, "the next flush could not take it in");
    }
    assert_eq!(claims, ABSORBED_MAX - 1, "with the root");
}
