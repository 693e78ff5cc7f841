//! Objects of simulated nodes: the production code of both sides, over streams of the simulator.

use std::{
    fmt,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::{sync::mpsc, time};

use super::World;
use crate::{
    id::NodeId,
    shell::transport::{
        Peers, TransportLimits,
        bulk::{self, FetchError, Serving, Stream, Streams},
    },
};

/// The owner's side of a fetch. Dropping it frees its place.
pub struct Answering {
    pub(super) to: NodeId,
    /// The encoded answer before the content.
    pub(super) answer: Option<Vec<u8>>,
    pub(super) serving: Option<Serving>,
}

/// The maximum number of bytes of an object that arrive at a time.
const CHUNK_BYTES: usize = 64 << 10;

impl Answering {
    /// Returns the next bytes; `None` at the end, or if the rest cannot be read immediately.
    pub fn next_bytes(&mut self) -> Option<Vec<u8>> {
        if let Some(answer) = self.answer.take() {
            return Some(answer);
        }
        let serving = self.serving.as_mut()?;
        let next = pin!(serving.reader.next(CHUNK_BYTES)).poll(&mut Context::from_waker(Waker::noop()));
        match next {
            Poll::Ready(Ok(Some(bytes))) => return Some(bytes.to_vec()),
            Poll::Ready(Ok(None)) => serving.on_taken(self.to),
            Poll::Ready(Err(_)) | Poll::Pending => {}
        }
        self.serving = None;
        None
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("to", &self.to).finish_non_exhaustive()
    }
}

/// The fetcher's side of a fetch. Dropping it ends the stream.
#[derive(Debug)]
pub struct Answer(mpsc::UnboundedSender<Bytes>);

impl Answer {
    /// Delivers the next bytes.
    pub fn deliver(&self, bytes: Vec<u8>) {
        let _ = self.0.send(bytes.into());
    }

    /// Returns whether the fetch was dropped.
    pub fn is_dropped(&self) -> bool {
        self.0.is_closed()
    }
}

/// The streams of a node in a world.
pub(super) struct WorldStreams {
    pub(super) node: NodeId,
    pub(super) world: Arc<dyn World>,
    pub(super) peers: Arc<Peers>,
}

impl fmt::Debug for WorldStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldStreams").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Streams for WorldStreams {
    fn node(&self) -> NodeId {
        self.node
    }

    fn open(&self, owner: NodeId, ask: Vec<u8>) -> bulk::Opening<'_> {
        Box::pin(async move {
            let found = time::timeout(TransportLimits::default().dial, self.peers.find(owner)).await;
            if !matches!(found, Ok(Some(_))) {
                return Err(FetchError::cut_off("it is not a member"));
            }
            let (sender, chunks) = mpsc::unbounded_channel();
            self.world.ask(self.node, owner, ask, Answer(sender));
            let peers = Arc::clone(&self.peers);
            Ok(Box::new(WorldStream { owner, peers, chunks, rest: Bytes::new() }) as Box<dyn Stream>)
        })
    }
}

struct WorldStream {
    owner: NodeId,
    peers: Arc<Peers>,
    chunks: mpsc::UnboundedReceiver<Bytes>,
    /// The part of the last chunk that was not read yet.
    rest: Bytes,
}

impl Stream for WorldStream {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> bulk::Reading<'a> {
        Box::pin(async move {
            if self.rest.is_empty() {
                tokio::select! {
                    biased;
                    // A connection is closed when its peer is no longer a member.
                    () = self.peers.absent(self.owner) => return Err(FetchError::cut_off("it is no longer a member")),
                    chunk = self.chunks.recv() => self.rest = chunk.unwrap_or_default(),
                }
            }
            let bytes = self.rest.split_to(self.rest.len().min(buffer.len()));
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        })
    }
}
