//! The interface that a program implements: a [`Task`] with its [`Output`] and [`Variables`].

use std::{sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    companion::Companion,
    context::Context,
    idle::Idle,
    output::Output,
    variable::{Suggested, Variables},
};

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

    /// Declares the variables that the tasks of this program share; by default none.
    fn variables(_declare: &mut Variables) {}

    /// Works until the task is complete or [`Context::migrate`] returns true. In the second case it returns
    /// [`Outcome::Migrate`], and a later call, possibly on another machine, continues from the state left in
    /// `self`.
    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome;

    /// Returns a bound on the best that may be found in the task, for observers: nothing in it is better than
    /// this number, where smaller is better. `None` if no bound is known. Must be cheap: it is called for queued
    /// tasks.
    fn outlook(&self) -> Option<f64> {
        None
    }

    /// Returns the task's rank in the order in which queued tasks are started, and given to other nodes: smaller
    /// numbers first, and equal ones in queue order. By default 0. Must be cheap: it is called
    /// whenever a task is queued.
    fn order(&self) -> u64 {
        0
    }

    /// Returns the companion to run next to the pool of a job, on each node that works on the job. By default none.
    fn companion(_shared: &Arc<Self::Shared>) -> Option<Companion> {
        None
    }

    /// Uses a worker that is idle although the job is not over, for work that helps all tasks but is not a task, such
    /// as the search for a better solution. By default does nothing.
    ///
    /// The worker counts as idle: it takes the next task as soon as this returns, so [`Idle::stops`] must be called
    /// at least every millisecond, and when it returns true this must return soon. Several workers of a node may
    /// call this concurrently. Returns the time after which to call it again if there is still no task then; `None`
    /// means not before the worker has had a task. It is not called on nodes that work on several jobs.
    ///
    /// Neither the result nor the completion of a job may depend on it. If it panics, the job fails.
    fn idle(_idle: &Idle<'_, Self>) -> Option<Duration> {
        None
    }

    /// Parses and checks a suggestion of a user for a running job (`taskwork inject`), such as a better
    /// solution, and returns it as a value of a variable. By default no suggestions are accepted.
    ///
    /// # Errors
    /// The reason for the rejection, which is shown to the user.
    fn suggest(_shared: &Self::Shared, _given: serde_json::Value) -> Result<Suggested, String> {
        Err("this program takes no suggestions".to_owned())
    }

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
