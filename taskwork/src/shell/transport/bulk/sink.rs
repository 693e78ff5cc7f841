//! The destination of a fetched object.

use std::{fs, future::Future, io, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;

use super::Blocking;

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

/// Writes the content to a file, from its beginning. If [`take`](Sink::take) is dropped, its block may still be written
/// later.
#[derive(Debug)]
pub(crate) struct FileSink {
    file: Arc<fs::File>,
    /// The number of bytes written.
    written: u64,
    blocking: Blocking,
}

impl FileSink {
    pub(crate) fn new(file: fs::File, blocking: Blocking) -> Self {
        Self { file: Arc::new(file), written: 0, blocking }
    }
}

impl Sink for FileSink {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        let (file, position, length) = (Arc::clone(&self.file), self.written, bytes.len());
        self.blocking.run(move || file.write_all_at(&bytes, position)).await?;
        self.written += length as u64;
        Ok(())
    }

    /// Keeps the file's length: the content that follows is as long.
    async fn clear(&mut self) -> io::Result<()> {
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::mpsc,
        task::{Context, Waker},
    };

    use tokio::{runtime, task};

    use super::*;

    #[test]
    fn small_block_is_written_on_another_thread() {
        let runtime = runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // Occupies the other thread until the gate opens.
            let (gate, closed) = mpsc::channel::<()>();
            let occupied = task::spawn_blocking(move || closed.recv().is_err());
            let file = tempfile::tempfile().unwrap();
            let mut sink = FileSink::new(file.try_clone().unwrap(), Blocking::Elsewhere);
            {
                let mut taking = pin!(sink.take(Bytes::from_static(b"data")));
                let polled = taking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                assert_eq!(file.metadata().unwrap().len(), 0);
                drop(gate);
                taking.await.unwrap();
            }
            assert!(occupied.await.unwrap());
            assert_eq!((sink.written, file.metadata().unwrap().len()), (4, 4));
        });
    }
}
