//! What a node says of itself at the moment of a report, beside what it has done so far.

use serde::{Deserialize, Serialize};

/// The pool of a node for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolNow {
    /// The number of workers that may work on the job.
    pub workers: u32,
    /// Those of them that have a task.
    pub busy: u32,
    /// The number of queued tasks.
    pub queued: u32,
    /// The number of tasks that wait for others, or for something outside.
    pub waiting: u32,
    /// The number of workers without a task for which none is queued.
    pub hungry: u32,
}

/// Whether small or large numbers are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The less the better.
    Min,
    /// The more the better.
    Max,
}

/// The best value of a variable that a node knows, as a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The number, as people know it.
    pub value: f64,
    /// Whether small or large numbers are better. Outlooks are negated if large ones are.
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

/// The nodes that a node has received tasks from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Givers {
    /// Those that have given the most, at most [`GIVERS_MAX`] of them.
    pub most: Vec<StolenFrom>,
    /// The number of tasks from all others.
    pub rest: u64,
}

/// The maximum number of nodes that are named as those from which tasks came.
pub const GIVERS_MAX: usize = 8;

/// The process of a node, and its machine. `None` is what the system does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessNow {
    /// The memory that the process occupies, in bytes.
    pub resident_bytes: Option<u64>,
    /// The processor time that it has used, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// The average number of processes of the machine that could run, over the last minute.
    pub load: Option<f64>,
}
