//! The errors of a node's membership and of its process.

use std::{io, net::SocketAddr};

use thiserror::Error;
use zk::ConnectError;

use super::transport::TransportError;

/// The reasons why a node could not take a seat.
#[derive(Debug, Error)]
pub(crate) enum SeatError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] zk::Error),
    #[error("the thread could not be started: {0}")]
    Thread(#[source] io::Error),
    #[error(
        "{listen} means every address of this machine, which other nodes cannot dial: specify a dialable \
         address with --advertise"
    )]
    NoAddress { listen: SocketAddr },
    #[error("{name}, the name of this node for other nodes (--advertise), has no address: {why}")]
    UnknownName { name: String, why: String },
    #[error("{name}, the name of this node for other nodes (--advertise), cannot be resolved now: {why}")]
    NoNameService { name: String, why: String },
}

/// The reasons for which a node process fails.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Seat(#[from] SeatError),
    #[error(transparent)]
    Store(#[from] zk::Error),
    #[error(
        "the deadline for leaving passed before all tasks were handed over: {why}. Other nodes continue from \
         the last write"
    )]
    Abandoned { why: String },
    #[error("the node has failed because of a bug in the runtime; see its log")]
    BrokenDown,
}

impl ServeError {
    /// Returns whether the error is temporary: the operation may succeed later without any change.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Seat(SeatError::NoNameService { .. }) => true,
            Self::Store(error) | Self::Seat(SeatError::Store(error)) => {
                error.is_transient() || *error == zk::Error::SessionExpired
            }
            _ => false,
        }
    }
}
