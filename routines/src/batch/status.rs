//! The display of a job of calls: each node describes its part.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use taskwork::{
    Companion, CompanionContext, JobStatus, StatusProvider,
    display::{Field, JobDisplay, Unit},
};

use crate::tally::Tally;

/// The calls of a job on this node.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// All calls of the job.
    total: u64,
    counts: Arc<Counts>,
}

/// The numbers of calls on this node. Calls that are repeated count again.
#[derive(Debug, Default)]
pub(super) struct Counts {
    running: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Calls of a frame, which run until this value is dropped.
#[derive(Debug)]
pub(super) struct RunningCalls {
    calls: u64,
    counts: Arc<Counts>,
}

impl Calls {
    /// Returns a companion that only provides the status.
    pub(super) fn companion(total: u64) -> Companion {
        let calls = Arc::new(Self { total, counts: Arc::default() });
        let provider: Weak<Self> = Arc::downgrade(&calls);
        Companion::new(calls, async move |mut cx: CompanionContext| {
            cx.set_status_provider(provider);
            while cx.next().await.is_some() {}
            Ok(())
        })
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Counts {
    /// Counts calls that have results.
    pub(super) fn add(&self, tally: &Tally) {
        let failed = tally.failed.values().sum::<u64>();
        self.done.fetch_add(tally.ended.saturating_sub(failed), Relaxed);
        self.failed.fetch_add(failed, Relaxed);
    }

    pub(super) fn run(self: &Arc<Self>, calls: u64) -> RunningCalls {
        self.running.fetch_add(calls, Relaxed);
        RunningCalls { calls, counts: Arc::clone(self) }
    }
}

impl Drop for RunningCalls {
    fn drop(&mut self) {
        self.counts.running.fetch_sub(self.calls, Relaxed);
    }
}

impl StatusProvider for Calls {
    fn status(&self) -> Option<JobStatus> {
        let Counts { running, done, failed } = &*self.counts;
        let field = |name, count: &AtomicU64| Field::new(name, name, Unit::Count, count.load(Relaxed));
        let counts = [field("done", done), field("failed", failed), field("running", running).current()];
        // Unlike the counts, it is not the sum over the nodes.
        let total = JobDisplay::new().value(Field::new("calls", "calls", Unit::Number, self.total));
        Some(JobStatus { rank: 0, display: counts.into_iter().fold(total, JobDisplay::value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ErrorKind;

    #[test]
    fn status_counts_calls_of_this_node() {
        let calls = Calls { total: 100, counts: Arc::default() };
        let running = calls.counts().run(7);
        let mut tally = Tally::default();
        for failed in [None, None, Some(ErrorKind::User)] {
            tally.count(failed);
        }
        calls.counts.add(&tally);
        let counted = || {
            let display = calls.status().unwrap().display;
            ["calls", "done", "failed", "running"].map(|name| display.count_of(name).unwrap())
        };
        assert_eq!(counted(), [100, 2, 1, 7]);
        drop(running);
        assert_eq!(counted(), [100, 2, 1, 0]);
    }
}
