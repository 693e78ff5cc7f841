//! The steps of a task that makes calls, and the answers to it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    failure::ToldFailure,
    ids::{Argument, VersionId},
    options::Options,
    task::TaskDef,
};

/// A step of the task of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Make the first step of this execution.
    Begin,
    /// Make a call, and then drop handles.
    Call(TaskCall, Vec<VersionId>),
    /// Create data on its node: the size, and the hash of the content.
    Bring {
        position: u64,
        bytes: u64,
        content: u128,
    },
    Retain(VersionId),
    Release(VersionId),
    /// Wait for a value.
    Get(VersionId),
    /// Confirm the receipt of the value.
    Got,
    /// Wait until its calls in these positions have ended, and receive their failures or not.
    Wait(Range<u64>, bool),
    /// Cancel its calls in these positions that have not started.
    Cancel(Range<u64>),
    /// Declare its calls in these positions a group, with calls whose failure cancels the others.
    Group(Range<u64>),
    /// End, and forward these versions as its own output, by their slots.
    HandOn(Vec<(u32, VersionId)>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskCall {
    pub(crate) position: u64,
    /// The number of the task in the table of the program.
    pub(crate) number: u32,
    /// The task, if it is called on this node.
    #[serde(skip)]
    pub(crate) task: Option<&'static TaskDef>,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) writes: u32,
    /// The reason why it cannot run, if there is one.
    pub(crate) refused: Option<String>,
}

/// The answer to a task that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The value has failed.
    Failed(ToldFailure),
    /// Its calls have ended; the first of the failures that it receives.
    Ended(Option<ToldFailure>),
    /// The execution is no longer needed.
    Over,
}
