//! The destination of a fetched object.

use std::{future::Future, io};

use bytes::Bytes;

/// Receives the bytes of an object in order. While it does not accept data, the owner sends no more than QUIC's
/// window.
pub(crate) trait Sink: Send {
    /// Receives the next bytes.
    ///
    /// # Errors
    /// If they cannot be stored; this fails the fetch.
    fn take(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Drops all bytes so far, because their hash is wrong.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn clear(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Stores the content in one piece.
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

/// Stores the content in pieces, without copying.
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
