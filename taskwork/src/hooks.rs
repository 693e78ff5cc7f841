//! The optional functions of a task, for frameworks and operators.

use std::{fmt, sync::Arc, time::Duration};

use crate::{companion::Companion, idle::Idle, task::Task, variable::Suggested};

/// The optional functions of a task, mainly for frameworks and operators: [`Task::HOOKS`].
///
/// # Examples
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskwork::{Context, Hooks, Outcome, Task};
///
/// /// Numbers to be tested, the largest of them first.
/// #[derive(Serialize, Deserialize)]
/// struct Numbers {
///     first: u64,
/// }
///
/// impl Task for Numbers {
///     type Shared = ();
///     type Output = u64;
///     const HOOKS: Hooks<Self> = Hooks::<Self>::new().order(|numbers| u64::MAX - numbers.first);
///     // …
/// #     fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome { Outcome::Complete }
/// #     fn split(&mut self, _: &()) -> Option<Self> { None }
/// }
/// ```
pub struct Hooks<T: Task> {
    pub(crate) outlook: fn(&T) -> Option<f64>,
    pub(crate) order: fn(&T) -> u64,
    pub(crate) companion: fn(&Arc<T::Shared>) -> Option<Companion>,
    pub(crate) idle: fn(&Idle<'_, T>) -> Option<Duration>,
    pub(crate) suggest: fn(&T::Shared, serde_json::Value) -> Result<Suggested, String>,
}

impl<T: Task> Hooks<T> {
    /// Returns the defaults of all functions.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            outlook: |_| None,
            order: |_| 0,
            companion: |_| None,
            idle: |_| None,
            suggest: |_, _| Err("this program takes no suggestions".to_owned()),
        }
    }

    /// Sets a bound on the best that may be found in a task, for observers: nothing in the task is better than this
    /// number, where smaller is better. By default no bound is known. It must be cheap: it is called for queued tasks.
    #[must_use]
    pub const fn outlook(mut self, bound: fn(&T) -> Option<f64>) -> Self {
        self.outlook = bound;
        self
    }

    /// Sets the rank of a task in the order in which queued tasks are started, and given to other nodes: smaller numbers
    /// first, and equal ones in queue order. By default 0. It must be cheap: it is called whenever a task is queued.
    #[must_use]
    pub const fn order(mut self, rank: fn(&T) -> u64) -> Self {
        self.order = rank;
        self
    }

    /// Sets the companion to run next to the pool of a job, on each node that works on the job. By default none.
    #[must_use]
    pub const fn companion(mut self, start: fn(&Arc<T::Shared>) -> Option<Companion>) -> Self {
        self.companion = start;
        self
    }

    /// Sets the use of a worker that is idle although the job is not over, for work that helps all tasks but is not a
    /// task, such as the search for a better solution. By default none.
    ///
    /// The worker counts as idle: it takes the next task as soon as this returns, so [`Idle::stops`] must be called
    /// at least every millisecond, and when it returns true this must return soon. Several workers of a node may
    /// call this concurrently. It returns the time after which to call it again if there is still no task then; `None`
    /// means not before the worker has had a task. It is not called on nodes that work on several jobs.
    ///
    /// Neither the result nor the completion of a job may depend on it. If it panics, the job fails.
    #[must_use]
    pub const fn idle(mut self, work: fn(&Idle<'_, T>) -> Option<Duration>) -> Self {
        self.idle = work;
        self
    }

    /// Sets the parser of suggestions of users for a running job (`taskwork inject`), such as a better solution. It
    /// checks one and returns it as a value of a variable, or returns the reason for the rejection, which is shown to the
    /// user. By default no suggestions are accepted.
    #[must_use]
    pub const fn suggest(
        mut self,
        parser: fn(&T::Shared, serde_json::Value) -> Result<Suggested, String>,
    ) -> Self {
        self.suggest = parser;
        self
    }
}

impl<T: Task> Default for Hooks<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Task> fmt::Debug for Hooks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
