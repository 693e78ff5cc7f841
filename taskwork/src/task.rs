//! The interface that a program implements: a [`Task`] with its [`Output`] and [`Variables`].

use serde::{Serialize, de::DeserializeOwned};

use crate::{context::Context, hooks::Hooks, output::Output, variable::Variables};

/// A piece of work that can be searched and split (paper, 3.1 and 3.7).
///
/// The runtime calls [`search`](Self::search) on a worker. The search calls [`Context::potential_split`] at
/// points where a part of it could be done elsewhere, and [`Context::migrate`] at points where it can be
/// interrupted; the runtime requests a split only when work is needed, and a stop only when the node is
/// leaving or the job is over.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no task",
    note = "implement `taskwork::Task` for it, with `search` and `split`, and derive `Serialize` and `Deserialize`"
)]
pub trait Task: Serialize + DeserializeOwned + Send + Sized + 'static {
    /// The read-only data of the whole job, such as a graph. It is sent once per node, not per task.
    type Shared: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The output of tasks. The outputs of all tasks are merged, each exactly once.
    type Output: Output;
    /// The optional functions, for frameworks and operators; by default none.
    const HOOKS: Hooks<Self> = Hooks::new();

    /// Declares the variables that the tasks of this program share; by default none.
    fn variables(_declare: &mut Variables) {}

    /// Works until the task is complete or [`Context::migrate`] returns true. In the second case it returns
    /// [`Outcome::Migrate`], and a later call, possibly on another machine, continues from the state left in
    /// `self`.
    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome;

    /// Splits off a part of the work, disjoint from the rest; `None` if no part is worth splitting
    /// off.
    fn split(&mut self, shared: &Self::Shared) -> Option<Self>;
}

/// The outcome of a call of [`Task::search`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The task is complete.
    Complete,
    /// The task stopped as requested, with work left in it.
    Migrate,
    /// The task waits. Its worker continues with other tasks, and [`Task::search`] is called again, possibly on another
    /// machine, with the state left in `self`,
    ///
    /// - if the task has taken a [`waker`](Context::waker) in this call: when that is used, or when the task was
    ///   moved to another node;
    /// - otherwise: when all tasks that it has [spawned](Context::spawn) since its last wait are complete, including
    ///   their descendants.
    ///
    /// If the task has neither taken a waker nor spawned a task, the job fails.
    Wait,
}
