//! The errors of a client.

use std::time::{Duration, SystemTime};

use thiserror::Error;
use zk::ConnectError;

use crate::{
    id::JobId,
    report::{CoordinationError, JobError, StateError},
};

/// The reasons for which a client's request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An argument is invalid: an address, a name, a file.
    #[error("{reason}")]
    Invalid {
        /// The problem.
        reason: String,
    },
    /// No ZooKeeper server could be reached at the start.
    #[error("{reason}")]
    Unreachable {
        /// The attempts that were made.
        reason: String,
    },
    /// ZooKeeper was unavailable for longer than the client's [patience](crate::client::ClientBuilder::patience).
    #[error("ZooKeeper at {hosts} has not answered for {} s", waited.as_secs())]
    GaveUp {
        /// The servers.
        hosts: String,
        /// The time of its last answer, by this machine's clock.
        since: SystemTime,
        /// The duration of the wait.
        waited: Duration,
    },
    /// The cluster does not exist.
    #[error(
        "there is no cluster {cluster:?} at {hosts}; there is: {known}. A cluster is created by its first node \
         or job"
    )]
    NoCluster {
        /// The cluster's name.
        cluster: String,
        /// The servers.
        hosts: String,
        /// The existing clusters, or `none`.
        known: String,
    },
    /// The cluster has no such job.
    #[error("cluster {cluster} has no job {job}")]
    NoJob {
        /// The cluster's name.
        cluster: String,
        /// The requested job.
        job: JobId,
    },
    /// A job that existed has been removed.
    #[error(
        "ZooKeeper no longer has job {job}: it was forgotten, or the servers have lost their data. Its \
         output is lost"
    )]
    Forgotten {
        /// The job.
        job: JobId,
    },
    /// No member, or more than one, matches the name.
    #[error("{reason}")]
    NoNode {
        /// The names that were found.
        reason: String,
    },
    /// The operation is not possible in the job's state.
    #[error("job {job} {reason}")]
    WrongState {
        /// The job.
        job: JobId,
        /// Its state, and the permitted operations.
        reason: String,
    },
    /// The expected event has not happened in time; it may happen later.
    #[error("{reason}")]
    TimedOut {
        /// The event, and how long the client waited for it.
        reason: String,
    },
    /// The job has no result, or could not be submitted.
    #[error(transparent)]
    Job(JobError),
}

/// The category of an error, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid, or not permitted with these credentials: a retry does not help.
    Usage,
    /// There is no such cluster, job or node.
    NotFound,
    /// The job has failed, or is in a state in which the operation is not possible.
    Failed,
    /// ZooKeeper could not be reached, or was unavailable for too long.
    Unreachable,
}

impl ClientError {
    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Usage,
            Self::NoCluster { .. } | Self::NoJob { .. } | Self::NoNode { .. } => ErrorKind::NotFound,
            Self::Unreachable { .. } | Self::GaveUp { .. } => ErrorKind::Unreachable,
            Self::Forgotten { .. } | Self::WrongState { .. } | Self::TimedOut { .. } => ErrorKind::Failed,
            Self::Job(error) => error.kind(),
        }
    }
}

impl JobError {
    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Count { .. } | Self::Setting { .. } => ErrorKind::Usage,
            Self::State(error) if !matches!(error, StateError::Io { .. }) => ErrorKind::Usage,
            Self::Coordination(CoordinationError(error)) => match error {
                zk::Error::NoAuth { .. } | zk::Error::Open { .. } | zk::Error::TooLarge { .. } => {
                    ErrorKind::Usage
                }
                zk::Error::TooMany { .. } | zk::Error::Garbled { .. } => ErrorKind::Failed,
                _ => ErrorKind::Unreachable,
            },
            _ => ErrorKind::Failed,
        }
    }
}

impl From<ConnectError> for ClientError {
    fn from(error: ConnectError) -> Self {
        let reason = error.to_string();
        match error {
            ConnectError::Hosts { .. } | ConnectError::Tls { .. } | ConnectError::NoTls => {
                Self::Invalid { reason }
            }
            _ => Self::Unreachable { reason },
        }
    }
}

impl From<JobError> for ClientError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Coordination(CoordinationError(zk::Error::NoAuth { .. })) => Self::Invalid {
                reason: format!(
                    "{error}. The cluster was created with other credentials: pass those (on a command \
                     line by --zk-auth FILE)"
                ),
            },
            error => Self::Job(error),
        }
    }
}

impl From<zk::Error> for ClientError {
    fn from(error: zk::Error) -> Self {
        JobError::from(error).into()
    }
}
