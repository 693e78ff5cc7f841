//! The first words on a connection: who speaks which version, in which cluster.
//!
//! They come before anything is believed. In TLS 1.3 the dialling side takes itself for connected before the
//! other side has rejected its certificate; only the answer to its hello proves that it is welcome.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// What the dialling side says first, on a stream of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`super::VERSION`]. It stands first, so that any version can read it.
    pub(crate) version: u32,
    pub(crate) node: NodeId,
}

/// What the accepting side answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Yes,
    /// Another version is spoken here.
    Version(u32),
    /// The certificate belongs to another node, or to none.
    Stranger,
}

/// The longest hello or answer, in bytes.
pub(crate) const HELLO_BYTES_MAX: usize = 256;
