//! What a program implements: a [`Task`], with an [`Output`] and [`Variables`] of its own.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::Context,
    output::Output,
    variable::{Suggested, Variables},
};

/// A piece of work that can be searched, and of which a part can be split off (paper, 3.1 and 3.7).
///
/// The runtime calls [`search`](Self::search) on a worker. The search marks, by [`Context::potential_split`],
/// the points at which a part of it could be done elsewhere, and by [`Context::migrate`] the points at which
/// it can be interrupted; the runtime asks for either only when somebody is hungry or the node is leaving.
pub trait Task: Serialize + DeserializeOwned + Send + Sized + 'static {
    /// Read-only data of the whole job, such as a graph. It is sent once per node, not per task.
    type Shared: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What tasks produce. The outputs of all tasks are merged, each exactly once.
    type Output: Output;

    /// Declares the variables that the tasks of this program share. None by default.
    fn variables(_declare: &mut Variables) {}

    /// Works until everything is done, or until [`Context::migrate`] says to stop. In the second case it
    /// returns [`Outcome::Migrate`], and a later call, maybe on another machine, goes on from `self` as it
    /// was left.
    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome;

    /// The best that may be found in the task, for who watches: nothing in it is better than this number,
    /// where less is better. `None` if that is not known. To be had without work: it is asked of tasks that
    /// wait.
    fn outlook(&self) -> Option<f64> {
        None
    }

    /// Takes what a user says to a running job (`taskwork inject`), such as a better solution: reads it,
    /// checks it, and says which variable it is a value of. By default nothing is taken.
    ///
    /// # Errors
    /// Why it is not taken: said to the user.
    fn suggest(_shared: &Self::Shared, _given: serde_json::Value) -> Result<Suggested, String> {
        Err("this program takes no suggestions".to_owned())
    }

    /// Splits off a part of the work, disjoint from what remains, or says `None` if there is nothing worth
    /// giving away.
    fn split(&mut self, shared: &Self::Shared) -> Option<Self>;
}

/// How a call of [`Task::search`] ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything in the task is done.
    Complete,
    /// The task stopped because it was told to, with work left in it.
    Migrate,
}
