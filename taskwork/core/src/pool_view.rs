//! The protocol's view of a node's pool, which comes with each event.

use crate::id::TaskId;

/// A pool at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolView {
    pub workers: usize,
    /// The number of workers without a task.
    pub idle: usize,
    pub queued: usize,
    /// The number of tasks that wait for others, or for an external event.
    pub waiting: usize,
    /// The first task that has waited, could continue, and waits for its trial.
    pub untried: Option<TaskId>,
    /// The number of queued tasks that are too large to be sent.
    pub staying: usize,
    /// Whether no task may start.
    pub stopped: bool,
    /// The number of ids to commit.
    pub batch_ids: usize,
}

impl PoolView {
    /// Returns the view of an empty pool.
    #[cfg(test)]
    pub const fn idle(workers: usize) -> Self {
        Self {
            workers,
            idle: workers,
            queued: 0,
            waiting: 0,
            untried: None,
            staying: 0,
            stopped: false,
            batch_ids: 0,
        }
    }

    /// Returns whether a worker waits and no task is queued for it.
    pub fn is_hungry(&self) -> bool {
        self.queued == 0 && self.idle > 0 && !self.stopped
    }

    /// Returns the number of queued tasks beyond those for idle workers. Those are about to start: if they
    /// were given away, the last task of a job could circulate among hungry nodes forever without being run.
    pub fn spare(&self) -> usize {
        self.spared().min(self.queued.saturating_sub(self.staying))
    }

    fn spared(&self) -> usize {
        self.queued.saturating_sub(self.idle)
    }

    /// Returns whether no task runs or is queued.
    pub fn is_idle(&self) -> bool {
        self.queued == 0 && self.idle == self.workers
    }

    /// Returns whether no task runs, and none will start.
    pub fn is_quiet(&self) -> bool {
        self.stopped && self.idle == self.workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_for_idle_workers_and_too_large_ones_are_not_spare() {
        let view =
            |idle, queued, staying| PoolView { workers: 4, idle, queued, staying, ..PoolView::default() };
        assert_eq!(view(0, 5, 0).spare(), 5);
        assert_eq!(view(2, 5, 0).spare(), 3);
        assert_eq!(view(2, 1, 0).spare(), 0, "the last task starts here");
        assert_eq!(view(0, 5, 2).spare(), 3);
        assert_eq!(view(1, 5, 2).spare(), 3, "an idle worker may take one that cannot be sent");
    }
}
