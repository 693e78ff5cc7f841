//! Threads of earlier seats whose tasks do not stop. A thread cannot be ended from outside; the process
//! continues with new threads beside them.

use std::time::Duration;

use tokio::time;

/// Returns the number of threads of an earlier seat that have not ended.
pub(crate) type Out = Box<dyn Fn() -> usize + Send + Sync>;

/// The lingering threads of a process.
pub(crate) struct Lingering {
    crews: Vec<Out>,
    /// With more of them the process does not join again, because they occupy the processors.
    threads_max: usize,
}

/// The interval of checks whether threads have returned.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Lingering {
    /// Creates an empty set. At most as many threads may linger as a node has workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { crews: Vec::new(), threads_max: workers }
    }

    /// Adds the threads of a seat that is given up.
    pub(crate) fn add(&mut self, out: Out) {
        self.crews.push(out);
    }

    /// Waits until few enough threads linger to continue beside them.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn few_enough(&mut self) {
        let mut said = false;
        loop {
            self.crews.retain(|out| out() > 0);
            let threads: usize = self.crews.iter().map(|out| out()).sum();
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
