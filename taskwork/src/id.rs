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

/// A job, by the name of its znode: `j-` and the ten digits of the number assigned at its submission. No
/// other text is a valid id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(pub(crate) String, Number);

/// A job's number. Private, so that every id has been parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number(u64);

/// One attempt at a job, numbered from 1. The loss of a node that held more than it had written ends an attempt
/// and starts the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl TaskId {
    /// The root task of every job. No node has the id 0.
    pub const ROOT: Self = Self { node: NodeId(0), number: 0 };
}

impl JobId {
    /// Returns the name of its znode.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number assigned to the job at its submission, which is unique in the cluster.
    pub(crate) fn number(&self) -> u64 {
        self.1.0
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

/// A text that is not the id of a node, task or job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not the id of a {what}")]
pub struct IdError {
    what: &'static str,
    text: String,
}

impl IdError {
    pub(crate) fn new(what: &'static str, text: &str) -> Self {
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

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        zk::job_number(text)
            .map(|number| Self(text.to_owned(), Number(number)))
            .ok_or_else(|| IdError { what: "job, such as j-0000000003", text: text.to_owned() })
    }
}

impl TryFrom<String> for JobId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(job: JobId) -> Self {
        job.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_number_is_unique_per_job() {
        for (text, number) in [("j-0000000000", 0), ("j-0000000042", 42), ("j-9999999999", 9_999_999_999)] {
            let job: JobId = text.parse().unwrap();
            assert_eq!((job.number(), job.to_string().as_str()), (number, text));
        }
        for text in [
            "",
            "j-",
            "j-x",
            "x",
            "j-3",
            "3",
            "0000000003",
            "k-0000000003",
            "j-+000000003",
            "j-00000000x3",
            "j-0000000003x",
            "j--000000003",
            "j-00000000003",
            "jj-0000000003",
            "j-٠٠٠٠٠٠٠٠٠٣",
        ] {
            let error = text.parse::<JobId>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("j-0000000003"), "{error}");
        }
    }

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
