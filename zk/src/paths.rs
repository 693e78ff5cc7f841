//! Every path in one table.
//!
//! ```text
//! /taskwork/<cluster>/
//!   members/<node>              ephemeral: where a node listens, and how it is recognised
//!   election/<runs>~<node>~<number>   ephemeral: of those that run the same, the lowest number leads
//!   drain/<node>                asked to leave
//!   jobs/<job>                  the record
//!     root                      the root task's envelope, for every attempt
//!     large-root/<k>            the same in chunks, if it is large
//!     shared/<k>                read-only data in chunks
//!     vars/<name>               variables; they outlive an attempt
//!     figures/<node>            what a node says of its part in the job
//!     suggestions/s-<key>-<number>   what a user says to the job, and the answer
//!     result                    written once: which attempt's chunks it is
//!     attempts/<k>/
//!       list/<task>             the global task list
//!       parked/<task>           the root's envelope, until it is claimed
//!       parked/<task>~<txn>     envelopes that no node holds any more, and the transaction that has parked each
//!       txns/<txn>              ids of transactions, at most two of a node
//!       outputs/<node>          what a node's committed tasks have produced; created empty before it may hold a task
//!       mail/<node>/m-<number>  messages that have no other way to a node
//!       large/<name>/<k>        what is too large for one znode, in chunks
//!       result/<k>              the result in chunks, valid once the job is closed
//!       left/<node>             a node has left with nothing in its hands
//! ```

use thiserror::Error;

use crate::{
    error::{Error, Result},
    store::{CreateMode, Store},
};

/// What stands between a parked task and the transaction that has parked it.
pub(crate) const PARKED_BY: char = '~';

/// The task that is parked under this name.
pub fn parked_id(name: &str) -> &str {
    name.split(PARKED_BY).next().unwrap_or(name)
}

/// What the name of every job begins with. Its number follows, which the tree gives.
pub(crate) const JOB_PREFIX: &str = "j-";
/// How many digits a number has that the tree gives.
const NUMBER_DIGITS: usize = 10;

/// The number in the name of a job; `None` for a name that no submission has given. Different names have
/// different numbers.
pub fn job_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(JOB_PREFIX)?;
    let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The longest name that may become part of a path, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A name that cannot become part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{shown:?} cannot be the name of a cluster: 1 to {NAME_BYTES_MAX} letters, digits, dots, - or _, and not . or .."
)]
pub struct NameError {
    shown: String,
}

/// Whether a name may become part of a path.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        && !matches!(name, "." | "..")
}

/// The paths of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPaths(String);

/// The paths of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPaths(String);

/// The paths of an attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptPaths(String);

impl ClusterPaths {
    /// The folder of all clusters.
    pub const ALL: &str = "/taskwork";

    /// The paths of the cluster with this name.
    ///
    /// # Errors
    /// If the name cannot be part of a path.
    pub fn new(cluster: &str) -> std::result::Result<Self, NameError> {
        if is_name(cluster) {
            return Ok(Self(format!("{}/{cluster}", Self::ALL)));
        }
        Err(NameError { shown: cluster.chars().take(NAME_BYTES_MAX).collect() })
    }

    /// Creates what every cluster has, as far as it is not there. What is there must be closed to whoever has
    /// no credentials, if this session has some. That is not asked of the folder of all clusters, which
    /// others may share: by way of it nobody can do more than make clusters and remove empty ones.
    ///
    /// # Errors
    /// Whatever the store refuses; [`Error::Open`] for a folder that is open to everybody.
    pub async fn prepare(&self, store: &dyn Store) -> Result<()> {
        let skeleton = [
            Self::ALL.to_owned(),
            self.0.clone(),
            self.members(),
            self.election(),
            self.drains(),
            self.jobs(),
        ];
        for path in skeleton {
            match store.create(&path, b"", CreateMode::Persistent).await {
                Err(Error::NodeExists { .. }) if path != Self::ALL => store.check_access(&path).await?,
                Ok(_) | Err(Error::NodeExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The cluster itself.
    pub fn base(&self) -> String {
        self.0.clone()
    }

    /// The folder of the members.
    pub fn members(&self) -> String {
        format!("{}/members", self.0)
    }

    /// A member.
    pub fn member(&self, node: &str) -> String {
        format!("{}/members/{node}", self.0)
    }

    /// The folder of the candidates.
    pub fn election(&self) -> String {
        format!("{}/election", self.0)
    }

    /// The folder of nodes that are asked to leave.
    pub fn drains(&self) -> String {
        format!("{}/drain", self.0)
    }

    /// A node that is asked to leave.
    pub fn drain(&self, node: &str) -> String {
        format!("{}/drain/{node}", self.0)
    }

    /// The folder of the jobs.
    pub fn jobs(&self) -> String {
        format!("{}/jobs", self.0)
    }

    /// A job.
    pub fn job(&self, job: &str) -> JobPaths {
        JobPaths(format!("{}/jobs/{job}", self.0))
    }
}

impl JobPaths {
    /// The record.
    pub fn record(&self) -> String {
        self.0.clone()
    }

    /// The root task's envelope.
    pub fn root(&self) -> String {
        format!("{}/root", self.0)
    }

    /// The folder of the root task's chunks.
    pub fn large_root(&self) -> String {
        format!("{}/large-root", self.0)
    }

    /// The folder of the shared data.
    pub fn shared(&self) -> String {
        format!("{}/shared", self.0)
    }

    /// A chunk of the shared data.
    pub fn shared_chunk(&self, k: usize) -> String {
        format!("{}/shared/{k:06}", self.0)
    }

    /// The folder of the variables.
    pub fn vars(&self) -> String {
        format!("{}/vars", self.0)
    }

    /// A variable.
    pub fn var(&self, name: &str) -> String {
        format!("{}/vars/{name}", self.0)
    }

    /// The folder of the nodes' figures.
    pub fn figures(&self) -> String {
        format!("{}/figures", self.0)
    }

    /// What a node says of its part in the job.
    pub fn node_figures(&self, node: &str) -> String {
        format!("{}/figures/{node}", self.0)
    }

    /// The folder of suggestions.
    pub fn suggestions(&self) -> String {
        format!("{}/suggestions", self.0)
    }

    /// A suggestion.
    pub fn suggestion(&self, name: &str) -> String {
        format!("{}/suggestions/{name}", self.0)
    }

    /// The result.
    pub fn result(&self) -> String {
        format!("{}/result", self.0)
    }

    /// The folder of the attempts.
    pub fn attempts(&self) -> String {
        format!("{}/attempts", self.0)
    }

    /// An attempt.
    pub fn attempt(&self, attempt: u32) -> AttemptPaths {
        AttemptPaths(format!("{}/attempts/{attempt}", self.0))
    }
}

impl AttemptPaths {
    /// The record of the job, and the number of the attempt.
    pub(crate) fn record_and_number(&self) -> Option<(&str, u32)> {
        let (record, number) = self.0.rsplit_once("/attempts/")?;
        Some((record, number.parse().ok()?))
    }

    /// The attempt itself.
    pub fn base(&self) -> String {
        self.0.clone()
    }

    /// The global task list.
    pub fn list(&self) -> String {
        format!("{}/list", self.0)
    }

    /// A task in the list.
    pub fn task(&self, task: &str) -> String {
        format!("{}/list/{task}", self.0)
    }

    /// The folder of the parked tasks.
    pub fn parked(&self) -> String {
        format!("{}/parked", self.0)
    }

    /// A task that is parked from the beginning.
    pub fn parked_task(&self, task: &str) -> String {
        format!("{}/parked/{task}", self.0)
    }

    /// A task that a transaction parks. Each time a task is parked it is under another name: so whoever
    /// claims one by its name has read what is parked there now, however old the tree is that it reads.
    pub fn parked_by(&self, task: &str, txn: &str) -> String {
        format!("{}/parked/{task}{PARKED_BY}{txn}", self.0)
    }

    /// The folder of the transaction ids.
    pub fn txns(&self) -> String {
        format!("{}/txns", self.0)
    }

    /// A transaction id.
    pub fn txn(&self, txn: &str) -> String {
        format!("{}/txns/{txn}", self.0)
    }

    /// The folder of the outputs, which is that of the participants too.
    pub fn outputs(&self) -> String {
        format!("{}/outputs", self.0)
    }

    /// A node's output.
    pub fn output(&self, node: &str) -> String {
        format!("{}/outputs/{node}", self.0)
    }

    /// The folder of the mailboxes.
    pub fn mail(&self) -> String {
        format!("{}/mail", self.0)
    }

    /// A node's mailbox.
    pub fn mailbox(&self, node: &str) -> String {
        format!("{}/mail/{node}", self.0)
    }

    /// The folder of what is too large for one znode.
    pub fn large(&self) -> String {
        format!("{}/large", self.0)
    }

    /// The chunks of something that is too large for one znode.
    pub fn large_of(&self, name: &str) -> String {
        format!("{}/large/{name}", self.0)
    }

    /// The folder of the result's chunks.
    pub fn result_chunks(&self) -> String {
        format!("{}/result", self.0)
    }

    /// A chunk of the result.
    pub fn result_chunk(&self, k: usize) -> String {
        format!("{}/result/{k:06}", self.0)
    }

    /// The folder of those that left cleanly.
    pub fn left(&self) -> String {
        format!("{}/left", self.0)
    }

    /// A node that left cleanly.
    pub fn left_node(&self, node: &str) -> String {
        format!("{}/left/{node}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_place_are_refused() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", ".", "..", "a/b", "a b", "ü", "a\0", &long] {
            assert!(ClusterPaths::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            ClusterPaths::new("my-cluster_1.a").unwrap().members(),
            "/taskwork/my-cluster_1.a/members"
        );
    }
}
