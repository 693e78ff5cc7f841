//! A leaving node, step by step: the deadline holds regardless of pending events, and without a deadline it
//! waits.

use std::time::Duration;

use super::{
    Action, Cut, Departure, Event, Message, Node, PoolView, Transaction, TransactionKind, TransactionResult,
};
use crate::{
    config::Limits,
    envelope::{Blob, Envelope},
    holdings::Basis,
    id::{Attempt, NodeId, TaskId},
};

const ATTEMPT: Attempt = Attempt(1);
const DEADLINE_MS: u64 = 3_000;
/// The time from which tasks are parked.
const PARK_MS: u64 = 2_000;
const FAR_MS: u64 = 1_000_000;

/// A worker runs a task that does not stop, and nothing is queued.
const SILENT: PoolView = PoolView { idle: 1, stopped: true, ..PoolView::idle(2) };
/// All tasks have stopped and were unloaded.
const QUIET: PoolView = PoolView { stopped: true, ..PoolView::idle(2) };
const AT_WORK: PoolView = PoolView { idle: 0, queued: 1, ..PoolView::idle(2) };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn attempting(others: u64) -> Node {
    let limits = Limits { drain_deadline_ms: DEADLINE_MS, ..Limits::default() };
    let mut node = Node::new(NodeId(1), limits, 1);
    for other in 0..others {
        node.handle(ms(0), QUIET, Event::Joined { node: NodeId(2 + other) });
    }
    node.handle(ms(0), QUIET, Event::Attempt { attempt: ATTEMPT });
    node.handle(ms(0), QUIET, Event::Look);
    node
}

/// Returns a node that received a grant before it was enrolled.
fn enrolling() -> Node {
    let mut node = attempting(1);
    let grant = Message::Grant { grant: 0, request: None, settled_below: 0, tasks: vec![sealed(7)] };
    let granted = said_by(NodeId(2), grant);
    let actions = node.handle(ms(0), QUIET, granted);
    assert_eq!(actions, [Action::Enrol { attempt: ATTEMPT }], "it is neither taken nor answered yet");
    node
}

/// Returns a node at work that has received messages from the others.
fn at_work(others: u64) -> Node {
    let mut node = at_work_unheard(others);
    for other in 0..others {
        let settled = Message::Settled { grant: 0, settled_below: 0 };
        assert_eq!(node.handle(ms(0), AT_WORK, said_by(NodeId(2 + other), settled)), []);
    }
    node
}

fn at_work_unheard(others: u64) -> Node {
    let mut node = attempting(others);
    node.handle(ms(0), AT_WORK, Event::Enrolled { attempt: ATTEMPT });
    node
}

fn sealed(number: u64) -> Envelope {
    let id = TaskId { node: NodeId(1), number };
    Envelope::new(id, Blob::default(), Blob::default())
}

fn departure(actions: &[Action]) -> Option<Departure> {
    actions.iter().find_map(|action| match action {
        Action::Leave { departure } => Some(*departure),
        _ => None,
    })
}

fn transaction(actions: &[Action]) -> Option<&Transaction> {
    actions.iter().find_map(|action| match action {
        Action::Transact { transaction, .. } => Some(transaction),
        _ => None,
    })
}

/// Returns the receiver, the number and the number of tasks of each grant.
fn grants(actions: &[Action]) -> Vec<(NodeId, u64, usize)> {
    let grant = |action: &Action| match action {
        Action::Send { to, message: Message::Grant { grant, tasks, .. }, .. } => {
            Some((*to, *grant, tasks.len()))
        }
        _ => None,
    };
    actions.iter().filter_map(grant).collect()
}

fn said_by(from: NodeId, message: Message) -> Event {
    Event::Message { from, attempt: ATTEMPT, message }
}

/// Starts the leave of a single node with one task to park; returns the transaction.
fn leaving(node: &mut Node, word: Event) -> Transaction {
    node.handle(ms(0), AT_WORK, word);
    let loaded = PoolView { queued: 1, ..QUIET };
    assert_eq!(node.handle(ms(1), loaded, Event::Look), [Action::Unload]);
    let actions = node.handle(ms(1), QUIET, Event::Unloaded { tasks: vec![(Basis::FIRM, sealed(7))] });
    assert_eq!(
        actions,
        [Action::Cut { firm: Vec::new() }],
        "there is no other node: it is parked immediately"
    );
    let actions = node.handle(ms(1), QUIET, Event::Cut(Cut::default()));
    let leave = transaction(&actions).expect("the leave is committed").clone();
    let TransactionKind::Flush(flush) = &leave.kind else { panic!("{leave:?}") };
    assert_eq!((flush.park.len(), flush.leave), (1, true));
    leave
}

#[test]
fn task_that_does_not_stop_ends_at_the_drain_deadline() {
    let mut node = at_work(0);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    assert_eq!(departure(&node.handle(ms(DEADLINE_MS - 1), SILENT, Event::Tick)), None);
    assert_eq!(node.deadline(), Some(DEADLINE_MS));
    assert_eq!(departure(&node.handle(ms(DEADLINE_MS), SILENT, Event::Tick)), Some(Departure::Abandoned));
}

#[test]
fn leave_without_answer_ends_at_the_drain_deadline() {
    let mut node = at_work(0);
    let leave = leaving(&mut node, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    let unknown = Event::Transacted { txn: leave.txn, result: TransactionResult::Unknown };
    assert_eq!(departure(&node.handle(ms(2), QUIET, unknown)), None);
    let again = node.handle(ms(DEADLINE_MS - 1), QUIET, Event::Tick);
    assert_eq!(transaction(&again), Some(&leave), "it is tried again until then");
    assert_eq!(departure(&node.handle(ms(DEADLINE_MS), QUIET, Event::Tick)), Some(Departure::Abandoned));
}

#[test]
fn enrolment_without_answer_ends_at_the_drain_deadline() {
    let mut node = enrolling();
    let actions = node.handle(ms(0), QUIET, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    let refusal = Action::Send { to: NodeId(2), attempt: ATTEMPT, message: Message::Refuse { grant: 0 } };
    let actions = [actions, node.handle(ms(0), QUIET, Event::Look)].concat();
    assert!(actions.contains(&refusal), "it refuses tasks that it has not started: {actions:?}");
    assert_eq!(node.deadline(), Some(250), "whatever is due first");
    assert_eq!(departure(&node.handle(ms(DEADLINE_MS - 1), QUIET, Event::Tick)), None);
    assert_eq!(departure(&node.handle(ms(DEADLINE_MS), QUIET, Event::Tick)), Some(Departure::Abandoned));
}

#[test]
fn grant_that_cannot_start_in_time_is_refused() {
    let mut node = enrolling();
    let patience_ms = Limits::default().enrol_patience_ms;
    assert_eq!(node.deadline(), Some(patience_ms));
    let actions = node.handle(ms(patience_ms), QUIET, Event::Tick);
    let refusal = Action::Send { to: NodeId(2), attempt: ATTEMPT, message: Message::Refuse { grant: 0 } };
    assert_eq!(actions, [refusal], "and it requests nothing else");
    let mut node = enrolling();
    let actions = node.handle(ms(1), QUIET, Event::Enrolled { attempt: ATTEMPT });
    assert_eq!(
        actions[0],
        Action::Put { tasks: vec![sealed(7)], basis: Basis(1), asked: None },
        "{actions:?}"
    );
}

#[test]
fn node_that_is_not_enrolled_leaves_immediately() {
    let mut node = attempting(1);
    let actions = node.handle(ms(0), QUIET, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    let actions = [actions, node.handle(ms(0), QUIET, Event::Look)].concat();
    assert_eq!(departure(&actions), Some(Departure::Clean));
}

#[test]
fn drain_without_deadline_waits_until_a_signal() {
    for word in [Event::Retire, Event::Rest] {
        let mut node = at_work(0);
        node.handle(ms(0), AT_WORK, word);
        assert_eq!(departure(&node.handle(ms(FAR_MS), SILENT, Event::Tick)), None);
        node.handle(ms(FAR_MS), SILENT, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
        assert_eq!(departure(&node.handle(ms(FAR_MS + DEADLINE_MS - 1), SILENT, Event::Tick)), None);
        let actions = node.handle(ms(FAR_MS + DEADLINE_MS), SILENT, Event::Tick);
        assert_eq!(departure(&actions), Some(Departure::Abandoned));
    }
    let mut node = at_work(0);
    let leave = leaving(&mut node, Event::Rest);
    assert_eq!(departure(&node.handle(ms(FAR_MS), QUIET, Event::Tick)), None);
    let done = Event::Transacted { txn: leave.txn, result: TransactionResult::Committed };
    assert_eq!(departure(&node.handle(ms(FAR_MS), QUIET, done)), Some(Departure::Clean));
}

#[test]
fn second_drain_request_parks_immediately_with_a_third_of_the_time() {
    let mut node = at_work(0);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    node.handle(ms(100), SILENT, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    assert_eq!(departure(&node.handle(ms(1_099), SILENT, Event::Tick)), None);
    assert_eq!(departure(&node.handle(ms(1_100), SILENT, Event::Tick)), Some(Departure::Abandoned));
}

#[test]
fn queued_tasks_are_handed_over_while_a_task_does_not_stop() {
    let mut node = at_work(1);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    let loaded = PoolView { queued: 2, ..SILENT };
    assert_eq!(node.handle(ms(1), loaded, Event::Look), [Action::Unload]);
    let actions = node.handle(
        ms(1),
        SILENT,
        Event::Unloaded { tasks: vec![(Basis::FIRM, sealed(7)), (Basis::FIRM, sealed(8))] },
    );
    assert_eq!(grants(&actions), [(NodeId(2), 0, 2)]);
    let acknowledged = said_by(NodeId(2), Message::Ack { grant: 0 });
    assert_eq!(
        departure(&node.handle(ms(2), SILENT, acknowledged)),
        None,
        "the one that runs is still to come"
    );
    // The task stops late, and is parked with the leave.
    let loaded = PoolView { queued: 1, ..QUIET };
    assert_eq!(node.handle(ms(PARK_MS), loaded, Event::Look), [Action::Unload]);
    let actions = node.handle(ms(PARK_MS), QUIET, Event::Unloaded { tasks: vec![(Basis::FIRM, sealed(9))] });
    assert_eq!((grants(&actions).len(), actions.last()), (0, Some(&Action::Cut { firm: Vec::new() })));
}

/// Three of four nodes leave simultaneously: each refuses the others' grants.
#[test]
fn drained_tasks_are_parked_when_the_last_taker_refuses() {
    let mut node = at_work(2);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    let loaded = PoolView { queued: 1, ..QUIET };
    assert_eq!(node.handle(ms(1), loaded, Event::Look), [Action::Unload]);
    let mut actions = node.handle(ms(1), QUIET, Event::Unloaded { tasks: vec![(Basis::FIRM, sealed(7))] });
    for refusal in 0..2 {
        let granted = grants(&actions);
        assert_eq!((granted.len(), granted[0].1), (1, refusal), "{actions:?}");
        let refused = said_by(granted[0].0, Message::Refuse { grant: refusal });
        actions = node.handle(ms(2), QUIET, refused);
    }
    assert_eq!(
        (grants(&actions).len(), actions.last()),
        (0, Some(&Action::Cut { firm: Vec::new() })),
        "{actions:?}"
    );
}

/// The member may work on another job until that is over, which may be never if it waits for this node.
#[test]
fn member_without_any_message_is_offered_no_task() {
    let mut node = at_work_unheard(1);
    let leave = leaving(&mut node, Event::Retire);
    let committed = Event::Transacted { txn: leave.txn, result: TransactionResult::Committed };
    assert_eq!(departure(&node.handle(ms(2), QUIET, committed)), Some(Departure::Clean));
    // A denial is no evidence: it is also the answer of a node that works on another job.
    let mut node = at_work_unheard(1);
    node.handle(ms(0), AT_WORK, said_by(NodeId(2), Message::Deny { request: 0 }));
    leaving(&mut node, Event::Retire);
}

#[test]
fn preemption_notice_may_leave_less_time_than_the_limits() {
    let mut node = at_work(1);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: 900 });
    let until = |at: u64, node: &mut Node| departure(&node.handle(ms(at), SILENT, Event::Tick));
    assert_eq!(until(899, &mut node), None);
    assert_eq!(until(900, &mut node), Some(Departure::Abandoned));
}

#[test]
fn second_notice_with_less_time_shortens_the_deadline() {
    let mut node = at_work(1);
    node.handle(ms(0), AT_WORK, Event::Drain { ms_ago: 0, deadline_ms: DEADLINE_MS });
    node.handle(ms(100), SILENT, Event::Drain { ms_ago: 0, deadline_ms: 300 });
    let until = |at: u64, node: &mut Node| departure(&node.handle(ms(at), SILENT, Event::Tick));
    assert_eq!(until(199, &mut node), None);
    assert_eq!(until(200, &mut node), Some(Departure::Abandoned), "a third of the new time");
}
