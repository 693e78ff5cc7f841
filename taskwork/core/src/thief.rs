//! The thief's side of stealing: the choice of victims, and the times of requests (paper, 3.3).
//!
//! A node with only idle workers asks a random member immediately. A node with busy workers first waits
//! [`PATIENCE_MS`], because usually one of its own tasks is split in that time. When denied, it asks the next member;
//! after a round of denials it pauses, each time longer, so that hungry nodes do not disturb the last tasks
//! of a job.
//!
//! It prefers near members, then members known to work on jobs like this one; the first message to any other member
//! requires reading its record and opening a connection. One request in eight goes to a random member, so that work
//! spreads everywhere.

use std::collections::BTreeSet;

use rand::{Rng, rngs::SmallRng, seq::IteratorRandom};

use super::pool_view::PoolView;
use crate::{config::Limits, id::NodeId};

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// No worker is hungry here.
    Content,
    /// A worker is hungry, but a split is likely soon.
    Patient { until: u64 },
    /// A steal request is open.
    Asking { request: u64, victim: NodeId, until: u64 },
    /// All requests of the round were denied.
    Pausing { until: u64 },
}

/// The thief's side of one node.
#[derive(Debug)]
pub(super) struct Thief {
    state: State,
    next_request: u64,
    asked: BTreeSet<NodeId>,
    pause_ms: u64,
    /// The time of the first unsuccessful request since the node last had a task.
    denied_at: Option<u64>,
}

/// The time for which a node with busy workers waits for a split of its own before it asks others, in
/// milliseconds.
const PATIENCE_MS: u64 = 1;

/// One in this number of requests goes to a random member instead of a preferred one.
const ANY_ONE_IN: u32 = 8;

/// The members to choose from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) all: &'a BTreeSet<NodeId>,
    /// The members known to work on jobs like this one.
    pub(super) known: &'a BTreeSet<NodeId>,
    /// The known members that are near.
    pub(super) near: &'a BTreeSet<NodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) to: NodeId,
    pub(super) request: u64,
}

impl Thief {
    pub(super) fn new(next_request: u64) -> Self {
        Self { state: State::Content, next_request, asked: BTreeSet::new(), pause_ms: 0, denied_at: None }
    }

    /// Returns the number of the next request; numbers are never reused on a node.
    pub(super) fn next_request(&self) -> u64 {
        self.next_request
    }

    /// Returns the time at which the node commits completed work, because perhaps no more tasks will come:
    /// [`Limits::commit_patience_ms`] after the first unsuccessful request. It is not committed at once, because with
    /// many small tasks a node is idle every few milliseconds, and a commit is the most expensive operation.
    pub(super) fn commits_at(&self, limits: &Limits) -> Option<u64> {
        self.denied_at.map(|at| at + limits.commit_patience_ms)
    }

    /// Decides about the next request in the current state of the pool.
    pub(super) fn step(
        &mut self,
        now: u64,
        pool: PoolView,
        members: Members<'_>,
        limits: &Limits,
        random: &mut SmallRng,
    ) -> Option<Request> {
        if !pool.is_hungry() {
            self.reset();
            return None;
        }
        match self.state {
            State::Content if pool.is_idle() => self.ask(now, members, limits, random),
            State::Content => {
                self.state = State::Patient { until: now + PATIENCE_MS };
                None
            }
            State::Patient { until } if pool.is_idle() || now >= until => {
                self.ask(now, members, limits, random)
            }
            State::Asking { until, .. } if now >= until => {
                self.denied_at.get_or_insert(now);
                self.ask(now, members, limits, random)
            }
            State::Pausing { until } if now >= until => {
                self.asked.clear();
                self.ask(now, members, limits, random)
            }
            State::Patient { .. } | State::Asking { .. } | State::Pausing { .. } => None,
        }
    }

    /// Lets a cordoned node ask for nothing. An outstanding answer will still be accepted. As after a denial, completed work is
    /// committed soon.
    pub(super) fn rest(&mut self, now: u64, pool: PoolView) {
        if pool.is_hungry() {
            self.denied_at.get_or_insert(now);
        } else {
            self.reset();
        }
    }

    /// Stops asking, because no worker is hungry. An outstanding answer will still be accepted.
    fn reset(&mut self) {
        self.state = State::Content;
        self.asked.clear();
        self.pause_ms = 0;
        self.denied_at = None;
    }

    fn ask(
        &mut self,
        now: u64,
        members: Members<'_>,
        limits: &Limits,
        random: &mut SmallRng,
    ) -> Option<Request> {
        let has_more = self.asked.len() < limits.round_requests_max;
        let victim = if has_more { self.choose(members, random) } else { None };
        let Some(victim) = victim else {
            self.pause(now, limits, random);
            return None;
        };
        let request = self.next_request;
        self.next_request += 1;
        self.asked.insert(victim);
        self.state = State::Asking { request, victim, until: now + limits.steal_answer_ms };
        Some(Request { to: victim, request })
    }

    /// Returns a member that was not asked in this round.
    fn choose(&self, members: Members<'_>, random: &mut SmallRng) -> Option<NodeId> {
        let Members { all, known, near } = members;
        let preferred = if random.random_ratio(1, ANY_ONE_IN) { [all, all] } else { [near, known] };
        let left = |members: &BTreeSet<NodeId>, random: &mut SmallRng| {
            members.difference(&self.asked).copied().choose(random)
        };
        preferred.into_iter().chain([all]).find_map(|members| left(members, random))
    }

    /// Pauses for between half and the whole of a time that doubles, so that hungry nodes are not synchronised.
    fn pause(&mut self, now: u64, limits: &Limits, random: &mut SmallRng) {
        let doubled = (2 * self.pause_ms).clamp(limits.backoff_first_ms, limits.backoff_max_ms);
        self.pause_ms = doubled;
        self.state = State::Pausing { until: now + random.random_range(doubled.div_ceil(2)..=doubled) };
    }

    /// Records that a request was denied. The next step asks another member.
    pub(super) fn denied(&mut self, now: u64, request: u64) {
        if matches!(self.state, State::Asking { request: asked, .. } if asked == request) {
            self.denied_at.get_or_insert(now);
            self.state = State::Patient { until: 0 };
        }
    }

    /// Records that a node could not be reached, or is no longer a member.
    pub(super) fn unreachable(&mut self, now: u64, node: NodeId) {
        if let State::Asking { request, victim, .. } = self.state
            && victim == node
        {
            self.denied(now, request);
        }
    }

    /// Records that tasks came from another node. Returns whether they answer the open request.
    pub(super) fn granted(&mut self, request: Option<u64>) -> bool {
        let answers = matches!(self.state, State::Asking { request: asked, .. } if Some(asked) == request);
        self.reset();
        answers
    }

    /// Ends a pause, because there is another member to ask.
    pub(super) fn joined(&mut self) {
        if matches!(self.state, State::Pausing { .. }) {
            self.state = State::Patient { until: 0 };
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Content => None,
            State::Patient { until } | State::Asking { until, .. } | State::Pausing { until } => Some(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const HUNGRY: PoolView = PoolView::idle(2);
    const ONE_IDLE: PoolView = PoolView { idle: 1, ..HUNGRY };
    const FED: PoolView = PoolView { idle: 0, ..HUNGRY };

    struct Desk {
        thief: Thief,
        members: BTreeSet<NodeId>,
        known: BTreeSet<NodeId>,
        near: BTreeSet<NodeId>,
        random: SmallRng,
    }

    impl Desk {
        fn with_members(members: impl IntoIterator<Item = u64>) -> Self {
            let members = members.into_iter().map(NodeId).collect();
            let (known, near) = (BTreeSet::new(), BTreeSet::new());
            Self { thief: Thief::new(0), members, known, near, random: SmallRng::seed_from_u64(7) }
        }

        /// Returns how many of the first requests of a thousand rounds go to nodes of each of these sets.
        fn first_choices(&mut self, sets: [&[u64]; 2]) -> [usize; 2] {
            let (mut now, mut counts) = (0, [0; 2]);
            for _round in 0..1_000 {
                let request = self.step(now, HUNGRY).unwrap();
                for (count, set) in counts.iter_mut().zip(sets) {
                    *count += usize::from(set.contains(&request.to.0));
                }
                self.thief.reset();
                now += 1;
            }
            counts
        }

        fn step(&mut self, now: u64, pool: PoolView) -> Option<Request> {
            let members = Members { all: &self.members, known: &self.known, near: &self.near };
            self.thief.step(now, pool, members, &Limits::default(), &mut self.random)
        }
    }

    #[test]
    fn idle_node_asks_immediately_and_once() {
        let mut desk = Desk::with_members([1]);
        assert_eq!(desk.step(0, HUNGRY), Some(Request { to: NodeId(1), request: 0 }));
        assert_eq!(desk.step(1, HUNGRY), None);
    }

    #[test]
    fn node_with_busy_workers_waits_before_asking() {
        let mut desk = Desk::with_members([1]);
        assert_eq!(desk.step(0, ONE_IDLE), None);
        assert_eq!(desk.step(0, FED), None);
        assert_eq!(desk.step(5, ONE_IDLE), None);
        assert!(desk.step(5 + PATIENCE_MS, ONE_IDLE).is_some());
    }

    #[test]
    fn round_asks_every_member_once_and_pauses_grow() {
        let mut desk = Desk::with_members([1, 2, 3]);
        let (mut now, mut pauses) = (0, Vec::new());
        for _round in 0..8 {
            let mut asked = BTreeSet::new();
            while let Some(request) = desk.step(now, HUNGRY) {
                asked.insert(request.to);
                desk.thief.denied(now, request.request);
            }
            assert_eq!(asked, desk.members);
            let until = desk.thief.deadline().unwrap();
            pauses.push(until - now);
            now = until;
        }
        let limits = Limits::default();
        assert!(pauses[0] <= limits.backoff_first_ms);
        assert!(pauses[7] > limits.backoff_max_ms / 4 && pauses[7] <= limits.backoff_max_ms, "{pauses:?}");
    }

    #[test]
    fn victim_without_answer_is_skipped_after_the_timeout() {
        let mut desk = Desk::with_members([1, 2]);
        let first = desk.step(0, HUNGRY).unwrap();
        let until = desk.thief.deadline().unwrap();
        let second = desk.step(until, HUNGRY).unwrap();
        assert_ne!((first.to, first.request), (second.to, second.request));
        desk.thief.denied(until, first.request);
        assert_eq!(desk.step(until, HUNGRY), None, "a late denial does not disturb the request under way");
    }

    #[test]
    fn commit_of_an_idle_node_waits_for_its_patience() {
        let mut desk = Desk::with_members([1, 2]);
        let limits = Limits::default();
        let first = desk.step(10, HUNGRY).unwrap();
        assert_eq!(desk.thief.commits_at(&limits), None);
        desk.thief.denied(11, first.request);
        let second = desk.step(11, HUNGRY).unwrap();
        desk.thief.denied(12, second.request);
        assert_eq!(desk.thief.commits_at(&limits), Some(11 + limits.commit_patience_ms));
        assert_eq!(desk.step(13, FED), None);
        assert_eq!(desk.thief.commits_at(&limits), None, "there is work again");
    }

    #[test]
    fn near_members_are_preferred_but_not_exclusive() {
        let mut desk = Desk::with_members(1..=20);
        (desk.known, desk.near) = (desk.members.clone(), [1, 2].map(NodeId).into());
        let far: Vec<u64> = (3..=20).collect();
        let [near, far] = desk.first_choices([&[1, 2], &far]);
        assert!(near > 800 && far > 50 && near + far == 1_000, "{near} near, {far} far");
    }

    #[test]
    fn known_members_are_preferred_but_not_exclusive() {
        let mut desk = Desk::with_members(1..=20);
        desk.known = [1, 2].map(NodeId).into();
        let others: Vec<u64> = (3..=20).collect();
        let [known, others] = desk.first_choices([&[1, 2], &others]);
        assert!(known > 800 && others > 50 && known + others == 1_000, "{known} known, {others} others");
    }

    #[test]
    fn round_continues_beyond_the_near_members() {
        let mut desk = Desk::with_members([1, 2, 3, 4]);
        (desk.known, desk.near) = ([1, 2, 3].map(NodeId).into(), [NodeId(1)].into());
        let mut asked = BTreeSet::new();
        while let Some(request) = desk.step(0, HUNGRY) {
            asked.insert(request.to);
            desk.thief.denied(0, request.request);
        }
        assert_eq!(asked, desk.members);
    }

    #[test]
    fn new_member_ends_the_pause() {
        let mut desk = Desk::with_members([]);
        assert_eq!(desk.step(0, HUNGRY), None);
        desk.members.insert(NodeId(9));
        desk.thief.joined();
        assert_eq!(desk.step(0, HUNGRY).map(|r| r.to), Some(NodeId(9)));
    }
}
