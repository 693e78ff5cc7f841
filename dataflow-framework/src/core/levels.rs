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
//! A new call can lengthen the chains of all before it, so the levels of all are computed anew, but only when the
//! calls have changed by a share since the last time, or the first call of a task has ended; and when there is a choice
//! at all.

use std::collections::BTreeMap;

use super::call::CallId;
use crate::task::TaskDef;

/// The least number of new calls after which levels are computed anew.
const NEW_MIN: usize = 64;

/// The levels of the calls from a number on, as they were when they were last computed.
#[derive(Debug, Default)]
pub(super) struct Levels {
    first: CallId,
    of_calls_ns: Vec<u64>,
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

/// How long the calls of each task take, of late.
#[derive(Debug, Default)]
struct Durations {
    /// By the addresses of the tasks.
    of_tasks_ns: BTreeMap<usize, u64>,
}

impl Durations {
    /// Takes in a call. Returns whether it is the first one of its task.
    fn took(&mut self, task: &'static TaskDef, ns: u64) -> bool {
        let mut is_first = false;
        let mean_ns = self.of_tasks_ns.entry(std::ptr::from_ref(task).addr()).or_insert_with(|| {
            is_first = true;
            ns
        });
        // An eighth of each call: the mean of the last ones.
        *mean_ns = *mean_ns - *mean_ns / 8 + ns / 8;
        is_first
    }

    /// Returns how long a call will take. One of a task of which none has ended takes as long as the mean of the tasks.
    fn expected_ns(&self, task: &'static TaskDef) -> u64 {
        let known = self.of_tasks_ns.get(&std::ptr::from_ref(task).addr()).copied();
        let mean = || self.of_tasks_ns.values().sum::<u64>() / (self.of_tasks_ns.len() as u64).max(1);
        known.unwrap_or_else(mean).max(1)
    }
}

impl Levels {
    /// Returns the level of a call. A call that was made since has the least.
    pub(super) fn of(&self, call: CallId) -> u32 {
        let way_ns = self.way_ns(call);
        u32::try_from((way_ns + self.step_ns / 2).checked_div(self.step_ns).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Returns the time of the longest chain that begins with a call.
    fn way_ns(&self, call: CallId) -> u64 {
        let index = call.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.of_calls_ns.get(index)).copied().unwrap_or(0)
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
        self.of_calls_ns.clear();
        self.of_calls_ns.resize(usize::try_from(end - first).expect("so many calls are in memory"), 0);
        // Each call counts by its time, or many short ones would hide what the long ones take.
        let (mut sum, mut of_squares) = (0_u128, 0_u128);
        for (call, task, successors) in calls {
            let ns = self.durations.expected_ns(task);
            (sum, of_squares) = (sum + u128::from(ns), of_squares + u128::from(ns) * u128::from(ns));
            let index = usize::try_from(call - first).expect("so many calls are in memory");
            self.of_calls_ns[index] =
                successors.map(|successor| self.way_ns(successor)).max().unwrap_or(0) + ns;
        }
        self.step_ns = u64::try_from(of_squares.checked_div(sum).unwrap_or(1)).unwrap_or(u64::MAX);
    }
}
