//! What can go wrong with an operation on the tree, and whether it may have happened all the same.
//!
//! The question that decides everything after a failure is not *what* failed but *whether the operation took
//! effect*. A create that was refused with "exists already" changed nothing; a create whose answer was lost
//! with the connection may have happened. [`Error::effect`] answers that for every error.
//!
//! Every error of the project says its cause in its own message, and so names no `source`: whoever prints
//! it, with its sources or
//! without, says each thing once.

use thiserror::Error as ThisError;

/// Whether a failed operation changed the tree.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The server refused the operation, or it was never sent: nothing changed.
    None,
    /// The answer was lost. The operation may have happened, and may even happen a little later.
    Unknown,
}

/// Why an operation on the tree failed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The znode, or the parent of the one to create, does not exist.
    #[error("{path}: no such znode")]
    NoNode {
        /// The path that was asked for.
        path: String,
    },
    /// The znode exists already.
    #[error("{path}: the znode exists already")]
    NodeExists {
        /// The path that was to be created.
        path: String,
    },
    /// The znode is at another version than the one expected.
    #[error("{path}: the znode is at another version than expected")]
    BadVersion {
        /// The path of the znode.
        path: String,
    },
    /// A znode with children cannot be deleted.
    #[error("{path}: the znode has children and cannot be deleted")]
    NotEmpty {
        /// The path of the znode.
        path: String,
    },
    /// An ephemeral znode cannot have children.
    #[error("{path}: an ephemeral znode cannot have children")]
    NoChildrenForEphemerals {
        /// The path that was to be created.
        path: String,
    },
    /// The credentials of this session may not do that.
    #[error("{path}: not permitted with this session's credentials")]
    NoAuth {
        /// The path of the znode.
        path: String,
    },
    /// Whoever has no credentials may use a znode that this session's are to guard.
    #[error(
        "{path}: anybody may use this znode, since it was made without credentials. To close it and what is below it, stop what \
         uses it and say to zkCli.sh: addauth digest USER:PASSWORD, then: setAcl -R {path} auth::cdrwa"
    )]
    Open {
        /// The path of the znode, as an operator sees it.
        path: String,
    },
    /// A path that no tree can hold.
    #[error("{path:?} is not a path of a znode: {reason}")]
    InvalidPath {
        /// What was given.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The data, or the whole multi, is larger than the server takes.
    #[error("{path}: {size} bytes are more than the limit of {limit} bytes")]
    TooLarge {
        /// The path of the znode, or of the first operation of the multi.
        path: String,
        /// The size of what was to be written, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// There are as many children as may be made there. Nothing was done.
    #[error(
        "{path}: there are {children} already, and no more than {limit} are taken; try again when some are gone"
    )]
    TooMany {
        /// The znode that has them.
        path: String,
        /// How many it has.
        children: usize,
        /// How many there may be.
        limit: usize,
    },
    /// One operation of a multi failed, so none of them was done.
    #[error("operation {index} of the transaction failed, none was done: {cause}")]
    Multi {
        /// The position of the operation that failed, from 0.
        index: usize,
        /// Why it failed.
        cause: Box<Error>,
    },
    /// The connection was lost before the answer came.
    #[error("the connection was lost before the answer came; the operation may have happened")]
    ConnectionLost,
    /// The answer did not come within the deadline.
    #[error("no answer within {waited_ms} ms; the operation may have happened")]
    TimedOut {
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// Others were faster, again and again. Nothing was done.
    #[error("{path}: others were faster {tries} times; nothing was done")]
    Contended {
        /// The znode that the race was about.
        path: String,
        /// How often it was tried.
        tries: usize,
    },
    /// The server refused it for a reason of its own, such as a quota. Nothing was done.
    #[error("{path}: the server refused the operation: {reason}")]
    Refused {
        /// The path that the operation was about.
        path: String,
        /// What the server said.
        reason: String,
    },
    /// The session is over: its ephemerals are gone and it will never do anything again.
    #[error("the session has expired")]
    SessionExpired,
    /// What stands in a znode cannot be read.
    #[error("{path}: the content of the znode cannot be read: {reason}")]
    Garbled {
        /// The path of the znode.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Whether the operation may have changed the tree although it failed.
    pub fn effect(&self) -> Effect {
        match self {
            Self::ConnectionLost | Self::TimedOut { .. } => Effect::Unknown,
            _ => Effect::None,
        }
    }

    /// Whether the same operation may succeed when it is tried again later, with nothing else changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::ConnectionLost | Self::TimedOut { .. } | Self::Contended { .. })
    }

    /// The failing operation's position and cause, if a multi failed on one of its operations.
    pub fn failed_operation(&self) -> Option<(usize, &Self)> {
        match self {
            Self::Multi { index, cause } => Some((*index, cause)),
            _ => None,
        }
    }
}

/// The answer to an operation on the tree.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ConnectError, CredentialsError, accounting::CommitError, job::LeadError, testing::said_once,
    };

    #[test]
    fn what_is_printed_with_its_sources_says_each_thing_once() {
        let path = || "/taskwork/x".to_owned();
        let multi = || Error::Multi { index: 2, cause: Box::new(Error::NoNode { path: path() }) };
        assert_eq!(
            said_once(&multi()),
            "operation 2 of the transaction failed, none was done: /taskwork/x: no such znode"
        );
        said_once(&LeadError::Store(multi()));
        said_once(&CommitError::Store(multi()));
        let refused = std::io::Error::other("the disk is gone");
        assert!(
            said_once(&CredentialsError::Read { file: path(), cause: refused }).contains("the disk is gone")
        );
        said_once(&ConnectError::Tls { reason: "no certificate".to_owned() });
    }
}
