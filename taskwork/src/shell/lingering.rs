//! Threads of earlier seats whose tasks do not stop. A thread cannot be stopped from outside, so the process
//! continues with additional threads.

use std::time::Duration;

use tokio::time;

/// Returns the number of threads of an earlier seat that still run.
pub(crate) type Out = Box<dyn Fn() -> usize + Send + Sync>;

/// The lingering threads of a process.
pub(crate) struct Lingering {
    crews: Vec<Out>,
    /// With more lingering threads the process does not join again, because they occupy the processors.
    threads_max: usize,
}

/// The interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Lingering {
    /// Creates an empty set. The number of lingering threads is limited to the number of the node's workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { crews: Vec::new(), threads_max: workers }
    }

    /// Adds the threads of an abandoned seat.
    pub(crate) fn add(&mut self, out: Out) {
        self.crews.push(out);
    }

    /// Waits until the number of lingering threads is within the limit.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn wait_until_few(&mut self) {
        let mut logged = false;
        loop {
            self.crews.retain(|out| out() > 0);
            let threads: usize = self.crews.iter().map(|out| out()).sum();
            if threads <= self.threads_max {
                if threads > 0 {
                    tracing::warn!(threads, "threads of earlier jobs linger");
                }
                return;
            }
            if !std::mem::replace(&mut logged, true) {
                tracing::error!(
                    threads,
                    threads_max = self.threads_max,
                    "too many threads of earlier jobs linger, since their tasks do not check whether they should \
                     stop; the node waits for them and is not a member until then. Restart the process to \
                     end them"
                );
            }
            time::sleep(LOOK_EVERY).await;
        }
    }
}
