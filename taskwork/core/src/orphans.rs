//! Orphans: holdings of nodes that are gone, and tasks in transit to or from them.
//!
//! Any hungry node claims them like parked tasks. A node looks for them when a member has gone without a clean leave,
//! when it has asked several times without an answer whether its tasks are written, and periodically while it finds
//! no tasks.
//!
//! A look also decides about tentative tasks, but only those of victims whose departure was noticed before the look
//! was requested: in an older answer, a node that is not a member may be one that has joined since, and still
//! writes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    action::Action,
    parked::Parked,
    run::{Enrolment, Run},
    surroundings::Surroundings,
};
use crate::{
    holdings::{Source, Transit, TransitNumber},
    id::NodeId,
};

/// The time without tasks after which a node looks, in milliseconds; it doubles with each look.
const LOOK_FIRST_MS: u64 = 250;
/// The time without tasks after which a node that has just joined looks, in milliseconds.
pub(super) const LOOK_START_MS: u64 = 10;
/// The maximum time between two looks of a node that finds no tasks, in milliseconds; more in a large cluster.
const LOOK_MAX_MS: u64 = 8_000;
/// The increase of the maximum per member, in milliseconds.
const LOOK_MEMBER_MS: u64 = 50;

/// The looks of a node, and the departures that it has noticed.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The number of the last look.
    last: u64,
    /// For each member that has gone, the first look that started after that.
    gone: BTreeMap<NodeId, u64>,
}

impl Looks {
    pub(super) fn left(&mut self, node: NodeId) {
        self.gone.insert(node, self.last + 1);
    }

    /// Records that a node is a member, possibly again.
    pub(super) fn joined(&mut self, node: NodeId) {
        self.gone.remove(&node);
    }
}

/// The result of a look.
pub(super) struct Orphans {
    pub(super) look: u64,
    pub(super) members: BTreeSet<NodeId>,
    pub(super) transits: BTreeSet<Transit>,
    pub(super) held: Vec<NodeId>,
}

impl Run {
    pub(super) fn look_for_orphans(&mut self, around: &mut Surroundings) {
        self.looks.last += 1;
        around.actions.push(Action::LookForOrphans { look: self.looks.last });
    }

    /// Looks if the node has found no tasks for some time.
    pub(super) fn look_if_starving(&mut self, around: &mut Surroundings) {
        if !self.starves(around) {
            self.look_pause_ms = 0;
            self.look_at = around.now + LOOK_FIRST_MS;
        } else if around.now >= self.look_at {
            self.look_for_orphans(around);
            let max_ms = LOOK_MAX_MS + LOOK_MEMBER_MS * around.members.len() as u64;
            self.look_pause_ms = (2 * self.look_pause_ms).clamp(LOOK_FIRST_MS, max_ms);
            self.look_at = around.now + self.look_pause_ms;
        }
    }

    /// Returns whether this node has nothing to do, and expects nothing.
    pub(super) fn starves(&self, around: &Surroundings) -> bool {
        around.pool.is_idle() && around.drain.is_none() && self.enrolment != Enrolment::Asked
    }

    /// Handles the result of a look.
    pub(super) fn found(&mut self, around: &mut Surroundings, parked: &mut Parked, orphans: &Orphans) {
        let Orphans { look, members, transits, held } = orphans;
        // A read before a departure is no evidence about it.
        let gone: BTreeSet<NodeId> = self
            .looks
            .gone
            .iter()
            .filter(|&(node, first)| first <= look && !members.contains(node))
            .map(|(&node, _)| node)
            .collect();
        let void = self.bases.judge(around.now, |node| gone.contains(&node), transits);
        self.drop_void(around, void);
        let me = around.id;
        // Tasks in transit to a departed node belong to the node that claims them; tasks in transit to this node from
        // a departed one may never have arrived.
        let is_claimable = |transit: &&Transit| {
            if transit.to != me {
                return !members.contains(&transit.to);
            }
            let lost = matches!(transit.number, TransitNumber::Grant(grant)
                if self.receipts.never_took(transit.from, grant));
            lost && !members.contains(&transit.from)
                && !self.bases.has(**transit)
                && !self.accounting.takes(**transit)
        };
        let claimable = transits.iter().filter(is_claimable).map(|&transit| Source::Transit(transit));
        let left = held.iter().filter(|node| !members.contains(node)).map(|&node| Source::Held(node));
        let sources: Vec<Source> = left.chain(claimable).collect();
        let others = &around.members;
        parked.update_orphans(around.now, self.attempt, &sources, (me, others), &around.limits);
        self.receipts.gone(|node| gone.contains(&node));
        self.given.gone(|node| gone.contains(&node));
        self.looks.gone.retain(|node, _| !gone.contains(node));
    }
}
