//! What the protocol sees of a node's pool: it comes with each event.

/// A pool at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PoolView {
    /// Its workers.
    pub(crate) workers: usize,
    /// Those without a task.
    pub(crate) idle: usize,
    /// Tasks that wait for a worker.
    pub(crate) queued: usize,
    /// Those of them that are too large to be sent: they stay here.
    pub(crate) staying: usize,
    /// Whether no task may begin.
    pub(crate) stopped: bool,
    /// Ids that are to be committed.
    pub(crate) batch_ids: usize,
    /// Batches that they are in.
    pub(crate) batches: usize,
}

impl PoolView {
    /// A worker waits, and nothing is queued for it.
    pub(crate) fn is_hungry(&self) -> bool {
        self.queued == 0 && self.idle > 0 && !self.stopped
    }

    /// Tasks that are queued for nobody here. The others are about to be begun: were they given away, the
    /// last task of a job could go round among hungry nodes for ever, and nobody would work on it.
    pub(crate) fn spare(&self) -> usize {
        self.spared().min(self.queued.saturating_sub(self.staying))
    }

    fn spared(&self) -> usize {
        self.queued.saturating_sub(self.idle)
    }

    /// Nothing runs and nothing is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued == 0 && self.idle == self.workers
    }

    /// Nothing runs, and nothing will begin.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stopped && self.idle == self.workers
    }
}
