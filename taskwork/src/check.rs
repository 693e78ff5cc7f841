//! Runs a small job with its tasks interrupted, sent and split far more often than on a cluster, and compares the
//! results.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{job::Job, pool, report::Report, task::Task, wire::codec};

/// The disturbance of a job's tasks in one run of a [check].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drill {
    sends: bool,
    splits: bool,
    /// 0 for never.
    every: u64,
}

impl Drill {
    const NOTHING: Self = Self { sends: false, splits: false, every: 0 };
    /// From the mildest to the severest: the first that fails describes the mistake best.
    const ALL: [Self; 7] = [
        Self { sends: true, ..Self::NOTHING },
        Self { splits: true, ..Self::NOTHING },
        Self { every: 100, sends: true, ..Self::NOTHING },
        Self { every: 10, sends: true, ..Self::NOTHING },
        Self { every: 3, sends: true, ..Self::NOTHING },
        Self { every: 2, sends: true, ..Self::NOTHING },
        Self { every: 3, sends: true, splits: true },
    ];

    pub(crate) fn sends(self) -> bool {
        self.sends
    }

    pub(crate) fn splits(self) -> bool {
        self.splits
    }

    pub(crate) fn every(self) -> u64 {
        self.every
    }
}

impl fmt::Display for Drill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.sends {
            parts.push("the shared data and all tasks are sent to another node".to_owned());
        }
        if self.every > 0 {
            parts.push(format!("tasks are interrupted at poll {} of migrate()", self.every));
        }
        if self.splits {
            parts.push("tasks are split at every potential_split()".to_owned());
        }
        if parts.is_empty() {
            return f.write_str("nothing is done to the tasks");
        }
        f.write_str(&parts.join(", "))
    }
}

/// A mistake in a program that a [check] has found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The job has another result.
    #[error(
        "the result depends on how the tasks are run. If {drill}, it is {found}; undisturbed, it is {expected}"
    )]
    Differs {
        /// The disturbance.
        drill: Drill,
        /// The result of the undisturbed run.
        expected: String,
        /// The result of the disturbed run.
        found: String,
    },
    /// The job fails.
    #[error("the job fails if {drill}: {reason}")]
    Failed {
        /// The disturbance.
        drill: Drill,
        /// The reason.
        reason: String,
    },
}

/// The reasons why a value cannot reach another node.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SentError {
    /// It has no encoded form.
    #[error("cannot be sent: {reason}")]
    Encode {
        /// The reason.
        reason: String,
    },
    /// Its encoded form is not read as a value of its type.
    #[error("cannot be read as it was sent: {reason}")]
    Decode {
        /// The reason.
        reason: String,
    },
}

/// Returns a value as another node receives it: encoded and decoded. For tests of the parts of a task.
///
/// # Errors
/// If the value cannot be encoded or decoded.
pub fn sent<V: Serialize + DeserializeOwned>(value: &V) -> Result<V, SentError> {
    let bytes = codec::encode(value).map_err(|error| SentError::Encode { reason: error.to_string() })?;
    codec::decode(&bytes).map_err(|error| SentError::Decode { reason: error.to_string() })
}

/// Checks that the output of a job does not depend on how its tasks are interrupted, sent and split. For unit tests,
/// with a job of a few thousand steps.
///
/// The job runs on this thread: first undisturbed, and then with its shared data and every task sent to another node
/// (encoded and decoded), with a split at every [`potential_split`](crate::Context::potential_split), and with an
/// interruption at every 100th, 10th, 3rd and 2nd poll of [`migrate`](crate::Context::migrate). It finds state that is
/// lost when a task moves, parts that are searched twice or never after a split, and tasks that do not stop properly.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use taskwork::{Context, Job, Outcome, Task};
/// /// Counts the leaves of a binary tree, and forgets one whenever it is interrupted.
/// #[derive(Serialize, Deserialize)]
/// struct Forgets {
///     open: Vec<u32>,
/// }
///
/// impl Task for Forgets {
///     type Shared = ();
///     type Output = u64;
///
///     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
///         while let Some(height) = self.open.pop() {
///             if cx.migrate() {
///                 return Outcome::Migrate; // `height` is lost
///             }
///             match height {
///                 0 => *cx.output() += 1,
///                 _ => self.open.extend([height - 1, height - 1]),
///             }
///         }
///         Outcome::Complete
///     }
///
///     fn split(&mut self, _: &()) -> Option<Self> {
///         None
///     }
/// }
///
/// let mistake = taskwork::check(|| Job::new(Forgets { open: vec![6] }, ())).unwrap_err();
/// assert!(mistake.to_string().contains("undisturbed, it is 64"), "{mistake}");
/// ```
///
/// # Errors
/// If a run has another output than the undisturbed one, or fails. The error names the mildest disturbance that shows
/// the mistake.
pub fn check<T: Task>(job: impl Fn() -> Job<T>) -> Result<(), CheckError> {
    check_by(job, |report| match serde_json::to_value(&report.output) {
        Ok(shown) => shown.to_string(),
        // It has no JSON form.
        Err(_) => format!("{:?}", codec::encode(&report.output)),
    })
}

/// Checks, like [`check`], a job with a report of which only a part is deterministic: in a search that prunes, the best
/// solution, but not the number of states.
///
/// # Errors
/// As [`check`].
pub fn check_by<T: Task, R: PartialEq + fmt::Display>(
    job: impl Fn() -> Job<T>,
    result: impl Fn(&Report<T>) -> R,
) -> Result<(), CheckError> {
    let expected = result(&pool::check::run(job(), Drill::NOTHING)?);
    for drill in Drill::ALL {
        let found = result(&pool::check::run(job(), drill)?);
        if found != expected {
            return Err(CheckError::Differs {
                drill,
                expected: expected.to_string(),
                found: found.to_string(),
            });
        }
    }
    Ok(())
}
