//! Recent durations of the calls of each task, of this run of the program and earlier ones.
//!
//! Mean and variance are updated call by call (B. Welford, 1962). After [`REMEMBERED`] calls each new one has the same
//! weight, so older calls are forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::task::{TaskDef, Tasks};

/// The number of calls from which on older ones are forgotten.
const REMEMBERED: u32 = 32;

/// The durations of tasks.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    /// The estimates by the addresses of the tasks.
    of_tasks: BTreeMap<TaskKey, Known>,
    /// Whether an estimate has changed significantly since [`take`](Self::take).
    has_changed: bool,
}

/// The durations of the calls of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    /// The number of calls, up to [`REMEMBERED`].
    calls: u32,
    mean_ns: f64,
    /// The mean square of the differences from the mean.
    variance: f64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    estimate: Estimate,
    /// The mean at the last significant change.
    noted_ns: u64,
}

/// The identity of a task: its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey(usize);

impl TaskKey {
    pub(super) fn of(task: &'static TaskDef) -> Self {
        Self(std::ptr::from_ref(task).addr())
    }
}

impl Estimate {
    /// The estimate before the first call.
    const NOTHING: Self = Self { calls: 0, mean_ns: 0.0, variance: 0.0 };

    fn add(&mut self, ns: u64) {
        self.calls = (self.calls + 1).min(REMEMBERED);
        let weight = 1.0 / f64::from(self.calls);
        let off = ns as f64 - self.mean_ns;
        self.mean_ns += off * weight;
        self.variance += (off * (ns as f64 - self.mean_ns) - self.variance) * weight;
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of durations")]
    pub(super) fn mean_ns(self) -> u64 {
        self.mean_ns.round() as u64
    }

    /// Returns the variance of the total duration of this number of calls: that of each call, and that of the mean. The
    /// spread is unknown after one call, so it counts as large as the mean.
    pub(super) fn variance_of(self, calls: f64) -> f64 {
        let known = f64::from(self.calls.max(1));
        let of_call =
            if self.calls > 1 { self.variance * known / (known - 1.0) } else { self.mean_ns * self.mean_ns };
        of_call * calls * (1.0 + calls / known)
    }
}

impl Durations {
    /// Adds a call. Returns whether the mean of its task has changed significantly.
    pub(super) fn took(&mut self, task: &'static TaskDef, ns: u64) -> bool {
        let first = Known { estimate: Estimate::NOTHING, noted_ns: 0 };
        let Known { estimate, noted_ns } = self.of_tasks.entry(TaskKey::of(task)).or_insert(first);
        let is_more = estimate.calls < REMEMBERED && (estimate.calls + 1).is_power_of_two();
        estimate.add(ns);
        let mean_ns = estimate.mean_ns();
        let has_moved = estimate.calls == 1 || mean_ns.abs_diff(*noted_ns) > *noted_ns / 4;
        if has_moved {
            *noted_ns = mean_ns;
        }
        self.has_changed |= has_moved || is_more;
        has_moved
    }

    /// Returns the number of tasks with an estimate.
    pub(super) fn tasks(&self) -> usize {
        self.of_tasks.len()
    }

    /// Returns the estimate of a task; `None` if no call of it has completed.
    pub(super) fn estimate(&self, task: TaskKey) -> Option<Estimate> {
        self.of_tasks.get(&task).map(|known| known.estimate)
    }

    /// Returns the mean of a task; `None` if no call of it has completed.
    pub(super) fn of(&self, task: TaskKey) -> Option<u64> {
        self.estimate(task).map(Estimate::mean_ns)
    }

    /// Returns the expected duration of a call. For a task without completed calls it is the mean of the tasks.
    pub(super) fn expected_ns(&self, task: &'static TaskDef) -> u64 {
        let mean = || {
            let sum: u64 = self.of_tasks.values().map(|known| known.estimate.mean_ns()).sum();
            sum / (self.of_tasks.len() as u64).max(1)
        };
        self.of(TaskKey::of(task)).unwrap_or_else(mean).max(1)
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns the estimates by the numbers of the tasks.
    pub(crate) fn take(&mut self, tasks: &Tasks) -> Vec<(u32, Estimate)> {
        self.has_changed = false;
        let numbered = (0..).map_while(|number| Some((number, tasks.numbered(number)?)));
        numbered.filter_map(|(number, task)| Some((number, self.estimate(TaskKey::of(task))?))).collect()
    }

    /// Restores the estimates of an earlier run.
    pub(crate) fn recall(&mut self, tasks: &Tasks, estimates: Vec<(u32, Estimate)>) {
        for (number, estimate) in estimates {
            let task = tasks.numbered(number).map(TaskKey::of);
            let known = Known { estimate, noted_ns: estimate.mean_ns() };
            self.of_tasks.extend(task.map(|task| (task, known)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Durations, Estimate, REMEMBERED, TaskKey};
    use crate::task::{NOT_RUN, TaskDef, Tasks};

    static TASKS: [TaskDef; 2] = [TaskDef { name: "align", ..NOT_RUN }, TaskDef { name: "merge", ..NOT_RUN }];

    #[test]
    fn recalled_estimates_replace_first_durations() {
        let tasks = Tasks::new(&TASKS).expect("their names differ");
        let mut before = Durations::default();
        assert!(before.took(&TASKS[1], 7_000), "it is the first one");
        before.took(&TASKS[1], 9_000);
        assert!(before.has_changed());
        let mut durations = Durations::default();
        durations.recall(&tasks, before.take(&tasks));
        assert!(!before.has_changed() && !durations.has_changed());
        assert_eq!(durations.of(TaskKey::of(&TASKS[0])), None);
        assert_eq!(durations.of(TaskKey::of(&TASKS[1])), Some(8_000));
        let variance = |durations: &Durations| {
            durations.estimate(TaskKey::of(&TASKS[1])).map(|estimate| estimate.variance_of(1.0))
        };
        assert_eq!(variance(&durations), variance(&before), "variance and count are kept, too");
        assert!(!durations.took(&TASKS[1], 8_000));
        assert!(durations.took(&TASKS[1], 80_000));
        // A task that this build lacks.
        durations.recall(&tasks, vec![(2, Estimate::NOTHING)]);
    }

    #[test]
    fn mean_and_variance_are_those_of_the_calls() {
        let mut estimate = Estimate::NOTHING;
        (1..=10).for_each(|ns| estimate.add(ns * 100));
        assert_eq!(estimate.mean_ns(), 550);
        // The sample variance of one call, with that of the mean.
        let expected = 82_500.0 * 10.0 / 9.0 * 1.1;
        assert!((estimate.variance_of(1.0) - expected).abs() < 1.0, "{}", estimate.variance_of(1.0));
        assert!(estimate.variance_of(100.0) > 100.0 * estimate.variance_of(1.0), "the mean is uncertain");
    }

    #[test]
    fn durations_of_long_ago_are_forgotten() {
        let mut estimate = Estimate::NOTHING;
        (0..10_000).for_each(|_| estimate.add(1_000));
        (0..6 * REMEMBERED).for_each(|_| estimate.add(9_000));
        assert!(estimate.mean_ns() > 8_900, "{}", estimate.mean_ns());
        assert!(estimate.variance_of(1.0).sqrt() < 1_000.0, "{estimate:?}");
    }
}
