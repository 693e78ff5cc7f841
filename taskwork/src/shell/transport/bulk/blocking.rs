//! Work that may block its thread: a node's connections share one thread, so this work runs on another one.

use std::io;

use tokio::task;

/// The thread of work that may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// Another thread.
    Elsewhere,
    /// The thread of the connections: a simulated run has no other one.
    Inline,
}

impl Blocking {
    /// Runs work of any size, since even one byte of a file may take long to read or write.
    ///
    /// # Errors
    /// The error of the work; [`io::ErrorKind::Interrupted`] if the runtime shuts down.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        match self {
            Self::Inline => work(),
            Self::Elsewhere => task::spawn_blocking(work)
                .await
                .map_err(|error| io::Error::new(io::ErrorKind::Interrupted, error))?,
        }
    }
}
