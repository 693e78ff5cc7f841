//! Work on a block that may occupy a thread: it runs on another one, since a node's connections share one thread.

use std::io;

use tokio::task;

/// Decides which work runs on another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocking {
    /// The size of a block from which on waking another thread is worth its time, in bytes.
    pub(crate) bytes_min: usize,
}

impl Blocking {
    /// Returns whether work on this number of bytes runs on another thread.
    pub(super) fn is_elsewhere(self, bytes: usize) -> bool {
        bytes >= self.bytes_min
    }

    /// Runs work on this number of bytes.
    ///
    /// # Errors
    /// The error of the work; [`io::ErrorKind::Interrupted`] if the runtime shuts down.
    pub(super) async fn run<T: Send + 'static>(
        self,
        bytes: usize,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if !self.is_elsewhere(bytes) {
            return work();
        }
        task::spawn_blocking(work).await.map_err(|error| io::Error::new(io::ErrorKind::Interrupted, error))?
    }
}
