//! Recent durations of the calls of each task.

use std::collections::BTreeMap;

use crate::task::TaskDef;

/// The mean times of tasks.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// The means by the addresses of the tasks.
    of_tasks_ns: BTreeMap<TaskKey, u64>,
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
    /// Adds a call. Returns whether it is the first one of its task.
    pub(super) fn took(&mut self, task: &'static TaskDef, ns: u64) -> bool {
        let mut is_first = false;
        let mean_ns = self.of_tasks_ns.entry(TaskKey::of(task)).or_insert_with(|| {
            is_first = true;
            ns
        });
        // A moving average with a weight of an eighth for each call.
        *mean_ns = *mean_ns - *mean_ns / 8 + ns / 8;
        is_first
    }

    /// Returns the mean of a task; `None` if no call of it has completed.
    pub(super) fn of(&self, task: TaskKey) -> Option<u64> {
        self.of_tasks_ns.get(&task).copied()
    }

    /// Returns the expected duration of a call. For a task without completed calls it is the mean of the tasks.
    pub(super) fn expected_ns(&self, task: &'static TaskDef) -> u64 {
        let mean = || self.of_tasks_ns.values().sum::<u64>() / (self.of_tasks_ns.len() as u64).max(1);
        self.of(TaskKey::of(task)).unwrap_or_else(mean).max(1)
    }
}
