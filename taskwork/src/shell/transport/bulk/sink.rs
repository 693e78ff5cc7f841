//! Where the bytes of a fetched object go.

use std::{future::Future, io};

use bytes::Bytes;

/// Takes the bytes of an object in order. While it does not take them, the owner sends no more than QUIC's
/// window.
pub(crate) trait Sink: Send {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// If they cannot be kept; this ends the fetch.
    fn take(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Drops all bytes so far, which were not those of the object.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn clear(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Keeps the content in one piece.
impl Sink for Vec<u8> {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.extend_from_slice(&bytes);
        Ok(())
    }

    async fn clear(&mut self) -> io::Result<()> {
        Self::clear(self);
        Ok(())
    }
}

/// Keeps the content in pieces, without copying.
impl Sink for Vec<Bytes> {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.push(bytes);
        Ok(())
    }

    async fn clear(&mut self) -> io::Result<()> {
        Self::clear(self);
        Ok(())
    }
}
