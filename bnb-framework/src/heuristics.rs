//! Heuristic solutions, concurrently with the search: each node spends a share of its time on rounds of
//! [`construct`](crate::Hooks::construct) and [`improve`](crate::Hooks::improve).
//!
//! The first rounds start shortly after the node has started to search. Each round without an improvement makes the
//! next ones rarer, and an improvement restores the initial frequency. So the cost is negligible in a search that
//! continues for hours after the best solution was found.
//!
//! Workers without a task also run rounds ([`idle`]), all of them at the same time. Their time costs the search
//! nothing, so they have a separate count, and run more rounds without improvement.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskwork::NodeId;

use crate::problem::Problem;

pub(crate) mod idle;

/// The time that a node has searched before its first round.
const BEFORE: Duration = Duration::from_millis(50);
/// The factor by which rounds become rarer after a round without an improvement.
const RARER: f64 = 1.25;
/// The least share of the time, as a share of the chosen one.
const RAREST: f64 = 1.0 / 64.0;
/// The least share of the time of a worker that has no task: it might as well sleep.
const RAREST_IDLE: f64 = 1.0 / 8.0;
/// The least time between two rounds of such a worker: a round that has nothing to do takes none.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The maximum time for rounds that is kept for later.
const LEFT_MAX: Duration = Duration::from_millis(300);
/// The time after which a round is asked to stop.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// When a node makes rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Spent>);

#[derive(Debug)]
struct Spent {
    /// The time that workers have spent in all.
    searched: Duration,
    /// The time for rounds that is left, in seconds; negative if the last one took longer.
    left_s: f64,
    /// The number of rounds so far.
    number: u64,
    /// The share of the time for rounds, as a share of the chosen one.
    eagerness: f64,
    /// Whether a worker that has a task is in a round.
    busy: bool,
    /// The share of the time of workers without a task.
    eagerness_idle: f64,
}

impl Default for Spent {
    fn default() -> Self {
        Self {
            searched: Duration::ZERO,
            left_s: 0.0,
            number: 0,
            eagerness: 1.0,
            busy: false,
            eagerness_idle: 1.0,
        }
    }
}

impl Rounds {
    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the time that a worker has searched. Returns the number of the round that is due, if any; then
    /// [`end`](Self::end) must be called.
    pub(crate) fn begin(&self, share: f64, searched: Duration) -> Option<u64> {
        let mut spent = self.spent();
        spent.searched += searched;
        // One round at a time: many workers together may earn more than it can spend.
        let left_s = spent.left_s + searched.as_secs_f64() * share * spent.eagerness;
        spent.left_s = left_s.min(LEFT_MAX.as_secs_f64());
        if spent.busy || spent.searched < BEFORE || spent.left_s <= 0.0 {
            return None;
        }
        spent.busy = true;
        spent.number += 1;
        Some(spent.number)
    }

    pub(crate) fn end(&self, took: Duration, found: bool) {
        let mut spent = self.spent();
        spent.busy = false;
        spent.left_s -= took.as_secs_f64();
        spent.on_round(found);
        if !found {
            spent.eagerness = (spent.eagerness / RARER).max(RAREST);
        }
    }

    /// Returns the number of a round that is made now by a worker without a task.
    fn number(&self) -> u64 {
        let mut spent = self.spent();
        spent.number += 1;
        spent.number
    }

    /// Ends such a round, which may have been stopped before its end. Returns the time until the next one.
    fn end_idle(&self, took: Duration, found: bool, stopped: bool) -> Duration {
        let mut spent = self.spent();
        spent.on_round(found);
        if !found && !stopped {
            spent.eagerness_idle = (spent.eagerness_idle / RARER).max(RAREST_IDLE);
        }
        took.mul_f64(1.0 / spent.eagerness_idle - 1.0).max(PAUSE_MIN)
    }
}

impl Spent {
    /// Makes rounds as frequent as at first if one has found something, whichever worker has made it.
    fn on_round(&mut self, found: bool) {
        if found {
            (self.eagerness, self.eagerness_idle) = (1.0, 1.0);
        }
    }
}

/// Makes a round: from the best solution known, or, every fourth time and without one, from a new one. Returns a
/// solution with its cost, if it has found any.
pub(crate) fn round<P: Problem>(
    problem: &P,
    best: Option<&P::Solution>,
    node: NodeId,
    number: u64,
    stops: &dyn Fn() -> bool,
) -> Option<(P::Cost, P::Solution)> {
    // Nodes make different rounds.
    let seed = (node.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    let new = || (P::HOOKS.construct)(problem, seed, stops);
    let from = if number % 4 == 1 { new().or_else(|| best.cloned()) } else { best.cloned().or_else(new) }?;
    let found = (P::HOOKS.improve)(problem, &from, seed, stops).unwrap_or(from);
    Some((problem.cost_of(&found)?, found))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{hooks::Hooks, tree::Tree};

    const ROUND: Duration = Duration::from_millis(20);
    const STEP: Duration = Duration::from_millis(5);

    /// Returns the number of rounds in some seconds of searching.
    fn rounds(rounds: &Rounds, seconds: u32, found: bool) -> usize {
        let steps = seconds * 200;
        let made =
            (0..steps).filter(|_| rounds.begin(0.1, STEP).inspect(|_| rounds.end(ROUND, found)).is_some());
        made.count()
    }

    #[test]
    fn rounds_take_their_share_while_they_improve() {
        let made = rounds(&Rounds::default(), 10, true);
        assert!((49..=51).contains(&made), "a tenth of 10 s, 20 ms each: {made}");
        let without = Rounds::default();
        assert!((0..1000).all(|_| without.begin(0.0, STEP).is_none()));
    }

    #[test]
    fn rounds_without_improvement_become_rare() {
        let in_vain = Rounds::default();
        let (first, hour) = (rounds(&in_vain, 10, false), rounds(&in_vain, 3600, false));
        assert!(first < 20 && hour < 300, "{first} in 10 s, {hour} in an hour: a 640th of the time");
        assert!(rounds(&in_vain, 60, true) > 200, "one has found something");
    }

    /// Minimises over numbers; only even ones are solutions.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Even;

    impl Tree for Even {
        type State = ();
        type Children = VecDeque<()>;

        fn root(&self) {}

        fn branch(&self, (): &mut ()) -> VecDeque<()> {
            VecDeque::new()
        }
    }

    impl Problem for Even {
        type Cost = u64;
        type Solution = u64;
        const HOOKS: Hooks<Self> = Hooks::<Self>::new()
            .construct(|_, seed, _| Some(1_000_000 + seed % 1000 * 2))
            .improve(|_, &number, _, _| number.checked_sub(100));

        fn leaf(&self, (): &()) -> Option<u64> {
            None
        }

        fn bound(&self, (): &mut (), _: Option<u64>) -> Option<u64> {
            None
        }

        fn solution(&self, (): &()) -> u64 {
            0
        }

        fn cost_of(&self, number: &u64) -> Option<u64> {
            number.is_multiple_of(2).then_some(*number)
        }
    }

    #[test]
    fn round_improves_best_or_constructs_and_verifies_solutions() {
        let make = |best, number| round(&Even, best, NodeId(7), number, &|| false);
        assert_eq!(make(Some(&500), 2), Some((400, 400)));
        assert_eq!(make(Some(&50), 2), Some((50, 50)), "nothing better was found");
        assert_eq!(make(Some(&501), 2), None, "that is no solution");
        let (new, _) = make(Some(&500), 1).unwrap();
        assert!(new >= 999_900, "every fourth round starts from a new solution");
        assert_eq!(make(Some(&500), 1), make(None, 1), "which one depends on the number of the round");
        assert_ne!(make(None, 1), make(None, 5));
        assert_ne!(make(None, 1), round(&Even, None, NodeId(8), 1, &|| false), "and on the node");
    }

    #[test]
    fn idle_workers_count_own_rounds_and_mostly_sleep_without_improvement() {
        let rounds = Rounds::default();
        assert_eq!(rounds.number(), 1, "before anything was searched, and beside each other");
        assert_eq!(rounds.number(), 2);
        assert_eq!(rounds.end_idle(ROUND, true, false), PAUSE_MIN);
        assert_eq!(rounds.end_idle(ROUND, false, true), PAUSE_MIN, "that it was stopped is not its fault");
        let last = (0..99).map(|_| rounds.end_idle(ROUND, false, false)).last();
        assert_eq!(last, Some(ROUND * 7), "an eighth of the time");
        assert_eq!(rounds.begin(0.1, BEFORE), Some(3));
        rounds.end(ROUND, true);
        assert_eq!(rounds.end_idle(ROUND, false, true), PAUSE_MIN, "another worker has found something");
    }

    #[test]
    fn rounds_are_run_by_one_worker_at_a_time() {
        let rounds = Rounds::default();
        assert_eq!(rounds.begin(0.1, BEFORE / 2), None, "the search has just started");
        assert_eq!(rounds.begin(0.1, BEFORE), Some(1));
        assert_eq!(rounds.begin(0.1, Duration::from_secs(9)), None);
        rounds.end(ROUND, true);
        assert_eq!(rounds.begin(0.1, STEP), Some(2));
    }
}
