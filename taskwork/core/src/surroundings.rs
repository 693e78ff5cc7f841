//! The state of a node that is independent of the attempt: its identity, the members, its pool, and its
//! pending actions.

use std::{collections::BTreeSet, time::Duration};

use rand::rngs::SmallRng;

use super::{action::Action, drain::Drain, message::Message, pool_view::PoolView};
use crate::{
    config::Limits,
    counts::Counts,
    envelope::Envelope,
    holdings::{Basis, Source, Transit},
    id::{Attempt, NodeId},
};

/// The state that the steps of a run use in addition to the run itself.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) id: NodeId,
    pub(super) limits: Limits,
    pub(super) random: SmallRng,
    /// The other members. Some may turn out not to work on jobs like this one.
    pub(super) members: BTreeSet<NodeId>,
    /// The members known to work on jobs like this one.
    pub(super) known: BTreeSet<NodeId>,
    /// The known members that are near.
    pub(super) near: BTreeSet<NodeId>,
    /// The number of other nodes, including nodes that cannot work on the job.
    pub(super) roster: usize,
    /// Whether an operator has cordoned the node.
    pub(super) is_cordoned: bool,
    /// Set when the node is leaving.
    pub(super) drain: Option<Drain>,
    pub(super) counts: Counts,
    /// The sources and numbers of tasks received since the last query.
    pub(super) received: Vec<(NodeId, u64)>,
    /// The time of the current event, on the node's clock.
    pub(super) clock: Duration,
    /// The same in whole milliseconds, which all deadlines use.
    pub(super) now: u64,
    pub(super) pool: PoolView,
    /// The actions for the shell, in order.
    pub(super) actions: Vec<Action>,
}

impl Surroundings {
    pub(super) fn send(&mut self, attempt: Attempt, to: NodeId, message: Message) {
        self.actions.push(Action::Send { to, attempt, message });
    }

    /// Forgets a node that is no longer a member, or does not work on jobs like this one.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.members.remove(&node);
        self.known.remove(&node);
        self.near.remove(&node);
    }

    /// Returns whether this node takes a claimable source if it is hungry. While it is cordoned, it takes only a grant to it that
    /// has not arrived: no other node can claim that.
    pub(super) fn may_take(&self, source: Source) -> bool {
        !self.is_cordoned || matches!(source, Source::Transit(Transit { to, .. }) if to == self.id)
    }

    /// Returns the number of other nodes that use the same servers.
    pub(super) fn sharers(&self) -> u64 {
        self.members.len().max(self.roster) as u64
    }

    /// Keeps tasks of this node: in its pool or, if it is leaving, on the pile to hand over.
    pub(super) fn keep(&mut self, basis: Basis, tasks: Vec<Envelope>) {
        if tasks.is_empty() {
            return;
        }
        match &mut self.drain {
            Some(drain) => drain.pile.extend(tasks.into_iter().map(|task| (basis, task))),
            None => self.actions.push(Action::Put { tasks, basis, asked: None }),
        }
    }
}
