//! Identifiers, each of its own type so that they cannot be confused.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A node: one process (or one node of an embedded run) from its start to its end. A node that comes back
/// gets a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// A task id, unique within the job: the node that created the task and a number that this node never reuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The node that split it off.
    pub node: NodeId,
    /// Its number on that node, from 0.
    pub number: u64,
}

/// One attempt at a job, numbered from 1. The loss of a node that held more than it had written ends an attempt
/// and starts the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl TaskId {
    /// The root task of every job. No node has the id 0.
    pub const ROOT: Self = Self { node: NodeId(0), number: 0 };
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{:016x}", self.0)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.node, self.number)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A text that is not the id of a node, task or job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not the id of a {what}")]
pub struct IdError {
    what: &'static str,
    text: String,
}

impl IdError {
    #[doc(hidden)]
    pub fn new(what: &'static str, text: &str) -> Self {
        Self { what, text: text.to_owned() }
    }
}

impl FromStr for NodeId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.strip_prefix('n')
            .filter(|digits| digits.len() == 16 && !digits.starts_with('+'))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| IdError { what: "node", text: text.to_owned() })
    }
}

impl FromStr for TaskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            let (node, number) = text.split_once('-')?;
            Some(Self { node: node.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or_else(|| IdError { what: "task", text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_round_trips() {
        let task = TaskId { node: NodeId(0xfeed), number: 42 };
        assert_eq!(task.to_string(), "n000000000000feed-42");
        assert_eq!(task.to_string().parse(), Ok(task));
    }

    #[test]
    fn garbage_is_not_an_id() {
        for text in ["", "n", "x0000000000000001", "n1", "n+00000000000000f", "n000000000000feed"] {
            assert!(text.parse::<TaskId>().is_err(), "{text:?}");
        }
    }
}
