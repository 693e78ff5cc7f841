//! All paths in one table.
//!
//! ```text
//! /taskwork/<cluster>/
//!   members/<node>              ephemeral: the address and fingerprint of a node
//!   election/<job>~<node>~<number>   ephemeral: the candidate with the lowest number of a job leads
//!   drain/<node>                a node that is asked to leave
//!   cordon/<node>               a node that takes no more work
//!   scale                       the state of the machine controller; its version is the fence
//!     controller                ephemeral: the name of the controller
//!     said                      its recent decisions, for users
//!   identity                    the job of a tree that is kept in a directory
//!   jobs/<job>                  the record
//!     root                      the root task's envelope, for every attempt
//!     open                      as long as more root tasks may be added
//!     roots/<task>              the envelope of an added root task, for every attempt
//!     large-roots-<task>/<k>    the same in chunks, if it is large
//!     large-root/<k>            the same in chunks, if it is large
//!     shared/<k>                read-only data in chunks
//!     vars/<name>               variables; they outlive an attempt
//!     figures/<node>            the report of a node about its part in the job
//!     suggestions/s-<key>-<number>   a user's suggestion to the job, and the answer
//!     questions/q-<key>         a user's question about the job, and the answer
//!     journal                   the writer of the journal; its version is the fence
//!     journal/e-<number>        an entry of the journal
//!     journal/c-<version>-<number>/<k>   the same in chunks, if it is large
//!     journal/note              a note that each write replaces
//!     result                    written once: the attempt whose chunks are the result
//!     attempts/<k>/
//!       list/<task>             the global task list
//!       list/<task>~<scope>     the same, for tasks that were spawned and that another one may wait for
//!       list/open               keeps the list from being empty as long as root tasks may be added
//!       begun/<task>            an added root task that has been in the list
//!       parked/<task>           the root's envelope, until it is claimed
//!       parked/<task>~<txn>     the envelope of a task that no node holds, and the transaction that parked it
//!       held/<node>             everything that a node held at its last write
//!       transit/<name>          tasks in transit from one node to another
//!       txns/<txn>              ids of transactions, at most two per node
//!       outputs/<node>          the output of a node's committed tasks; created empty before it may hold a task
//!       mail/<node>/m-<number>  letters to a node that the network does not reach
//!       large/<name>/<k>        data that is too large for one znode, in chunks
//!       result/<k>              the result in chunks, valid once the job is closed
//!       left/<node>             a node that has left cleanly
//! ```

use thiserror::Error;

use crate::{
    error::{Error, Result},
    store::{CreateMode, Store},
};

/// The separator between a parked task and the transaction that parked it.
pub(crate) const PARKED_BY: char = '~';

/// Returns the task that is parked under this name.
pub fn parked_id(name: &str) -> &str {
    name.split(PARKED_BY).next().unwrap_or(name)
}

/// The prefix of every job's name. A number assigned by the tree follows.
pub(crate) const JOB_PREFIX: &str = "j-";
/// The number of digits of a number that the tree assigns.
const NUMBER_DIGITS: usize = 10;

/// Returns the number in a job's name, or `None` for a name that no submission could have created. Different
/// names have different numbers.
pub fn job_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(JOB_PREFIX)?;
    let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The longest name that may be part of a path, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A name that cannot be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{shown:?} cannot be the name of a cluster: 1 to {NAME_BYTES_MAX} letters, digits, dots, - or _, and not \
     . or .."
)]
pub struct NameError {
    shown: String,
}

/// Returns whether a name may be part of a path.
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

    /// Returns the paths of the cluster with this name.
    ///
    /// # Errors
    /// If the name cannot be part of a path.
    pub fn new(cluster: &str) -> std::result::Result<Self, NameError> {
        if is_name(cluster) {
            return Ok(Self(format!("{}/{cluster}", Self::ALL)));
        }
        Err(NameError { shown: cluster.chars().take(NAME_BYTES_MAX).collect() })
    }

    /// Creates the missing folders of the cluster. If this session has credentials, existing folders must not
    /// be accessible without them. This does not apply to the folder of all clusters, which others may share:
    /// access to it only allows creating clusters and removing empty ones.
    ///
    /// # Errors
    /// Any error from the store; [`Error::Open`] for a folder that is accessible without credentials.
    pub async fn prepare(&self, store: &dyn Store) -> Result<()> {
        let skeleton = [
            Self::ALL.to_owned(),
            self.0.clone(),
            self.members(),
            self.election(),
            self.drains(),
            self.cordons(),
            self.jobs(),
        ];
        // Usually all of them exist. Reads find that out faster than writes: they are pipelined, and need no
        // disk. A server that lags behind may miss some.
        let seen: Vec<_> = skeleton.iter().map(|path| store.exists(path)).collect();
        for (path, seen) in skeleton.into_iter().zip(seen) {
            let is_there = seen.await?.is_some()
                || match store.create(&path, b"", CreateMode::Persistent).await {
                    Ok(_) => false,
                    Err(Error::NodeExists { .. }) => true,
                    Err(error) => return Err(error),
                };
            if is_there && path != Self::ALL {
                store.check_access(&path).await?;
            }
        }
        Ok(())
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the path of the cluster itself.
    pub fn base(&self) -> String {
        self.0.clone()
    }

    /// Returns the path of the znode that names the job of a tree that is kept in a directory.
    pub fn identity(&self) -> String {
        format!("{}/identity", self.0)
    }

    /// Returns the folder of the members.
    pub fn members(&self) -> String {
        format!("{}/members", self.0)
    }

    /// Returns the path of a member.
    pub fn member(&self, node: &str) -> String {
        format!("{}/members/{node}", self.0)
    }

    /// Returns the folder of the candidates.
    pub fn election(&self) -> String {
        format!("{}/election", self.0)
    }

    /// Returns the folder of nodes that are asked to leave.
    pub fn drains(&self) -> String {
        format!("{}/drain", self.0)
    }

    /// Returns the path of a node that is asked to leave.
    pub fn drain(&self, node: &str) -> String {
        format!("{}/drain/{node}", self.0)
    }

    /// Returns the folder of cordoned nodes.
    pub fn cordons(&self) -> String {
        format!("{}/cordon", self.0)
    }

    /// Returns the path of a cordoned node.
    pub fn cordon(&self, node: &str) -> String {
        format!("{}/cordon/{node}", self.0)
    }

    /// Returns the path of the state of the machine controller.
    pub fn scale(&self) -> String {
        format!("{}/scale", self.0)
    }

    /// Returns the path of the name of the machine controller.
    pub fn scale_controller(&self) -> String {
        format!("{}/scale/controller", self.0)
    }

    /// Returns the path of the recent decisions of the machine controller.
    pub fn scale_said(&self) -> String {
        format!("{}/scale/said", self.0)
    }

    /// Returns the folder of the jobs.
    pub fn jobs(&self) -> String {
        format!("{}/jobs", self.0)
    }

    /// Returns the paths of a job.
    pub fn job(&self, job: &str) -> JobPaths {
        JobPaths(format!("{}/jobs/{job}", self.0))
    }
}

impl JobPaths {
    /// Returns the path of the record.
    pub fn record(&self) -> String {
        self.0.clone()
    }

    /// Returns the path of the root task's envelope.
    pub fn root(&self) -> String {
        format!("{}/root", self.0)
    }

    /// Returns the folder of the root task's chunks.
    pub fn large_root(&self) -> String {
        format!("{}/large-root", self.0)
    }

    /// Returns the znode that exists as long as root tasks may be added.
    pub fn open(&self) -> String {
        format!("{}/open", self.0)
    }

    /// Returns the folder of the added root tasks.
    pub fn roots(&self) -> String {
        format!("{}/roots", self.0)
    }

    /// Returns the path of an added root task.
    pub fn added_root(&self, task: &str) -> String {
        format!("{}/roots/{task}", self.0)
    }

    /// Returns the folder of the chunks of an added root task.
    pub fn large_added_root(&self, task: &str) -> String {
        format!("{}/large-roots-{task}", self.0)
    }

    /// Returns the folder of the shared data.
    pub fn shared(&self) -> String {
        format!("{}/shared", self.0)
    }

    /// Returns the path of a chunk of the shared data.
    pub fn shared_chunk(&self, k: usize) -> String {
        format!("{}/shared/{k:06}", self.0)
    }

    /// Returns the folder of the variables.
    pub fn vars(&self) -> String {
        format!("{}/vars", self.0)
    }

    /// Returns the path of a variable.
    pub fn var(&self, name: &str) -> String {
        format!("{}/vars/{name}", self.0)
    }

    /// Returns the folder of the nodes' figures.
    pub fn figures(&self) -> String {
        format!("{}/figures", self.0)
    }

    /// Returns the path of a node's figures.
    pub fn node_figures(&self, node: &str) -> String {
        format!("{}/figures/{node}", self.0)
    }

    /// Returns the folder of suggestions.
    pub fn suggestions(&self) -> String {
        format!("{}/suggestions", self.0)
    }

    /// Returns the folder of questions.
    pub fn questions(&self) -> String {
        format!("{}/questions", self.0)
    }

    /// Returns the path of a question.
    pub fn question(&self, name: &str) -> String {
        format!("{}/questions/{name}", self.0)
    }

    /// Returns the path of a suggestion.
    pub fn suggestion(&self, name: &str) -> String {
        format!("{}/suggestions/{name}", self.0)
    }

    /// Returns the path of the journal.
    pub fn journal(&self) -> String {
        format!("{}/journal", self.0)
    }

    /// Returns the path of an entry of the journal.
    pub fn journal_entry(&self, number: u64) -> String {
        format!("{}/journal/e-{number:010}", self.0)
    }

    /// Returns the folder of the chunks of an entry of the journal, by the version of the journal when it was written.
    pub(crate) fn journal_chunks(&self, version: i32, number: u64) -> String {
        format!("{}/journal/c-{version}-{number}", self.0)
    }

    /// Returns the path of the note in the journal.
    pub fn journal_note(&self) -> String {
        format!("{}/journal/note", self.0)
    }

    /// Returns the path of the result.
    pub fn result(&self) -> String {
        format!("{}/result", self.0)
    }

    /// Returns the folder of the chunks of initial data of an attempt other than the root.
    pub(crate) fn carried(&self, attempt: u32, name: &str) -> String {
        format!("{}/carried-{attempt}-{name}", self.0)
    }

    /// Returns the folder of the attempts.
    pub fn attempts(&self) -> String {
        format!("{}/attempts", self.0)
    }

    /// Returns the paths of an attempt.
    pub fn attempt(&self, attempt: u32) -> AttemptPaths {
        AttemptPaths(format!("{}/attempts/{attempt}", self.0))
    }
}

/// The name of the initial output of a retry.
pub(crate) const CARRIED: &str = "carried";

impl AttemptPaths {
    /// Returns the path of the job's record and the number of the attempt.
    pub(crate) fn record_and_number(&self) -> Option<(&str, u32)> {
        let (record, number) = self.0.rsplit_once("/attempts/")?;
        Some((record, number.parse().ok()?))
    }

    /// Returns the path of the attempt itself.
    pub fn base(&self) -> String {
        self.0.clone()
    }

    /// Returns the path of the global task list.
    pub fn list(&self) -> String {
        format!("{}/list", self.0)
    }

    /// Returns the path of a task in the list.
    pub fn task(&self, task: &str) -> String {
        format!("{}/list/{task}", self.0)
    }

    /// Returns the entry that keeps the global task list from being empty as long as root tasks may be added.
    pub fn open(&self) -> String {
        self.task("open")
    }

    /// Returns the folder of the added root tasks that have been in the global task list.
    pub fn begun(&self) -> String {
        format!("{}/begun", self.0)
    }

    /// Returns the path of an added root task that has been in the global task list.
    pub fn begun_root(&self, task: &str) -> String {
        format!("{}/begun/{task}", self.0)
    }

    /// Returns the folder of the parked tasks.
    pub fn parked(&self) -> String {
        format!("{}/parked", self.0)
    }

    /// Returns the path of a parked task, by the name of its znode.
    pub fn parked_task(&self, task: &str) -> String {
        format!("{}/parked/{task}", self.0)
    }

    /// Returns the path of a task that a transaction parks. Each time a task is parked it gets another name.
    /// So a node that claims it by name has read the current envelope, even if it read a stale tree.
    pub fn parked_by(&self, task: &str, txn: &str) -> String {
        format!("{}/parked/{task}{PARKED_BY}{txn}", self.0)
    }

    /// Returns the folder of the nodes' held tasks.
    pub fn held(&self) -> String {
        format!("{}/held", self.0)
    }

    /// Returns the path of a node's held tasks.
    pub fn held_by(&self, node: &str) -> String {
        format!("{}/held/{node}", self.0)
    }

    /// Returns the folder of tasks in transit.
    pub fn transits(&self) -> String {
        format!("{}/transit", self.0)
    }

    /// Returns the path of tasks in transit.
    pub fn transit(&self, name: &str) -> String {
        format!("{}/transit/{name}", self.0)
    }

    /// Returns the folder of the tasks that were set aside.
    pub fn quarantine(&self) -> String {
        format!("{}/quarantine", self.0)
    }

    /// Returns the path of a task that was set aside.
    pub fn quarantined(&self, task: &str) -> String {
        format!("{}/quarantine/{task}", self.0)
    }

    /// Returns the path of the description of a task that was set aside.
    pub fn about_quarantined(&self, task: &str) -> String {
        format!("{}/quarantine/{task}/about", self.0)
    }

    /// Returns the folder of the transaction ids.
    pub fn txns(&self) -> String {
        format!("{}/txns", self.0)
    }

    /// Returns the path of a transaction id.
    pub fn txn(&self, txn: &str) -> String {
        format!("{}/txns/{txn}", self.0)
    }

    /// Returns the folder of the outputs, which also lists the enrolled nodes.
    pub fn outputs(&self) -> String {
        format!("{}/outputs", self.0)
    }

    /// Returns the path of a node's output.
    pub fn output(&self, node: &str) -> String {
        format!("{}/outputs/{node}", self.0)
    }

    /// Returns the folder of the mailboxes.
    pub fn mail(&self) -> String {
        format!("{}/mail", self.0)
    }

    /// Returns the path of a node's mailbox.
    pub fn mailbox(&self, node: &str) -> String {
        format!("{}/mail/{node}", self.0)
    }

    /// Returns the folder of data that is too large for one znode.
    pub fn large(&self) -> String {
        format!("{}/large", self.0)
    }

    /// Returns the folder of the chunks of one such data item.
    pub fn large_of(&self, name: &str) -> String {
        format!("{}/large/{name}", self.0)
    }

    /// Returns the folder of the result's chunks.
    pub fn result_chunks(&self) -> String {
        format!("{}/result", self.0)
    }

    /// Returns the path of a chunk of the result.
    pub fn result_chunk(&self, k: usize) -> String {
        format!("{}/result/{k:06}", self.0)
    }

    /// Returns the folder of the nodes that left cleanly.
    pub fn left(&self) -> String {
        format!("{}/left", self.0)
    }

    /// Returns the path of the znode that exists once the unneeded data of the job was
    /// [removed](crate::job::release).
    pub fn released(&self) -> String {
        format!("{}/released", self.0)
    }

    /// Returns the path of a node that left cleanly.
    pub fn left_node(&self, node: &str) -> String {
        format!("{}/left/{node}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_escape_their_folder_are_refused() {
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
