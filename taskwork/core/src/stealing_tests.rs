//! Stealing by one node: the request time of stolen tasks, which is that of the request that the grant answers, and cordoned
//! nodes.

use std::{collections::BTreeSet, time::Duration};

use super::{Action, Event, Message, Node, PoolView, TransactionKind, TransactionResult};
use crate::{
    config::Limits,
    envelope::{Blob, Envelope},
    holdings::{Holdings, Source, Transit},
    id::{Attempt, NodeId, TaskId},
};

const ATTEMPT: Attempt = Attempt(1);
const OTHER: NodeId = NodeId(2);
const HUNGRY: PoolView = PoolView::idle(1);
const ASKED_AT: Duration = Duration::from_micros(1_250);
const LATER: Duration = Duration::from_micros(3_700);

fn sealed(number: u64) -> Envelope {
    let id = TaskId { node: OTHER, number };
    Envelope::new(id, Blob::default(), Blob::default())
}

/// Returns a node that has asked another one for tasks, by request 0.
fn asking() -> Node {
    let mut node = Node::new(NodeId(1), Limits::default(), 1);
    let stopped = PoolView { stopped: true, ..HUNGRY };
    node.handle(Duration::ZERO, stopped, Event::Joined { node: OTHER });
    node.handle(Duration::ZERO, stopped, Event::Attempt { attempt: ATTEMPT });
    node.handle(Duration::ZERO, stopped, Event::Look);
    let actions = node.handle(ASKED_AT, HUNGRY, Event::Enrolled { attempt: ATTEMPT });
    let steal = Action::Send { to: OTHER, attempt: ATTEMPT, message: Message::Steal { request: 0 } };
    assert_eq!(actions, [steal]);
    node
}

/// Returns the time with which the tasks of a grant are put into the pool.
fn granted(request: Option<u64>) -> Option<Duration> {
    let message = Message::Grant { grant: 0, request, settled_below: 0, tasks: vec![sealed(7)] };
    let actions = asking().handle(LATER, HUNGRY, Event::Message { from: OTHER, attempt: ATTEMPT, message });
    put(&actions)
}

fn put(actions: &[Action]) -> Option<Duration> {
    let put = |action: &Action| match action {
        Action::Put { asked, .. } => Some(*asked),
        _ => None,
    };
    actions.iter().find_map(put).expect("tasks are put into the pool")
}

#[test]
fn steal_time_starts_at_the_answered_request() {
    assert_eq!(granted(Some(0)), Some(ASKED_AT));
    assert_eq!(granted(Some(3)), None, "another request is answered");
    assert_eq!(granted(None), None, "nothing was asked for: a node that leaves hands its tasks on");
}

const CORDON: Event = Event::Cordon { is_cordoned: true };
const UNCORDON: Event = Event::Cordon { is_cordoned: false };

#[test]
fn cordoned_node_neither_steals_nor_claims_until_uncordoned() {
    let mut node = asking();
    node.handle(LATER, HUNGRY, CORDON);
    node.handle(LATER, HUNGRY, Event::Parked { attempt: ATTEMPT, tasks: vec![sealed(7).id] });
    node.handle(
        LATER,
        HUNGRY,
        Event::Message { from: OTHER, attempt: ATTEMPT, message: Message::Deny { request: 0 } },
    );
    let far = LATER + Duration::from_secs(60);
    let actions = node.handle(far, HUNGRY, Event::Tick);
    let takes = |action: &Action| matches!(action, Action::Send { .. } | Action::Transact { .. });
    assert!(!actions.iter().any(takes), "{actions:?}");
    let actions = node.handle(far, HUNGRY, UNCORDON);
    assert!(actions.iter().any(|action| matches!(action, Action::Transact { .. })), "{actions:?}");
    // All members were asked in the round before.
    let actions = node.handle(far + Duration::from_secs(1), HUNGRY, Event::Tick);
    assert!(actions.iter().any(|action| matches!(action, Action::Send { .. })), "{actions:?}");
}

#[test]
fn cordoned_node_takes_requested_tasks_and_refuses_those_of_leaving_nodes() {
    let answer = |request| {
        let mut node = asking();
        node.handle(LATER, HUNGRY, CORDON);
        let message = Message::Grant { grant: 0, request, settled_below: 0, tasks: vec![sealed(7)] };
        let actions = node.handle(LATER, HUNGRY, Event::Message { from: OTHER, attempt: ATTEMPT, message });
        let answer = |action| if let Action::Send { message, .. } = action { Some(message) } else { None };
        actions.into_iter().find_map(answer)
    };
    assert_eq!(answer(Some(0)), Some(Message::Ack { grant: 0 }));
    assert_eq!(answer(None), Some(Message::Refuse { grant: 0 }));
}

#[test]
fn cordoned_node_claims_a_grant_that_only_it_can_claim() {
    let mut node = asking();
    node.handle(LATER, HUNGRY, CORDON);
    node.handle(LATER, HUNGRY, Event::Left { node: OTHER, clean_in: None });
    let transits = BTreeSet::from([Transit::grant(OTHER, 0, NodeId(1))]);
    let members = BTreeSet::from([NodeId(1)]);
    let found = Event::Orphans { attempt: ATTEMPT, look: 99, members, transits, held: vec![OTHER] };
    let actions = node.handle(LATER, HUNGRY, found);
    let source = |action: &Action| match action {
        Action::Transact { transaction, .. } => match transaction.kind {
            TransactionKind::Claim { source, .. } => Some(source),
            TransactionKind::Flush(_) => None,
        },
        _ => None,
    };
    let claimed: Vec<Source> = actions.iter().filter_map(source).collect();
    assert_eq!(claimed, [Source::Transit(Transit::grant(OTHER, 0, NodeId(1)))], "{actions:?}");
}

#[test]
fn cordoned_node_without_tasks_commits_completed_work() {
    let mut node = asking();
    let done = PoolView { batch_ids: 1, ..HUNGRY };
    node.handle(LATER, done, CORDON);
    let due = Duration::from_millis(node.deadline().expect("the commit is due"));
    assert!(due < LATER + Duration::from_secs(1), "{due:?}");
    let actions = node.handle(LATER + Duration::from_secs(1), done, Event::Tick);
    assert!(actions.iter().any(|action| matches!(action, Action::Cut { .. })), "{actions:?}");
}

#[test]
fn claimed_parked_task_is_not_a_steal() {
    let mut node = asking();
    node.handle(LATER, HUNGRY, Event::Parked { attempt: ATTEMPT, tasks: vec![sealed(7).id] });
    // The task is claimed now, at either position of the node in its order.
    let far = LATER + Duration::from_millis(Limits::default().claim_stagger_max_ms);
    node.handle(far, HUNGRY, Event::Tick);
    let claimed = TransactionResult::Claimed(Holdings::of(vec![sealed(7)]));
    assert_eq!(put(&node.handle(far, HUNGRY, Event::Transacted { txn: 0, result: claimed })), None);
}

#[test]
fn held_back_tasks_are_received_from_their_victim() {
    let mut node = Node::new(NodeId(1), Limits::default(), 1);
    let stopped = PoolView { stopped: true, ..HUNGRY };
    node.handle(Duration::ZERO, stopped, Event::Joined { node: OTHER });
    node.handle(Duration::ZERO, stopped, Event::Attempt { attempt: ATTEMPT });
    node.handle(Duration::ZERO, stopped, Event::Look);
    let grant = |grant, number| {
        let message = Message::Grant { grant, request: None, settled_below: 0, tasks: vec![sealed(number)] };
        Event::Message { from: OTHER, attempt: ATTEMPT, message }
    };
    node.handle(LATER, stopped, grant(0, 7));
    assert_eq!(node.take_received(), [], "it must not hold any task before it is enrolled");
    node.handle(LATER, HUNGRY, Event::Enrolled { attempt: ATTEMPT });
    assert_eq!(node.take_received(), [(OTHER, 1)]);
    node.handle(LATER, HUNGRY, grant(1, 8));
    node.handle(LATER, HUNGRY, grant(1, 8));
    assert_eq!(node.take_received(), [(OTHER, 1)], "a repeated grant adds no task");
    assert_eq!(node.take_received(), []);
}
