//! What a node has whatever the attempt: who it is, whom it knows, how its pool stands, and what it has
//! decided.

use std::{collections::BTreeSet, time::Duration};

use rand::rngs::SmallRng;

use super::{action::Action, drain::Drain, message::Message, pool_view::PoolView};
use crate::{
    config::Limits,
    envelope::Envelope,
    figures::Figures,
    id::{Attempt, NodeId},
};

/// What the steps of a run read and write besides the run itself.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// This node.
    pub(super) id: NodeId,
    pub(super) limits: Limits,
    pub(super) random: SmallRng,
    /// The other members.
    pub(super) members: BTreeSet<NodeId>,
    /// Set when the node is to leave.
    pub(super) drain: Option<Drain>,
    pub(super) figures: Figures,
    /// The time of the event at hand, on the node's clock.
    pub(super) clock: Duration,
    /// The same in whole milliseconds, by which everything is planned.
    pub(super) now: u64,
    /// The pool at that time.
    pub(super) pool: PoolView,
    /// What the shell is to do, in this order.
    pub(super) actions: Vec<Action>,
}

impl Surroundings {
    /// Sends a message that belongs to an attempt.
    pub(super) fn send(&mut self, attempt: Attempt, to: NodeId, message: Message) {
        self.actions.push(Action::Send { to, attempt, message });
    }

    /// Keeps tasks that are this node's: in its pool, or, if it leaves, with what it has to hand on.
    pub(super) fn keep(&mut self, tasks: Vec<Envelope>) {
        if tasks.is_empty() {
            return;
        }
        match &mut self.drain {
            Some(drain) => drain.pile(tasks),
            None => self.actions.push(Action::Put { tasks, asked: None }),
        }
    }
}
