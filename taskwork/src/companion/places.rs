//! The places of workers that a companion may use for threads of its own.

use std::{fmt, sync::Arc};

/// The places of a node's workers for the computing threads of a companion: see
/// [`CompanionContext::places`](super::CompanionContext::places). Clones are of the same places.
#[derive(Clone)]
pub struct Places(pub(crate) Arc<dyn Supply>);

/// The supply of places by the workers of a node.
pub(crate) trait Supply: Send + Sync {
    fn open(self: Arc<Self>, on_granted: Box<dyn Fn() + Send + Sync>);
    fn limit(&self) -> usize;
    fn set_waiting(&self, waiting: usize);
    fn set_used(&self, used: usize);
}

impl Places {
    /// Lets workers come, and calls a function after each arrival, on another thread. The function may take locks that are
    /// held during calls of the other methods. Further calls have no effect.
    pub fn open(&self, on_granted: impl Fn() + Send + Sync + 'static) {
        Arc::clone(&self.0).open(Box::new(on_granted));
    }

    /// Returns the maximum number of threads that may compute now. A thread that computes while the number decreases
    /// completes its piece of work.
    pub fn limit(&self) -> usize {
        self.0.limit()
    }

    /// Sets the number of pieces of work that wait for a thread.
    pub fn set_waiting(&self, waiting: usize) {
        self.0.set_waiting(waiting);
    }

    /// Sets the number of computing threads. Cheap if it has not changed since the last call.
    pub fn set_used(&self, used: usize) {
        self.0.set_used(used);
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("limit", &self.limit()).finish_non_exhaustive()
    }
}
