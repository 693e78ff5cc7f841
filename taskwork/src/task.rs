//! What a program implements: a [`Task`] with its [`Output`] and [`Variables`].

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
pub trait Task: Serialize + DeserializeOwned + Send + Sized + 'static {
    /// The read-only data of the whole job, such as a graph. It is sent once per node, not per task.
    type Shared: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What tasks produce. The outputs of all tasks are merged, each exactly once.
    type Output: Output;

    /// Declares the variables that the tasks of this program share; by default none.
    fn variables(_declare: &mut Variables) {}

    /// Works until everything is done or [`Context::migrate`] returns true. In the second case it returns
    /// [`Outcome::Migrate`], and a later call, possibly on another machine, continues from `self` as it was
    /// left.
    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome;

    /// Returns a bound on the best that may be found in the task, for observers: nothing in it is better than
    /// this number, where less is better. `None` if it is not known. Must be cheap: it is called for queued
    /// tasks.
    fn outlook(&self) -> Option<f64> {
        None
    }

    /// Returns the task's place in the order in which queued tasks begin, and are given to other nodes: smaller
    /// numbers first, and of equal ones the task that was queued first. By default 0. Must be cheap: it is called
    /// whenever a task is queued.
    fn order(&self) -> u64 {
        0
    }

    /// Returns what is to run beside the pool of a job, on each node that works on the job. By default nothing.
    fn companion(_shared: &Arc<Self::Shared>) -> Option<Companion> {
        None
    }

    /// Uses a worker that has had no task for some time, while the job goes on elsewhere; for what helps all tasks
    /// but is none, such as the search for a better solution. By default nothing.
    ///
    /// The worker remains idle: it takes the next task as soon as this returns, so [`Idle::stops`] must be called
    /// at least every millisecond or so, and when it returns true this must return soon. Several workers of a node may
    /// be in it at the same time. Returns after how long to call it again if there is still no task then; `None` for
    /// not before the worker has had one. It is not called on nodes that work on several jobs.
    ///
    /// Nothing may depend on it, neither what a job computes nor that it ends. If it panics, the job fails.
    fn idle(_idle: &Idle<'_, Self>) -> Option<Duration> {
        None
    }

    /// Reads and checks a suggestion that a user gives to a running job (`taskwork inject`), such as a better
    /// solution, and returns it as a value of a variable. By default no suggestions are accepted.
    ///
    /// # Errors
    /// The reason for the rejection, which is shown to the user.
    fn suggest(_shared: &Self::Shared, _given: serde_json::Value) -> Result<Suggested, String> {
        Err("this program takes no suggestions".to_owned())
    }

    /// Splits off a part of the work, disjoint from what remains; `None` if there is nothing worth splitting
    /// off.
    fn split(&mut self, shared: &Self::Shared) -> Option<Self>;
}

/// How a call of [`Task::search`] ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything in the task is done.
    Complete,
    /// The task stopped as requested, with work left in it.
    Migrate,
    /// The task waits. Its worker goes on with other tasks, and [`Task::search`] is called again, possibly on another
    /// machine, with `self` as it was left,
    ///
    /// - if the task has taken a [`waker`](Context::waker) in this call: when that is used, or when the task was
    ///   moved to another node;
    /// - otherwise: when everything is complete that the task has [spawned](Context::spawn) since it last waited for
    ///   that, and all that has come of it.
    ///
    /// If the task has neither taken a waker nor spawned anything, the job fails.
    Wait,
}
