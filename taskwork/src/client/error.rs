//! Why a client has no answer.

use std::time::{Duration, SystemTime};

use thiserror::Error;
use zk::ConnectError;

use crate::{
    id::JobId,
    report::{CoordinationError, JobError},
};

/// Why a client has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// What the client was given makes no sense: an address, a name, a file.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// No ZooKeeper could be reached at the start.
    #[error("{reason}")]
    Unreachable {
        /// What was tried.
        reason: String,
    },
    /// ZooKeeper was away for longer than the client's [patience](crate::ClientBuilder::patience).
    #[error("ZooKeeper at {hosts} has not answered for {} s", waited.as_secs())]
    GaveUp {
        /// The servers.
        hosts: String,
        /// When it was heard of last, by this machine's clock.
        since: SystemTime,
        /// How long was waited.
        waited: Duration,
    },
    /// There is no such cluster.
    #[error(
        "there is no cluster {cluster:?} at {hosts}; there is: {known}. A cluster is made by its first node or job"
    )]
    NoCluster {
        /// The cluster's name.
        cluster: String,
        /// The servers.
        hosts: String,
        /// The clusters that there are, or `none`.
        known: String,
    },
    /// The cluster has no such job.
    #[error("cluster {cluster} has no job {job}")]
    NoJob {
        /// The cluster's name.
        cluster: String,
        /// The job that was asked for.
        job: JobId,
    },
    /// A job that was there has gone.
    #[error(
        "ZooKeeper has no job {job} any more: it was forgotten, or the servers have lost their data. What it has produced is \
         lost"
    )]
    Forgotten {
        /// The job.
        job: JobId,
    },
    /// No member, or more than one, has such a name.
    #[error("{reason}")]
    NoNode {
        /// What was found.
        reason: String,
    },
    /// The job is in a state in which this cannot be done.
    #[error("job {job} {reason}")]
    WrongState {
        /// The job.
        job: JobId,
        /// Its state, and what could be done.
        reason: String,
    },
    /// What was waited for has not happened in time. It still may.
    #[error("{reason}")]
    TimedOut {
        /// What was waited for, and for how long.
        reason: String,
    },
    /// The job has no result, or could not be submitted.
    #[error(transparent)]
    Job(JobError),
}

/// Of which sort an error is: what a script wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for makes no sense, or is not permitted with these credentials: asking again does not
    /// help.
    Usage,
    /// The job has failed, or is in a state in which this cannot be done.
    Failed,
    /// ZooKeeper could not be reached, or not for long enough.
    Unreachable,
}

impl ClientError {
    /// Of which sort it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } | Self::NoCluster { .. } | Self::NoJob { .. } | Self::NoNode { .. } => {
                ErrorKind::Usage
            }
            Self::Unreachable { .. } | Self::GaveUp { .. } => ErrorKind::Unreachable,
            Self::Forgotten { .. } | Self::WrongState { .. } | Self::TimedOut { .. } => ErrorKind::Failed,
            Self::Job(error) => error.kind(),
        }
    }
}

impl JobError {
    /// Of which sort it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Count { .. } => ErrorKind::Usage,
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
            ConnectError::Hosts { .. } | ConnectError::Tls { .. } => Self::Invalid { reason },
            _ => Self::Unreachable { reason },
        }
    }
}

impl From<JobError> for ClientError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Coordination(CoordinationError(zk::Error::NoAuth { .. })) => Self::Invalid {
                reason: format!(
                    "{error}. The cluster was made with other credentials: give the right ones (on a command line by \
                     --zk-auth FILE)"
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
