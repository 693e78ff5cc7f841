//! The thief's side of the ledger: tasks that this node works on, but that are not its own in `ZooKeeper` yet.
//!
//! A granted task starts immediately. Until its victim has written it to `transit/`, it still is among the
//! victim's written holdings: if the victim is lost, another node continues from there, and all effects of
//! the task here must be dropped. So the task, its children and their completions are *tentative*: they carry a
//! [`Basis`], and this node writes nothing with a tentative basis.
//!
//! ```text
//!   granted ──▶ tentative ──confirmed: in transit/──▶ confirmed ──next cut──▶ absorbed: this node's own
//!                   │
//!                   └──void: never will be──▶ dropped
//! ```
//!
//! A task has one parent, so one basis is enough. Claimed tasks are this node's own from the start: they
//! are in `transit/` from itself to itself until its next flush.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::Limits,
    holdings::{Basis, Transit, TransitNumber},
    id::NodeId,
    toggles::Toggles,
};

/// The maximum number of bases that one flush absorbs.
pub(super) const ABSORBED_MAX: usize = 256;

/// The maximum number of grants in one question to a victim.
const ASKED_MAX: usize = 1_024;

#[derive(Debug)]
struct Open {
    transit: Transit,
    since: u64,
    confirmed_at: Option<u64>,
    /// The time at which the victim is asked whether it has written the grant.
    ask_at: u64,
    waited_ms: u64,
    /// Whether the victim knows that a node has nothing else to do.
    pressed: bool,
    /// Whether a node that received tasks on this basis from this one has nothing else to do.
    urgent: bool,
}

/// The bases of one node in one attempt that are not absorbed yet.
#[derive(Debug)]
pub(super) struct Bases {
    open: BTreeMap<Basis, Open>,
    next: u64,
    /// The claims, the time of the first, and the ids that come with them.
    claimed: Vec<Transit>,
    claimed_since: Option<u64>,
    owed: Toggles,
}

/// The bases that a flush absorbs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Absorbed {
    pub(super) bases: Vec<Basis>,
    pub(super) transits: Vec<Transit>,
    pub(super) owed: Toggles,
}

impl Bases {
    /// Creates the state, with the number of the next basis; 0 is skipped, because it is [`Basis::FIRM`].
    pub(super) fn new(next: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            next: next.max(Basis::FIRM.0 + 1),
            claimed: Vec::new(),
            claimed_since: None,
            owed: Toggles::default(),
        }
    }

    /// Returns the number of the next basis; numbers are never reused on a node.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Opens the basis of tasks that were granted.
    pub(super) fn granted(&mut self, now: u64, transit: Transit, limits: &Limits) -> Basis {
        let basis = Basis(self.next);
        self.next += 1;
        let waited_ms = limits.ledger_soon_ms + limits.grant_retry_ms;
        let open = Open {
            transit,
            since: now,
            confirmed_at: None,
            ask_at: now + waited_ms,
            waited_ms,
            pressed: false,
            urgent: false,
        };
        self.open.insert(basis, open);
        basis
    }

    /// Records a claim, with the ids owed for it. Its tasks need no basis: the next flush absorbs the claim
    /// unconditionally.
    pub(super) fn claimed(&mut self, now: u64, transit: Transit, owed: Toggles) {
        self.claimed.push(transit);
        self.claimed_since.get_or_insert(now);
        self.owed.merge(owed);
    }

    /// Returns whether the next flush can absorb another claim.
    pub(super) fn can_claim(&self) -> bool {
        self.claimed.len() < ABSORBED_MAX
    }

    /// Returns whether a basis is not absorbed yet.
    pub(super) fn is_open(&self, basis: Basis) -> bool {
        self.open.contains_key(&basis)
    }

    /// Returns the current basis of tasks that had this one: it may have been absorbed since. (If it is void, they are
    /// gone.)
    pub(super) fn still(&self, basis: Basis) -> Basis {
        if self.is_open(basis) { basis } else { Basis::FIRM }
    }

    /// Returns whether a basis is not confirmed yet.
    pub(super) fn is_tentative(&self, basis: Basis) -> bool {
        self.open.get(&basis).is_some_and(|open| open.confirmed_at.is_none())
    }

    /// Returns whether any basis is not absorbed yet.
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty() || !self.claimed.is_empty()
    }

    /// Returns the time at which the oldest basis was opened.
    pub(super) fn open_since(&self) -> Option<u64> {
        self.open.values().map(|open| open.since).chain(self.claimed_since).min()
    }

    /// Returns the time at which the oldest confirmed basis was confirmed.
    pub(super) fn confirmed_since(&self) -> Option<u64> {
        self.open.values().filter_map(|open| open.confirmed_at).chain(self.claimed_since).min()
    }

    /// Returns whether any basis of a grant from this node is open.
    pub(super) fn any_from(&self, node: NodeId) -> bool {
        self.open.values().any(|open| open.transit.from == node && open.confirmed_at.is_none())
    }

    /// Returns whether the grant of a transit was taken and is not absorbed yet.
    pub(super) fn has(&self, transit: Transit) -> bool {
        self.claimed.contains(&transit) || self.open.values().any(|open| open.transit == transit)
    }

    /// Records that a victim has written these grants.
    pub(super) fn confirmed(&mut self, now: u64, from: NodeId, grants: &[u64]) {
        for open in self.open.values_mut().filter(|open| open.is_one_of(from, grants)) {
            open.confirmed_at.get_or_insert(now);
        }
    }

    /// Removes the bases of grants that their victim will never write, and returns them.
    pub(super) fn void(&mut self, from: NodeId, grants: &[u64]) -> Vec<Basis> {
        self.drop_tentative(|open| open.is_one_of(from, grants))
    }

    /// Applies a listing of `transit/`: a victim that was gone before it will write nothing more. Returns the void
    /// bases, and removes them.
    pub(super) fn judge(
        &mut self,
        now: u64,
        is_gone: impl Fn(NodeId) -> bool,
        transits: &BTreeSet<Transit>,
    ) -> Vec<Basis> {
        for open in self.open.values_mut().filter(|open| transits.contains(&open.transit)) {
            open.confirmed_at.get_or_insert(now);
        }
        self.drop_tentative(|open| is_gone(open.transit.from))
    }

    fn drop_tentative(&mut self, which: impl Fn(&Open) -> bool) -> Vec<Basis> {
        let dropped = |open: &Open| open.confirmed_at.is_none() && which(open);
        let void: Vec<Basis> =
            self.open.iter().filter(|(_, open)| dropped(open)).map(|(&basis, _)| basis).collect();
        self.open.retain(|_, open| !dropped(open));
        void
    }

    /// Removes confirmed bases, which the next flush absorbs.
    pub(super) fn absorb(&mut self) -> Absorbed {
        let mut taken = Absorbed {
            bases: Vec::new(),
            transits: std::mem::take(&mut self.claimed),
            owed: std::mem::take(&mut self.owed),
        };
        self.claimed_since = None;
        let confirmed = self.open.iter().filter(|(_, open)| open.confirmed_at.is_some());
        let bases: Vec<Basis> = confirmed.map(|(&basis, _)| basis).take(ABSORBED_MAX).collect();
        for basis in bases {
            if let Some(open) = self.open.remove(&basis) {
                taken.bases.push(basis);
                taken.transits.push(open.transit);
            }
        }
        taken
    }

    /// Makes the question about a basis due now.
    pub(super) fn press(&mut self, now: u64, basis: Basis) {
        if let Some(open) = self.open.get_mut(&basis)
            && open.confirmed_at.is_none()
        {
            open.ask_at = now;
            open.urgent = true;
        }
    }

    /// Returns the questions to victims that are due now, with their urgency, and whether some were repeated often
    /// without an answer. If the node has nothing else to do, it asks immediately.
    pub(super) fn questions(
        &mut self,
        now: u64,
        waits: bool,
        limits: &Limits,
    ) -> (BTreeMap<NodeId, (Vec<u64>, bool)>, bool) {
        let mut asked: BTreeMap<NodeId, (Vec<u64>, bool)> = BTreeMap::new();
        let mut in_vain = false;
        for open in self.open.values_mut().filter(|open| open.confirmed_at.is_none()) {
            let TransitNumber::Grant(grant) = open.transit.number else { continue };
            let presses = waits && !open.pressed;
            if now < open.ask_at && !presses {
                continue;
            }
            let (grants, urgent) = asked.entry(open.transit.from).or_default();
            in_vain |= open.waited_ms >= limits.grant_retry_max_ms;
            if grants.len() < ASKED_MAX {
                *urgent |= waits || open.urgent;
                open.pressed |= waits;
                open.waited_ms = if presses {
                    limits.grant_retry_ms
                } else {
                    (2 * open.waited_ms).min(limits.grant_retry_max_ms)
                };
                open.ask_at = now + open.waited_ms;
                grants.push(grant);
            }
        }
        (asked, in_vain)
    }

    /// Returns the times at which questions are due.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.open.values().filter(|open| open.confirmed_at.is_none()).map(|open| open.ask_at)
    }
}

impl Open {
    fn is_one_of(&self, from: NodeId, grants: &[u64]) -> bool {
        self.transit.from == from
            && matches!(self.transit.number, TransitNumber::Grant(grant) if grants.contains(&grant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const VICTIM: NodeId = NodeId(2);

    fn bases(grants: u64) -> (Bases, Vec<Basis>) {
        let mut bases = Bases::new(0);
        let grant = |grant| Transit::grant(VICTIM, grant, ME);
        let opened = (0..grants).map(|k| bases.granted(0, grant(k), &Limits::default())).collect();
        (bases, opened)
    }

    #[test]
    fn flush_absorbs_only_confirmed_bases() {
        let (mut bases, opened) = bases(3);
        bases.confirmed(7, VICTIM, &[1, 9]);
        bases.confirmed(7, NodeId(3), &[0]);
        assert_eq!(bases.confirmed_since(), Some(7));
        let taken = bases.absorb();
        assert_eq!((taken.bases, taken.transits), (vec![opened[1]], vec![Transit::grant(VICTIM, 1, ME)]));
        assert!(bases.is_open(opened[0]) && !bases.is_open(opened[1]));
    }

    #[test]
    fn confirmed_basis_cannot_become_void() {
        let (mut bases, opened) = bases(2);
        bases.confirmed(0, VICTIM, &[1]);
        assert_eq!(bases.void(VICTIM, &[0, 1]), [opened[0]]);
        assert_eq!(bases.judge(0, |_| true, &BTreeSet::new()), []);
        assert_eq!(bases.absorb().bases, [opened[1]]);
    }

    #[test]
    fn absent_transit_is_void_only_after_its_victim_is_gone() {
        let (mut bases, opened) = bases(2);
        let there = BTreeSet::from([Transit::grant(VICTIM, 1, ME)]);
        assert_eq!(bases.judge(5, |_| false, &BTreeSet::new()), []);
        assert_eq!(bases.judge(5, |node| node == VICTIM, &there), [opened[0]]);
        assert_eq!(bases.absorb().bases, [opened[1]]);
    }

    #[test]
    fn idle_node_asks_its_victims_immediately_and_then_periodically() {
        let (limits, (mut bases, _)) = (Limits::default(), bases(2));
        assert_eq!(bases.questions(1, false, &limits).0, [].into());
        assert_eq!(bases.questions(1, true, &limits).0, [(VICTIM, (vec![0, 1], true))].into());
        assert_eq!(bases.questions(2, true, &limits).0, [].into());
        let mut asked = 1;
        while !bases.questions(bases.deadlines().min().unwrap(), false, &limits).1 {
            asked += 1;
        }
        assert_eq!(asked, 5, "then it looks for itself");
    }
}
