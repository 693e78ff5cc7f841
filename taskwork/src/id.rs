//! Identifiers, each of its own type so that they cannot be confused.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use taskwork_core::id::{Attempt, IdError, NodeId, TaskId};

/// A job, by the name of its znode: `j-` and the ten digits of the number assigned at its submission. No
/// other text is a valid id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(pub(crate) String, Number);

/// A job's number. Private, so that every id has been parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number(u64);

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

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        zk::job_number(text)
            .map(|number| Self(text.to_owned(), Number(number)))
            .ok_or_else(|| IdError::new("job, such as j-0000000003", text))
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
}
