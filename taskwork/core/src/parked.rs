//! The claimable sources (parked tasks and orphans), and the time at which this node claims each.
//!
//! All hungry nodes see the same sources at the same time. If each claimed the first one, all but one would
//! fail, and again for the second: nodes × tasks transactions. So each source has its own order of the nodes, derived
//! from the ids: the first node claims immediately, the next one later if the source is still there.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::Limits,
    holdings::{Source, TransitNumber},
    id::{Attempt, NodeId, TaskId},
};

/// The claimable sources.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// The attempt that they belong to.
    attempt: Option<Attempt>,
    /// The parked tasks, and the time from which this node may claim each.
    tasks: BTreeMap<Source, u64>,
    /// The orphans, likewise.
    orphans: BTreeMap<Source, u64>,
    updates: u64,
    /// The number of updates when something was last claimed.
    claimed_at: u64,
}

/// The maximum number of parked tasks that a node considers; beyond that, a subset that depends on its id.
const LOOKED_AT_MAX: usize = 32;

impl Parked {
    /// Updates the complete list of parked tasks.
    pub(super) fn update(
        &mut self,
        now: u64,
        attempt: Attempt,
        tasks: &[TaskId],
        around: (NodeId, &BTreeSet<NodeId>),
        limits: &Limits,
    ) {
        self.begin(attempt);
        let tasks: Vec<Source> = tasks.iter().copied().map(Source::Parked).collect();
        self.tasks = ordered(now, &self.tasks, &tasks, around, limits);
    }

    /// Updates the complete list of orphans.
    pub(super) fn update_orphans(
        &mut self,
        now: u64,
        attempt: Attempt,
        orphans: &[Source],
        around: (NodeId, &BTreeSet<NodeId>),
        limits: &Limits,
    ) {
        self.begin(attempt);
        self.orphans = ordered(now, &self.orphans, orphans, around, limits);
    }

    fn begin(&mut self, attempt: Attempt) {
        if self.attempt.replace(attempt) != Some(attempt) {
            self.tasks.clear();
            self.orphans.clear();
        }
        self.updates += 1;
    }

    /// Returns the next claim of an attempt that the node may make, and its time.
    fn next(&self, attempt: Attempt, may_take: impl Fn(Source) -> bool) -> Option<(Source, u64)> {
        let all = self.tasks.iter().chain(&self.orphans).filter(|_| self.attempt == Some(attempt));
        let all = all.map(|(&source, &at)| (source, at)).filter(|(source, _)| may_take(*source));
        all.min_by_key(|&(_, at)| at)
    }

    /// Returns the next time at which the node may make a claim.
    pub(super) fn claims_at(&self, attempt: Attempt, may_take: impl Fn(Source) -> bool) -> Option<u64> {
        self.next(attempt, may_take).map(|(_, at)| at)
    }

    /// Returns a source to claim now.
    pub(super) fn claim(
        &mut self,
        now: u64,
        attempt: Attempt,
        may_take: impl Fn(Source) -> bool,
    ) -> Option<Source> {
        let (source, _) = self.next(attempt, may_take).filter(|&(_, at)| at <= now)?;
        self.claimed_at = self.updates;
        Some(source)
    }

    /// Removes a source that was claimed by any node, unless there was an update since: it may be parked again.
    pub(super) fn claimed(&mut self, source: Source) {
        if self.updates == self.claimed_at {
            self.tasks.remove(&source);
        }
        self.orphans.remove(&source);
    }
}

/// Returns the time from which this node may claim each source, keeping the times in `before`.
fn ordered(
    now: u64,
    before: &BTreeMap<Source, u64>,
    sources: &[Source],
    (me, others): (NodeId, &BTreeSet<NodeId>),
    limits: &Limits,
) -> BTreeMap<Source, u64> {
    let first = usize::try_from(me.0 % sources.len().max(1) as u64).unwrap_or(0);
    let looked_at = sources.iter().cycle().skip(first).take(sources.len().min(LOOKED_AT_MAX));
    looked_at
        .map(|&source| {
            let claim_at = before.get(&source).copied().unwrap_or_else(|| {
                let before_me =
                    others.iter().filter(|&&other| order(other, source) < order(me, source)).count();
                let pause = limits.claim_stagger_ms.saturating_mul(before_me as u64);
                now + pause.min(limits.claim_stagger_max_ms)
            });
            (source, claim_at)
        })
        .collect()
}

/// Returns a node's position in the order for a source: a pseudorandom number that is the same on all nodes.
fn order(node: NodeId, source: Source) -> u64 {
    let (owner, number) = match source {
        Source::Parked(task) => (task.node, task.number),
        Source::Held(owner) => (owner, u64::MAX),
        Source::Transit(transit) | Source::Returned(transit) => match transit.number {
            TransitNumber::Grant(number) | TransitNumber::Claim(number) => (transit.from, number),
        },
    };
    let mixed = node.0 ^ owner.0.rotate_left(17) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: Attempt = Attempt(1);

    fn tasks(count: u64) -> Vec<TaskId> {
        (0..count).map(|number| TaskId { node: NodeId(99), number }).collect()
    }

    /// Simulates hungry nodes until no task is parked: returns the number of claims, and the time of the last
    /// successful one.
    fn claims(nodes: u64, count: u64) -> (usize, u64) {
        let (limits, all) = (Limits::default(), (1..=nodes).map(NodeId).collect::<BTreeSet<_>>());
        let mut hungry: BTreeMap<NodeId, Parked> = BTreeMap::new();
        for &me in &all {
            let others: BTreeSet<_> = all.iter().copied().filter(|&other| other != me).collect();
            let mut parked = Parked::default();
            parked.update(0, ATTEMPT, &tasks(count), (me, &others), &limits);
            hungry.insert(me, parked);
        }
        let (mut there, mut tried) =
            (tasks(count).into_iter().map(Source::Parked).collect::<BTreeSet<_>>(), 0);
        for now in 0..10_000 {
            // Nodes that claim at the same time do not notice each other.
            let claimed: Vec<_> = hungry
                .iter_mut()
                .filter_map(|(&me, parked)| Some((me, parked.claim(now, ATTEMPT, |_| true)?)))
                .collect();
            for (me, source) in claimed {
                tried += 1;
                if there.remove(&source) {
                    hungry.remove(&me);
                }
            }
            for parked in hungry.values_mut() {
                parked.tasks.retain(|source, _| there.contains(source));
            }
            if there.is_empty() {
                return (tried, now);
            }
        }
        panic!("{} tasks are never claimed", there.len());
    }

    #[test]
    fn parked_task_is_claimed_by_one_node_immediately() {
        assert_eq!(claims(1, 1), (1, 0));
        assert_eq!(claims(100, 1), (1, 0));
    }

    #[test]
    fn many_nodes_claim_different_parked_tasks() {
        let (tried, last) = claims(100, 50);
        assert!(tried <= 100 && last <= Limits::default().claim_stagger_max_ms, "{tried} claims, {last} ms");
    }

    #[test]
    fn parked_task_ignored_by_its_first_node_is_claimed_by_the_next() {
        let (limits, me) = (Limits::default(), NodeId(1));
        let others: BTreeSet<_> = (2..=1_000).map(NodeId).collect();
        let mut parked = Parked::default();
        parked.update(7, ATTEMPT, &tasks(1), (me, &others), &limits);
        let at = parked.claims_at(ATTEMPT, |_| true).unwrap();
        assert!((7..=7 + limits.claim_stagger_max_ms).contains(&at), "{at}");
        // An update does not postpone it.
        parked.update(at, ATTEMPT, &tasks(1), (me, &others), &limits);
        assert_eq!(parked.claim(at, ATTEMPT, |_| true), Some(Source::Parked(tasks(1)[0])));
        assert_eq!(parked.claim(at, Attempt(2), |_| true), None, "of another attempt");
    }
}
