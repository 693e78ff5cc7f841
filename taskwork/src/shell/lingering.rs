//! Threads of earlier jobs whose tasks do not stop. A thread cannot be ended from outside; the process
//! continues with new threads beside them.

use std::time::Duration;

use tokio::time;

use crate::pool::Workers;

/// The lingering threads of a process.
pub(crate) struct Lingering {
    workers: Vec<Workers>,
    /// With more of them the process does not join again, because they occupy the processors.
    threads_max: usize,
}

/// The interval of checks whether threads have returned.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Lingering {
    /// Creates an empty set. At most as many threads may linger as a node has workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: Vec::new(), threads_max: workers }
    }

    /// Adds workers that have not returned in time.
    pub(crate) fn add(&mut self, workers: Workers) {
        self.workers.push(workers);
    }

    /// Waits until few enough threads linger to continue beside them.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn few_enough(&mut self) {
        let mut said = false;
        loop {
            self.workers.retain(|workers| workers.out() > 0);
            let threads: usize = self.workers.iter().map(Workers::out).sum();
            if threads <= self.threads_max {
                if threads > 0 {
                    tracing::warn!(threads, "threads of earlier jobs linger");
                }
                return;
            }
            if !std::mem::replace(&mut said, true) {
                tracing::error!(
                    threads,
                    threads_max = self.threads_max,
                    "too many threads of earlier jobs linger, since their tasks do not ask whether they are \
                     to stop; the node waits for them, and is no member meanwhile. To start the process \
                     anew ends them"
                );
            }
            time::sleep(LOOK_EVERY).await;
        }
    }
}
