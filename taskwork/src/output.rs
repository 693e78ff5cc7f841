//! The output of a program's tasks.

use serde::{Serialize, de::DeserializeOwned};

/// The output of tasks: a commutative monoid, with `Default` as its neutral element.
///
/// Merging must not depend on order or grouping, since tasks complete in any order, anywhere.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of tasks",
    note = "implement `taskwork::Output` for it, with `merge`, and derive `Default`, `Serialize` and `Deserialize`"
)]
pub trait Output: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Adds the output of another task.
    fn merge(&mut self, other: Self);

    /// Returns the reason if this output of all tasks means that the program has failed. The job is then recorded as
    /// failed; its [report](crate::Report) still has the output. By default no output is a failure.
    ///
    /// Unlike [`Context::fail`](crate::Context::fail), this counts only once the task is committed, so a task that runs
    /// twice for a short time, on a node that is about to be declared lost, does not fail the job.
    fn failure(&self) -> Option<String> {
        None
    }
}

impl Output for () {
    fn merge(&mut self, (): Self) {}
}

impl Output for u64 {
    /// Adds the two; the sum saturates at `u64::MAX`.
    fn merge(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}
