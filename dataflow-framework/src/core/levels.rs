//! The priority of a call: the duration of the longest chain of calls that starts with it.
//!
//! Ready calls on the critical path should start first; otherwise the program ends with chains
//! that cannot run in parallel. A list schedule of a sparse LU factorisation of 64 × 64 blocks on 64 workers
//! takes 401 units in this order, and 461 in the order of the program.
//!
//! The expected duration of a call comes from the completed calls of its task. Levels are rounded to the
//! duration of a significant call: a chain that is longer by less is not more urgent, and calls of one level
//! can run in the order that moves the least data.
//!
//! Calls that are negligible even in total run first, whatever depends on them, since they delay no other call.
//! At the end, as the calls of a reduction would be, they would run one after another without other work in
//! parallel, and each would cost its messages.
//!
//! A new call can lengthen the chains of all earlier calls, so all levels are recomputed, but only when a share
//! of the calls has changed since the last time, or the first call of a task has completed; and only if several
//! calls are ready.

use super::durations::Durations;
use crate::{ids::CallId, task::TaskDef};

/// The minimum number of new calls before levels are recomputed.
const NEW_MIN: usize = 64;

/// The level of calls that come first because they are short.
pub(super) const SHORT: u32 = u32::MAX;

/// The maximum share of the time of all calls for the calls that run first because they are short, as a
/// divisor.
const SHORT_SHARE: u64 = 64;

/// The levels of the calls from a number on, at the time of the last computation.
#[derive(Debug, Default)]
pub(super) struct Levels {
    first: CallId,
    of_calls_ns: Vec<u64>,
    /// The duration of each call.
    own_ns: Vec<u64>,
    /// A call with a shorter duration runs first.
    short_ns: u64,
    /// The difference between two levels, in nanoseconds.
    step_ns: u64,
    /// The number of calls made since then.
    new: usize,
    /// The number of calls completed since then.
    ended: usize,
    /// The number of tasks whose durations were known then.
    tasks: usize,
}

impl Levels {
    /// Returns the level of a call. A call made since the last computation has the lowest.
    pub(super) fn of(&self, call: CallId) -> u32 {
        if self.at(&self.own_ns, call).is_some_and(|ns| ns < self.short_ns) {
            return SHORT;
        }
        let way_ns = self.way_ns(call);
        let steps = (way_ns + self.step_ns / 2).checked_div(self.step_ns).unwrap_or(0);
        u32::try_from(steps).unwrap_or(u32::MAX).min(SHORT - 1)
    }

    fn way_ns(&self, call: CallId) -> u64 {
        self.at(&self.of_calls_ns, call).unwrap_or(0)
    }

    fn at(&self, of_calls: &[u64], call: CallId) -> Option<u64> {
        let index = call.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| of_calls.get(index)).copied()
    }

    pub(super) fn made(&mut self) {
        self.new += 1;
    }

    pub(super) fn ended(&mut self) {
        self.ended += 1;
    }

    /// Returns whether to recompute the levels: enough calls were made or have completed to amortize the cost.
    /// Completed calls count because the last calls of a program are few, and come late.
    pub(super) fn are_stale(&self, durations: &Durations) -> bool {
        durations.tasks() != self.tasks || self.new + self.ended >= NEW_MIN.max(self.of_calls_ns.len() / 4)
    }

    /// Recomputes all levels: `calls` from the last to the first, each with the readers of its output.
    pub(super) fn compute<S: Iterator<Item = CallId>>(
        &mut self,
        first: CallId,
        end: CallId,
        durations: &Durations,
        calls: impl Iterator<Item = (CallId, &'static TaskDef, S)>,
    ) {
        self.first = first;
        (self.new, self.ended, self.tasks) = (0, 0, durations.tasks());
        let len = usize::try_from(end - first).expect("so many calls are in memory");
        for of_calls in [&mut self.of_calls_ns, &mut self.own_ns] {
            of_calls.clear();
            of_calls.resize(len, 0);
        }
        // Each call is weighted by its duration, so that many short calls do not hide the duration of long
        // ones.
        let (mut sum, mut of_squares) = (0_u128, 0_u128);
        for (call, task, successors) in calls {
            let ns = durations.expected_ns(task);
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

#[cfg(test)]
mod tests {
    use super::{
        super::{
            NewCall,
            graph_tests::{assigned, graph_of, new_call, version},
        },
        Durations,
    };
    use crate::{
        ids::{Argument, CallId},
        options::Options,
        task::{NOT_RUN, TaskDef, Tasks},
    };

    static TASKS: [TaskDef; 1] = [TaskDef { name: "align", ..NOT_RUN }];

    #[test]
    fn recalled_durations_order_the_first_calls() {
        let mut graph = graph_of([1]);
        let tasks = Tasks::new(&TASKS).expect("there is one");
        let mut earlier = Durations::default();
        earlier.took(&TASKS[0], 1_000_000);
        graph.durations().recall(&tasks, earlier.take(&tasks));
        let reads: [&[CallId]; 5] = [&[], &[], &[], &[2], &[3]];
        for (id, reads) in (0..).zip(reads) {
            let arguments = reads.iter().map(|read| Argument::Read(version(*read, 0))).collect();
            graph.call(id, NewCall { task: &TASKS[0], ..new_call(arguments, 1, Options::DEFAULT) });
        }
        assert_eq!(assigned(&mut graph)[0], 2, "the longest chain starts with it");
    }
}
