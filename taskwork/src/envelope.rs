//! A task on its way: between nodes, or parked in `ZooKeeper`.

use serde::{Deserialize, Serialize};

use crate::id::TaskId;

/// A task as bytes, with everything that must go where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    /// The task's id; it keeps it wherever it goes.
    pub(crate) id: TaskId,
    /// The ids of the tasks that were split from it so far. They are toggled when it completes, wherever that
    /// is: were they toggled where the split happened, the list could be empty while a child still runs.
    pub(crate) children: Vec<TaskId>,
    /// What it has produced so far, encoded.
    pub(crate) output: Vec<u8>,
    /// The task itself, encoded.
    pub(crate) task: Vec<u8>,
}
