//! Recent durations of the calls of each task, of this run of the program and earlier ones.

use std::collections::BTreeMap;

use crate::task::{TaskDef, Tasks};

/// The mean times of tasks.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    /// The means by the addresses of the tasks.
    of_tasks: BTreeMap<TaskKey, Mean>,
    /// Whether a mean has changed significantly since [`take`](Self::take).
    has_changed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mean {
    ns: u64,
    /// The value at the last significant change.
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

impl Durations {
    /// Adds a call. Returns whether the mean of its task has changed significantly.
    pub(super) fn took(&mut self, task: &'static TaskDef, ns: u64) -> bool {
        let is_first = !self.of_tasks.contains_key(&TaskKey::of(task));
        let mean = self.of_tasks.entry(TaskKey::of(task)).or_insert(Mean { ns, noted_ns: ns });
        // A moving average with a weight of an eighth for each call.
        mean.ns = mean.ns - mean.ns / 8 + ns / 8;
        let has_changed = is_first || mean.ns.abs_diff(mean.noted_ns) > mean.noted_ns / 4;
        if has_changed {
            mean.noted_ns = mean.ns;
            self.has_changed = true;
        }
        has_changed
    }

    /// Returns the number of tasks with a mean.
    pub(super) fn tasks(&self) -> usize {
        self.of_tasks.len()
    }

    /// Returns the mean of a task; `None` if no call of it has completed.
    pub(super) fn of(&self, task: TaskKey) -> Option<u64> {
        self.of_tasks.get(&task).map(|mean| mean.ns)
    }

    /// Returns the expected duration of a call. For a task without completed calls it is the mean of the tasks.
    pub(super) fn expected_ns(&self, task: &'static TaskDef) -> u64 {
        let mean = || {
            let sum: u64 = self.of_tasks.values().map(|mean| mean.ns).sum();
            sum / (self.of_tasks.len() as u64).max(1)
        };
        self.of(TaskKey::of(task)).unwrap_or_else(mean).max(1)
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns the means by the numbers of the tasks.
    pub(crate) fn take(&mut self, tasks: &Tasks) -> Vec<(u32, u64)> {
        self.has_changed = false;
        let numbered = (0..).map_while(|number| Some((number, tasks.numbered(number)?)));
        numbered.filter_map(|(number, task)| Some((number, self.of(TaskKey::of(task))?))).collect()
    }

    /// Restores the means of an earlier run.
    pub(crate) fn recall(&mut self, tasks: &Tasks, means: Vec<(u32, u64)>) {
        for (number, ns) in means {
            let task = tasks.numbered(number).map(TaskKey::of);
            self.of_tasks.extend(task.map(|task| (task, Mean { ns, noted_ns: ns })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Durations, TaskKey};
    use crate::task::{NOT_RUN, TaskDef, Tasks};

    static TASKS: [TaskDef; 2] = [TaskDef { name: "align", ..NOT_RUN }, TaskDef { name: "merge", ..NOT_RUN }];

    #[test]
    fn recalled_means_replace_first_durations() {
        let tasks = Tasks::new(&TASKS).expect("their names differ");
        let mut before = Durations::default();
        assert!(before.took(&TASKS[1], 8_000), "it is the first one");
        assert!(before.has_changed());
        let mut durations = Durations::default();
        durations.recall(&tasks, before.take(&tasks));
        assert!(!before.has_changed() && !durations.has_changed());
        assert_eq!(durations.of(TaskKey::of(&TASKS[0])), None);
        assert_eq!(durations.of(TaskKey::of(&TASKS[1])), Some(8_000));
        assert!(!durations.took(&TASKS[1], 8_000));
        assert!(durations.took(&TASKS[1], 80_000));
        // A task that this build lacks.
        durations.recall(&tasks, vec![(2, 1)]);
    }
}
