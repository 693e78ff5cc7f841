//! The state of a running call that its task can query: on the thread that runs the task, or polls its future.

use std::sync::Arc;

use tokio::time::Instant;

use super::{cancellation::Cancellation, deadline, once};
use crate::file::trouble;

/// The state of a running call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    pub(crate) deadline: Option<Instant>,
    pub(crate) once_token: Option<u128>,
    pub(crate) cancellation: Arc<Cancellation>,
}

impl Context {
    /// Runs a part of the task on this thread, which does not panic. Also returns whether it had a file error.
    pub(super) fn during<R>(&self, task: impl FnOnce() -> R) -> (R, bool) {
        let task = || self.cancellation.during(task);
        trouble::during(|| deadline::during(self.deadline, || once::during(self.once_token, task)))
    }
}
