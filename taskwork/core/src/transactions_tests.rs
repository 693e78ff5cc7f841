//! A node's reaction to each possible result of its transactions.

use std::time::Duration;

use super::{Action, Event, Node, PoolView, Transaction, TransactionResult};
use crate::{
    config::Limits,
    envelope::{Blob, Envelope},
    holdings::Holdings,
    id::{Attempt, NodeId, TaskId},
};

const ATTEMPT: Attempt = Attempt(1);
const QUIET: PoolView = PoolView { stopped: true, ..PoolView::idle(2) };
const HUNGRY: PoolView = PoolView { stopped: false, ..QUIET };

fn task(number: u64) -> TaskId {
    TaskId { node: NodeId(9), number }
}

/// Returns a single node that has claimed task 7, one of two parked tasks, and the claim.
fn claiming() -> (Node, Transaction) {
    let mut node = Node::new(NodeId(1), Limits::default(), 1);
    node.handle(Duration::from_millis(0), QUIET, Event::Attempt { attempt: ATTEMPT });
    node.handle(Duration::from_millis(0), QUIET, Event::Look);
    let actions = node.handle(
        Duration::from_millis(0),
        HUNGRY,
        Event::Parked { attempt: ATTEMPT, tasks: vec![task(7), task(8)] },
    );
    let claim = transaction(&actions).expect("it claims what is parked");
    (node, claim)
}

fn transaction(actions: &[Action]) -> Option<Transaction> {
    actions.iter().find_map(|action| match action {
        Action::Transact { transaction, .. } => Some(transaction.clone()),
        _ => None,
    })
}

/// Returns the reaction to a result: the tasks put into the pool, and the next transaction.
fn after(result: TransactionResult) -> (usize, Option<Transaction>) {
    let (mut node, claim) = claiming();
    let mut actions =
        node.handle(Duration::from_millis(1), HUNGRY, Event::Transacted { txn: claim.txn, result });
    if actions.iter().any(Action::touches_pool) {
        actions.extend(node.handle(Duration::from_millis(1), HUNGRY, Event::Look));
    }
    let put = |action: &Action| if let Action::Put { tasks, .. } = action { tasks.len() } else { 0 };
    (actions.iter().map(put).sum(), transaction(&actions))
}

#[test]
fn claim_is_settled_only_if_written() {
    let claimed = Envelope::new(task(7), Blob::default(), Blob::default());
    let (put, next) = after(TransactionResult::Claimed(Holdings::of(vec![claimed])));
    assert_eq!((put, next.unwrap().settled), (1, Some(0)));
    let (put, next) = after(TransactionResult::TooLate);
    assert_eq!((put, next.unwrap().settled), (0, None), "it has left nothing that could go");
    let (put, next) = after(TransactionResult::Unreadable);
    assert_eq!((put, next.unwrap().settled), (0, Some(0)), "it is written all the same");
}

#[test]
fn refused_transaction_is_neither_retried_nor_replaced() {
    for refused in [TransactionResult::AttemptOver, TransactionResult::Unrecordable] {
        let (mut node, claim) = claiming();
        let actions = node.handle(
            Duration::from_millis(1),
            HUNGRY,
            Event::Transacted { txn: claim.txn, result: refused },
        );
        assert_eq!(actions, []);
        let later = node.handle(Duration::from_secs(100), HUNGRY, Event::Tick);
        assert_eq!(transaction(&later), None);
    }
}
