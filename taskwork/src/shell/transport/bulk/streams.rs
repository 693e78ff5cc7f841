//! The streams on which objects are fetched: of QUIC, or of a simulated network.

use std::{fmt, future::Future, pin::Pin};

use super::FetchError;
use crate::id::NodeId;

/// A node's access to the owners of objects.
pub(crate) trait Streams: fmt::Debug + Send + Sync {
    /// Returns this node.
    fn node(&self) -> NodeId;

    /// Sends an encoded [`Ask`](crate::wire::bulk::Ask) to a member. The stream starts with the encoded answer.
    fn open(&self, owner: NodeId, ask: Vec<u8>) -> Opening<'_>;
}

/// The future of an opened stream.
pub(crate) type Opening<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, FetchError>> + Send + 'a>>;

/// Bytes from the owner of an object. Dropping it stops the owner.
pub(crate) trait Stream: Send {
    /// Reads the next bytes into the buffer, and returns their number; 0 at the end.
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Reading<'a>;
}

/// The future of received bytes.
pub(crate) type Reading<'a> = Pin<Box<dyn Future<Output = Result<usize, FetchError>> + Send + 'a>>;
