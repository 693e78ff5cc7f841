//! The state of a node at the time of a report, in addition to its cumulative figures.

use serde::{Deserialize, Serialize};

/// The pool of a node for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolNow {
    /// The number of workers that may work on the job.
    pub workers: u32,
    /// The number of these workers that have a task.
    pub busy: u32,
    /// The number of queued tasks.
    pub queued: u32,
    /// The number of tasks that wait for other tasks, or for external events.
    pub waiting: u32,
    /// The number of workers without a task for which none is queued.
    pub hungry: u32,
}

/// Whether small or large numbers are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// Smaller values are better.
    Min,
    /// Larger values are better.
    Max,
}

/// The best value of a variable that a node knows, as a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The number, in the user's units.
    pub value: f64,
    /// Whether small or large numbers are better. If large ones are, outlooks are negated.
    pub sense: Sense,
    /// The name of the variable.
    pub name: String,
}

/// The tasks that a node has received from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StolenFrom {
    /// The other node.
    pub node: String,
    /// The number of tasks.
    pub tasks: u64,
}

/// The nodes from which a node has received tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Givers {
    /// The nodes that have given the most tasks, at most [`GIVERS_MAX`].
    pub most: Vec<StolenFrom>,
    /// The number of tasks from all other nodes.
    pub rest: u64,
}

/// The maximum number of nodes listed as givers.
pub const GIVERS_MAX: usize = 8;

/// The process of a node, and its machine. Figures that the system does not provide are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessNow {
    /// The memory that the process occupies, in bytes.
    pub resident_bytes: Option<u64>,
    /// The processor time used by the process, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// The average number of runnable processes of the machine, over the last minute.
    pub load: Option<f64>,
}
