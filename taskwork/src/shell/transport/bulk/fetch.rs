//! The fetcher's side of a fetch: tries the owners in turn until the object is complete.

use std::{
    fmt, io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use quinn::RecvStream;
use rand::Rng as _;
use thiserror::Error;
use tokio::{
    task::JoinError,
    time::{self, Instant},
};

use super::{super::Hub, hashing::Hashing, sink::Sink};
use crate::{
    id::NodeId,
    wire::{
        bulk::{ANSWER_BYTES, Answer, Ask, ObjectName},
        codec,
    },
};

/// The reasons why a fetch failed, in total or from one owner.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    #[error("no known member may have it")]
    NoOwner,
    #[error("the member does not have it")]
    Unknown,
    #[error("the member serves the maximum number of requests")]
    Busy,
    #[error("the transfer was cut off: {0}")]
    CutOff(String),
    #[error("the content does not match its name")]
    Garbled,
    #[error("the content cannot be stored: {0}")]
    Sink(#[source] io::Error),
    #[error("the content cannot be hashed: {0}")]
    Hashing(#[source] JoinError),
}

/// The number of bytes hashed and passed to the sink at a time.
const BLOCK_BYTES: usize = 512 << 10;
/// The first pause after all owners failed; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause after all owners failed.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The number of contents with a wrong hash after which the fetch fails.
const GARBLED_TIMES_MAX: usize = 3;

pub(super) struct Fetch<S> {
    hub: Arc<Hub>,
    name: ObjectName,
    /// The hash of the received bytes.
    hashing: Hashing,
    /// The number of bytes received.
    got: u64,
    sink: S,
}

impl<S: Sink> Fetch<S> {
    pub(super) fn new(hub: Arc<Hub>, name: ObjectName, sink: S) -> Self {
        Self { hub, name, hashing: Hashing::new(), got: 0, sink }
    }

    /// Fetches from the owners in turn. Fails when no byte has been received for `patience`.
    pub(super) async fn run(
        mut self,
        owners: impl Fn() -> Vec<NodeId>,
        patience: Duration,
    ) -> Result<S, FetchError> {
        let (mut came, mut pause, mut garbled) = (Instant::now(), PAUSE_MIN, 0);
        let mut last = FetchError::NoOwner;
        loop {
            for owner in owners() {
                let before = self.got;
                match self.fetch_rest(owner).await {
                    Ok(()) => return Ok(self.sink),
                    Err(error @ (FetchError::Sink(_) | FetchError::Hashing(_))) => return Err(error),
                    Err(error) => last = error,
                }
                tracing::debug!(
                    node = %self.hub.me, %owner, object = %self.name, got = self.got, %last,
                    "an object could not be fetched from this member"
                );
                garbled += usize::from(matches!(last, FetchError::Garbled));
                if garbled == GARBLED_TIMES_MAX {
                    return Err(last);
                }
                if self.got > before {
                    (came, pause) = (Instant::now(), PAUSE_MIN);
                }
            }
            if came.elapsed() >= patience {
                return Err(last);
            }
            // Randomised, so that fetchers that were rejected together do not retry together.
            let chance = rand::rng().random_range(0.5..1.5);
            time::sleep(pause.mul_f64(chance)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fetches the rest from an owner. On failure the received bytes are kept, unless their hash is wrong.
    pub(super) async fn fetch_rest(&mut self, owner: NodeId) -> Result<(), FetchError> {
        let mut stream = self.ask(owner).await?;
        self.receive(&mut stream).await?;
        if self.hashing.name().await.map_err(FetchError::Hashing)? == self.name {
            return Ok(());
        }
        (self.hashing, self.got) = (Hashing::new(), 0);
        self.sink.clear().await.map_err(FetchError::Sink)?;
        Err(FetchError::Garbled)
    }

    /// Requests the rest of the content from an owner, and returns the stream with it.
    async fn ask(&self, owner: NodeId) -> Result<RecvStream, FetchError> {
        let connection = self.hub.reach(owner).await.map_err(FetchError::cut_off)?;
        let Ok(opened) = time::timeout(self.hub.limits.dial, connection.open_bi()).await else {
            // The maximum number of requests is open.
            return Err(FetchError::Busy);
        };
        let (mut question, mut stream) = opened.map_err(FetchError::cut_off)?;
        let ask = codec::encode(&Ask { object: self.name, offset: self.got });
        let ask = ask.map_err(FetchError::cut_off)?;
        self.in_time(question.write_chunk(Bytes::from(ask))).await?;
        question.finish().map_err(FetchError::cut_off)?;
        let mut answer = [0; ANSWER_BYTES];
        self.in_time(stream.read_exact(&mut answer)).await?;
        match codec::decode(&answer).map_err(FetchError::cut_off)? {
            Answer::Here => Ok(stream),
            Answer::Unknown => Err(FetchError::Unknown),
            Answer::Busy => Err(FetchError::Busy),
        }
    }

    /// Passes the rest of the content to the sink, including the bytes received before a failure.
    async fn receive(&mut self, stream: &mut RecvStream) -> Result<(), FetchError> {
        while self.left() > 0 {
            // Memory is allocated per block: the length in the name is not trusted.
            let mut block =
                vec![0; usize::try_from(self.left()).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES))];
            let mut filled = 0;
            let mut outcome = Ok(());
            while filled < block.len() && outcome.is_ok() {
                match self.in_time(stream.read(&mut block[filled..])).await {
                    Ok(Some(bytes)) => filled += bytes,
                    Ok(None) => outcome = Err(FetchError::cut_off("it ends too early")),
                    Err(error) => outcome = Err(error),
                }
            }
            block.truncate(filled);
            self.keep(block).await?;
            outcome?;
        }
        match self.in_time(stream.read(&mut [0])).await? {
            None => Ok(()),
            Some(_) => Err(FetchError::cut_off("it is longer than its name specifies")),
        }
    }

    async fn keep(&mut self, block: Vec<u8>) -> Result<(), FetchError> {
        let (bytes, block) = (block.len() as u64, Bytes::from(block));
        self.hashing.add(block.clone()).await.map_err(FetchError::Hashing)?;
        self.got += bytes;
        self.hub.bulk.received.fetch_add(bytes, Relaxed);
        self.sink.take(block).await.map_err(FetchError::Sink)
    }

    fn left(&self) -> u64 {
        self.name.bytes - self.got
    }

    /// Performs one step of a transfer within the owner's time limit.
    async fn in_time<T, E: fmt::Display>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, FetchError> {
        match time::timeout(self.hub.limits.bulk_progress, step).await {
            Ok(done) => done.map_err(FetchError::cut_off),
            Err(_) => Err(FetchError::cut_off("timeout while waiting for data")),
        }
    }
}

impl FetchError {
    fn cut_off(reason: impl fmt::Display) -> Self {
        Self::CutOff(reason.to_string())
    }
}
