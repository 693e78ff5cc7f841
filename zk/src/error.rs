//! The errors of operations on the tree, and whether a failed operation may have taken effect.
//!
//! The decisive question after a failure is not *what* failed but *whether the operation took effect*. A
//! create that was refused with "exists already" changed nothing; a create whose answer was lost with the
//! connection may have succeeded. [`Error::effect`] answers that for every error.
//!
//! Every error of the project includes its cause in its own message and therefore has no `source`, so that it
//! is printed once, whether sources are printed or not.

use thiserror::Error as ThisError;

/// Whether a failed operation changed the tree.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The server refused the operation, or it was never sent: nothing changed.
    None,
    /// The answer was lost. The operation may have taken effect, or may still do so.
    Unknown,
}

/// Why an operation on the tree failed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The znode, or the parent of the one to create, does not exist.
    #[error("{path}: no such znode")]
    NoNode {
        /// The requested path.
        path: String,
    },
    /// The znode exists already.
    #[error("{path}: the znode exists already")]
    NodeExists {
        /// The path to be created.
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
        /// The path to be created.
        path: String,
    },
    /// The credentials of this session do not permit the operation.
    #[error("{path}: not permitted with this session's credentials")]
    NoAuth {
        /// The path of the znode.
        path: String,
    },
    /// A znode that this session's credentials should guard is accessible without credentials.
    #[error(
        "{path}: this znode is open to everyone, because it was created without credentials. To close it and \
         the znodes below it, stop its users and run in zkCli.sh: addauth digest USER:PASSWORD, then: \
         setAcl -R {path} auth::cdrwa"
    )]
    Open {
        /// The path of the znode, as an operator sees it.
        path: String,
    },
    /// A path that no tree can contain.
    #[error("{path:?} is not a path of a znode: {reason}")]
    InvalidPath {
        /// The given path.
        path: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The data, or the whole multi, exceeds the server's limit.
    #[error("{path}: {size} bytes are more than the limit of {limit} bytes")]
    TooLarge {
        /// The path of the znode, or of the first operation of the multi.
        path: String,
        /// The size of the data, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The znode already has the maximum number of children. Nothing was done.
    #[error(
        "{path}: there are already {children}, and the limit is {limit}; try again when some are \
         gone"
    )]
    TooMany {
        /// The parent znode.
        path: String,
        /// The number of its children.
        children: usize,
        /// The maximum number of children.
        limit: usize,
    },
    /// One operation of a multi failed, so none of them took effect.
    #[error("operation {index} of the transaction failed, none took effect: {cause}")]
    Multi {
        /// The position of the operation that failed, from 0.
        index: usize,
        /// Why it failed.
        cause: Box<Error>,
    },
    /// The connection was lost before the answer came.
    #[error("the connection was lost before the answer came; the operation may have been executed")]
    ConnectionLost,
    /// The answer did not come within the deadline.
    #[error("no answer within {waited_ms} ms; the operation may have been executed")]
    TimedOut {
        /// The time that the client waited, in milliseconds.
        waited_ms: u64,
    },
    /// Other writers were faster every time. Nothing was done.
    #[error("{path}: others were faster {tries} times; nothing was done")]
    Contended {
        /// The contended znode.
        path: String,
        /// The number of tries.
        tries: usize,
    },
    /// The server refused the operation for another reason, such as a quota. Nothing was done.
    #[error("{path}: the server refused the operation: {reason}")]
    Refused {
        /// The path of the operation.
        path: String,
        /// The server's reason.
        reason: String,
    },
    /// A change could not be written to the file of a durable tree, for example because the disk is full. The
    /// tree rejects further requests; acknowledged changes are in the file.
    #[error(
        "{file} cannot be written: {reason}. It contains all acknowledged changes: free disk space or fix \
         the cause, and start again"
    )]
    NotKept {
        /// The file.
        file: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The session is over: its ephemerals are gone, and it accepts no more requests.
    #[error("the session has expired")]
    SessionExpired,
    /// The content of a znode is malformed.
    #[error("{path}: the content of the znode cannot be read: {reason}")]
    Garbled {
        /// The path of the znode.
        path: String,
        /// The problem with the content.
        reason: String,
    },
}

impl Error {
    /// Returns whether the operation may have changed the tree although it failed.
    pub fn effect(&self) -> Effect {
        match self {
            Self::ConnectionLost | Self::TimedOut { .. } | Self::NotKept { .. } => Effect::Unknown,
            _ => Effect::None,
        }
    }

    /// Returns whether the same operation may succeed when it is retried later, with nothing else changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::ConnectionLost | Self::TimedOut { .. } | Self::Contended { .. })
    }

    /// Returns the failing operation's position and cause, if a multi failed on one of its operations.
    pub fn failed_operation(&self) -> Option<(usize, &Self)> {
        match self {
            Self::Multi { index, cause } => Some((*index, cause)),
            _ => None,
        }
    }
}

/// The result of an operation on the tree.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ConnectError, CredentialsError, accounting::CommitError, job::LeadError, testing::said_once,
    };

    #[test]
    fn error_printed_with_sources_has_no_repetition() {
        let path = || "/taskwork/x".to_owned();
        let multi = || Error::Multi { index: 2, cause: Box::new(Error::NoNode { path: path() }) };
        assert_eq!(
            said_once(&multi()),
            "operation 2 of the transaction failed, none took effect: /taskwork/x: no such znode"
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
