//! The numbers of calls, or of parts of searches, that the displays of jobs show for a node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use taskwork::{
    companion::{Companion, CompanionContext, JobStatus, Load, StatusProvider},
    display::{Field, JobDisplay, Unit},
};

/// The numbers of a job on this node, which clones share. Repetitions count again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    running: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Calls or searches that run until this value is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    progress: Progress,
    count: u64,
}

impl Progress {
    /// Counts ends.
    pub(crate) fn add(&self, done: u64, failed: u64) {
        self.0.done.fetch_add(done, Relaxed);
        self.0.failed.fetch_add(failed, Relaxed);
    }

    /// Counts so many as running.
    pub(crate) fn run(&self, count: u64) -> Running {
        self.0.running.fetch_add(count, Relaxed);
        Running { progress: self.clone(), count }
    }

    /// Adds the numbers to a display.
    pub(crate) fn shown(&self, display: JobDisplay) -> JobDisplay {
        let field = |name, count: &AtomicU64| Field::new(name, name, Unit::Count, count.load(Relaxed));
        let running = field("running", &self.0.running).current();
        [field("done", &self.0.done), field("failed", &self.0.failed), running]
            .into_iter()
            .fold(display, JobDisplay::value)
    }

    /// Returns a companion that only provides the status.
    pub(crate) fn companion() -> Companion {
        let progress = Arc::new(Self::default());
        let provider = Arc::downgrade(&progress);
        Companion::new(progress, async move |mut cx: CompanionContext| {
            cx.set_status_provider(provider);
            while cx.next().await.is_some() {}
            Ok(())
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.progress.0.running.fetch_sub(self.count, Relaxed);
    }
}

/// The numbers of direct calls, which are the only work of a node on the service job: it runs no task of this job.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirectCalls(pub(crate) Progress);

impl StatusProvider for DirectCalls {
    fn status(&self) -> Option<JobStatus> {
        self.0.status()
    }

    fn load(&self) -> Load {
        let Numbers { running, done, failed } = &*self.0.0;
        let busy = usize::try_from(running.load(Relaxed)).unwrap_or(usize::MAX);
        Load { busy, ended: done.load(Relaxed) + failed.load(Relaxed), ..Load::default() }
    }
}

impl StatusProvider for Progress {
    fn status(&self) -> Option<JobStatus> {
        Some(JobStatus { rank: 0, display: self.shown(JobDisplay::new()) })
    }
}
