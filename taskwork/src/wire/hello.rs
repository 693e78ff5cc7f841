//! The first message on a connection: the sender, its version and its cluster.
//!
//! It is exchanged before any other data is trusted. In TLS 1.3 the dialling side considers itself connected
//! before the other side has rejected its certificate; only the answer to its hello proves that it was
//! accepted.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// The first message of the dialling side, on a stream of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`super::VERSION`]. The first field, so that any version can read it.
    pub(crate) version: u32,
    pub(crate) node: NodeId,
}

/// The answer of the accepting side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Yes,
    /// The version here, which differs from that of the hello.
    Version(u32),
    /// The certificate belongs to another node, or to none.
    Stranger,
}

pub(crate) const HELLO_BYTES_MAX: usize = 256;
