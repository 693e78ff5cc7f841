//! How much depends on a call: the time of the longest chain of calls that begins with it.
//!
//! Where many calls could begin, those on the critical path should, or the end of the program consists of chains that
//! nobody can run side by side. A list schedule of a sparse LU factorisation of 64 × 64 blocks on 64 workers takes 401
//! units in this order, and 461 in the order of the program.
//!
//! How long a call will take is told by those of its task that have ended. Levels are rounded to what a call takes that
//! counts: a chain that is longer by less is not more urgent, and calls of one level can be taken in the order that
//! moves least.
//!
//! Calls that are so short that all of them together are nothing beside the others come first, whatever depends on them.
//! They hold up nobody. Left until the end, as the calls of a reduction would be, they come one after another when
//! nothing else is left to do meanwhile, and each costs its messages.
//!
//! A new call can lengthen the chains of all before it, so the levels of all are computed anew, but only when the
//! calls have changed by a share since the last time, or the first call of a task has ended; and when there is a choice
//! at all.

use super::durations::Durations;
use crate::{ids::CallId, task::TaskDef};

/// The least number of new calls after which levels are computed anew.
const NEW_MIN: usize = 64;

/// The level of calls that come first because they are short.
pub(super) const SHORT: u32 = u32::MAX;

/// The share of the time of all calls that those may take which come first because they are short.
const SHORT_SHARE: u64 = 64;

/// The levels of the calls from a number on, as they were when they were last computed.
#[derive(Debug, Default)]
pub(super) struct Levels {
    first: CallId,
    of_calls_ns: Vec<u64>,
    /// How long each of them takes.
    own_ns: Vec<u64>,
    /// A call that takes less comes first.
    short_ns: u64,
    /// The difference of two levels, in nanoseconds.
    step_ns: u64,
    /// The number of calls that were made since then.
    new: usize,
    /// The number of calls that have ended since then.
    ended: usize,
    /// Whether more tasks are known by their times than then.
    has_learnt: bool,
    durations: Durations,
}

impl Levels {
    /// Returns the level of a call. A call that was made since has the least.
    pub(super) fn of(&self, call: CallId) -> u32 {
        if self.at(&self.own_ns, call).is_some_and(|ns| ns < self.short_ns) {
            return SHORT;
        }
        let way_ns = self.way_ns(call);
        let steps = (way_ns + self.step_ns / 2).checked_div(self.step_ns).unwrap_or(0);
        u32::try_from(steps).unwrap_or(u32::MAX).min(SHORT - 1)
    }

    /// Returns the time of the longest chain that begins with a call.
    fn way_ns(&self, call: CallId) -> u64 {
        self.at(&self.of_calls_ns, call).unwrap_or(0)
    }

    fn at(&self, of_calls: &[u64], call: CallId) -> Option<u64> {
        let index = call.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| of_calls.get(index)).copied()
    }

    /// Tells that a call was made.
    pub(super) fn made(&mut self) {
        self.new += 1;
    }

    /// Tells that a call has ended, and how long it has taken.
    pub(super) fn ended(&mut self, task: &'static TaskDef, ns: u64) {
        self.ended += 1;
        self.has_learnt |= self.durations.took(task, ns);
    }

    /// Returns whether levels should be computed anew: so many calls were made or have ended that it costs little for
    /// each. Those that have ended count, since the last calls of a program are few, and come late.
    pub(super) fn are_stale(&self) -> bool {
        self.has_learnt || self.new + self.ended >= NEW_MIN.max(self.of_calls_ns.len() / 4)
    }

    /// Computes all levels anew: `calls` from the last to the first, each with those that read what it writes.
    pub(super) fn compute<S: Iterator<Item = CallId>>(
        &mut self,
        first: CallId,
        end: CallId,
        calls: impl Iterator<Item = (CallId, &'static TaskDef, S)>,
    ) {
        self.first = first;
        (self.new, self.ended, self.has_learnt) = (0, 0, false);
        let len = usize::try_from(end - first).expect("so many calls are in memory");
        for of_calls in [&mut self.of_calls_ns, &mut self.own_ns] {
            of_calls.clear();
            of_calls.resize(len, 0);
        }
        // Each call counts by its time, or many short ones would hide what the long ones take.
        let (mut sum, mut of_squares) = (0_u128, 0_u128);
        for (call, task, successors) in calls {
            let ns = self.durations.expected_ns(task);
            (sum, of_squares) = (sum + u128::from(ns), of_squares + u128::from(ns) * u128::from(ns));
            let index = usize::try_from(call - first).expect("so many calls are in memory");
            self.own_ns[index] = ns;
            self.of_calls_ns[index] =
                successors.map(|successor| self.way_ns(successor)).max().unwrap_or(0) + ns;
        }
        self.step_ns = u64::try_from(of_squares.checked_div(sum).unwrap_or(1)).unwrap_or(u64::MAX);
        let short_ns = self.step_ns / SHORT_SHARE;
        let of_short: u128 = self.own_ns.iter().filter(|ns| **ns < short_ns).map(|ns| u128::from(*ns)).sum();
        self.short_ns = if of_short <= sum / u128::from(SHORT_SHARE) { short_ns } else { 0 };
    }
}
