//! Names of things, each a type of its own so that none is taken for another.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A node: one process (or one node of an embedded run) from its start to its end. A node that comes back gets a
/// new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// A task, unique over the whole job: the node that made it and a number that this node never gives twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The node that split it off.
    pub node: NodeId,
    /// Its number there, from 0.
    pub number: u64,
}

/// A job, by the name of its znode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub String);

/// One attempt at a job, from 1. A lost node ends an attempt and starts the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl TaskId {
    /// The root task of every job. No node has the id 0.
    pub const ROOT: Self = Self { node: NodeId(0), number: 0 };
}

impl JobId {
    /// The number that the job was given at its submission: the digits at the end of its name.
    pub(crate) fn number(&self) -> u64 {
        let digits = self.0.trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap_or(u64::MAX)
    }
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

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A text that names no node, task or attempt.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not the id of a {what}")]
pub struct IdError {
    what: &'static str,
    text: String,
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
    fn an_id_reads_back_as_it_is_written() {
        let task = TaskId { node: NodeId(0xfeed), number: 42 };
        assert_eq!(task.to_string(), "n000000000000feed-42");
        assert_eq!(task.to_string().parse(), Ok(task));
    }

    #[test]
    fn garbage_is_no_id() {
        for text in ["", "n", "x0000000000000001", "n1", "n+00000000000000f", "n000000000000feed"] {
            assert!(text.parse::<TaskId>().is_err(), "{text:?}");
        }
    }
}
