//! The cancellation of running calls.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::failure::{Failed, FailureKind};

/// The interval in which external programs and isolated calls are checked for the cancellation of their call. Only the
/// thread that waits for a process kills it: another one could kill a later process with the same number.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cancellation>>> = const { RefCell::new(None) };
}

/// Whether a running call is cancelled.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    is_cancelled: AtomicBool,
    changed: Notify,
}

impl Cancellation {
    /// Returns the one of the call that this thread runs.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
        self.changed.notify_one();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Relaxed)
    }

    /// Waits until the call is cancelled. Only one waits at a time.
    pub(super) async fn cancelled(&self) {
        while !self.is_cancelled() {
            self.changed.notified().await;
        }
    }

    /// Runs a part of the task of this call.
    pub(super) fn during<R>(self: &Arc<Self>, task: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        // The task does not panic: its panics are caught inside.
        let result = task();
        CURRENT.set(before);
        result
    }
}

/// Returns the failure of a cancelled call.
pub(crate) fn cancelled() -> Failed {
    Failed::of_kind(FailureKind::Cancelled, "it was cancelled")
}

/// Returns whether the output of the call that this thread runs is not needed, since the call was
/// [cancelled](crate::Group::cancel), or the program has ended; `false` if the thread runs no call.
///
/// A task that takes long should check this regularly, and return when it is true, so that its worker becomes free. The
/// returned value does not matter.
///
/// # Examples
/// ```
/// use dataflow_framework::{Failure, Workflow, group, is_cancelled, task, tasks};
///
/// #[task]
/// fn search() -> u64 {
///     let mut tries = 0;
///     while !is_cancelled() {
///         tries += 1;
///     }
///     tries
/// }
///
/// Workflow::new(tasks![search])?.run(|| {
///     let (searches, _) = group(|| (search(), search()));
///     searches.cancel();
///     searches.wait()
/// })?;
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| current.is_cancelled()))
}
