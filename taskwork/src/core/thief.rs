//! The thief's side of stealing: whom to ask, and when (paper, 3.3).
//!
//! A node whose workers are all idle asks a random member at once. A node with busy workers first waits a
//! moment, because usually one of its own tasks is split meanwhile. When denied, it asks the next member;
//! after a round of denials it pauses, each time longer, so that hungry nodes do not disturb the last tasks
//! of a job.

use std::collections::BTreeSet;

use rand::{Rng, rngs::SmallRng, seq::IteratorRandom};

use super::pool_view::PoolView;
use crate::{config::Limits, id::NodeId};

/// The state of the thief.
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

/// A steal request to be sent.
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

    /// Returns when to commit completed work because no more tasks may come: some time after the first
    /// unsuccessful request. Not at once: among many small tasks a node is idle every few milliseconds, and a
    /// commit is the most expensive operation.
    pub(super) fn commits_at(&self, limits: &Limits) -> Option<u64> {
        self.denied_at.map(|at| at + limits.commit_patience_ms)
    }

    /// Decides what to do in the current state of the pool.
    pub(super) fn step(
        &mut self,
        now: u64,
        pool: PoolView,
        members: &BTreeSet<NodeId>,
        limits: &Limits,
        random: &mut SmallRng,
    ) -> Option<Request> {
        if !pool.is_hungry() {
            self.content();
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

    /// Stops asking, because no worker is hungry any more. An outstanding answer will still be accepted.
    fn content(&mut self) {
        self.state = State::Content;
        self.asked.clear();
        self.pause_ms = 0;
        self.denied_at = None;
    }

    fn ask(
        &mut self,
        now: u64,
        members: &BTreeSet<NodeId>,
        limits: &Limits,
        random: &mut SmallRng,
    ) -> Option<Request> {
        let left = members.difference(&self.asked).copied();
        match left.choose(random) {
            Some(victim) if self.asked.len() < limits.round_requests_max => {
                let request = self.next_request;
                self.next_request += 1;
                self.asked.insert(victim);
                self.state = State::Asking { request, victim, until: now + limits.steal_answer_ms };
                Some(Request { to: victim, request })
            }
            _ => {
                self.pause(now, limits, random);
                None
            }
        }
    }

    /// Pauses for between half and the whole of a time that doubles, so that hungry nodes do not act in step.
    fn pause(&mut self, now: u64, limits: &Limits, random: &mut SmallRng) {
        let doubled = (2 * self.pause_ms).clamp(limits.backoff_first_ms, limits.backoff_max_ms);
        self.pause_ms = doubled;
        self.state = State::Pausing { until: now + random.random_range(doubled.div_ceil(2)..=doubled) };
    }

    /// Notes that a request was denied. The next step asks another member.
    pub(super) fn denied(&mut self, now: u64, request: u64) {
        if matches!(self.state, State::Asking { request: asked, .. } if asked == request) {
            self.denied_at.get_or_insert(now);
            self.state = State::Patient { until: 0 };
        }
    }

    /// Notes that a node could not be reached, or is no longer a member.
    pub(super) fn unreachable(&mut self, now: u64, node: NodeId) {
        if let State::Asking { request, victim, .. } = self.state
            && victim == node
        {
            self.denied(now, request);
        }
    }

    /// Notes that tasks came from another node. Returns whether they answer the open request.
    pub(super) fn granted(&mut self, request: Option<u64>) -> bool {
        let answers = matches!(self.state, State::Asking { request: asked, .. } if Some(asked) == request);
        self.content();
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

    const HUNGRY: PoolView =
        PoolView { workers: 2, idle: 2, queued: 0, staying: 0, stopped: false, batch_ids: 0 };
    const ONE_IDLE: PoolView = PoolView { idle: 1, ..HUNGRY };
    const FED: PoolView = PoolView { idle: 0, ..HUNGRY };

    struct Desk {
        thief: Thief,
        members: BTreeSet<NodeId>,
        random: SmallRng,
    }

    impl Desk {
        fn with_members(members: impl IntoIterator<Item = u64>) -> Self {
            let members = members.into_iter().map(NodeId).collect();
            Self { thief: Thief::new(0), members, random: SmallRng::seed_from_u64(7) }
        }

        fn step(&mut self, now: u64, pool: PoolView) -> Option<Request> {
            self.thief.step(now, pool, &self.members, &Limits::default(), &mut self.random)
        }
    }

    #[test]
    fn an_idle_node_asks_at_once_and_only_once() {
        let mut desk = Desk::with_members([1]);
        assert_eq!(desk.step(0, HUNGRY), Some(Request { to: NodeId(1), request: 0 }));
        assert_eq!(desk.step(1, HUNGRY), None);
    }

    #[test]
    fn a_node_with_work_of_its_own_is_patient_first() {
        let mut desk = Desk::with_members([1]);
        assert_eq!(desk.step(0, ONE_IDLE), None);
        assert_eq!(desk.step(0, FED), None);
        assert_eq!(desk.step(5, ONE_IDLE), None);
        assert!(desk.step(5 + PATIENCE_MS, ONE_IDLE).is_some());
    }

    #[test]
    fn a_round_asks_everybody_once_and_then_pauses_longer_and_longer() {
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
    fn a_victim_that_does_not_answer_is_given_up() {
        let mut desk = Desk::with_members([1, 2]);
        let first = desk.step(0, HUNGRY).unwrap();
        let until = desk.thief.deadline().unwrap();
        let second = desk.step(until, HUNGRY).unwrap();
        assert_ne!((first.to, first.request), (second.to, second.request));
        desk.thief.denied(until, first.request);
        assert_eq!(desk.step(until, HUNGRY), None, "a late denial does not disturb the request under way");
    }

    #[test]
    fn a_commit_waits_until_nothing_has_come_for_a_while() {
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
    fn a_newcomer_ends_the_pause() {
        let mut desk = Desk::with_members([]);
        assert_eq!(desk.step(0, HUNGRY), None);
        desk.members.insert(NodeId(9));
        desk.thief.joined();
        assert_eq!(desk.step(0, HUNGRY).map(|r| r.to), Some(NodeId(9)));
    }
}
