//! The fetcher's side: from one owner after another, until the object is complete.

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

/// The reasons for which an object was not fetched, or not by this owner.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    #[error("no member is known that may have it")]
    NoOwner,
    #[error("the member does not have it")]
    Unknown,
    #[error("the member serves as many requests as it may")]
    Busy,
    #[error("the transfer was cut off: {0}")]
    CutOff(String),
    #[error("the content is not what its name says")]
    Garbled,
    #[error("the content cannot be kept: {0}")]
    Sink(#[source] io::Error),
    #[error("the content cannot be hashed: {0}")]
    Hashing(#[source] JoinError),
}

/// The bytes that are hashed and handed on at a time.
const BLOCK_BYTES: usize = 512 << 10;
/// The first pause after no owner could serve; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest of these pauses.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often a content may turn out to be another one before the fetch is given up.
const GARBLED_TIMES_MAX: usize = 3;

/// A fetch under way.
pub(super) struct Fetch<S> {
    hub: Arc<Hub>,
    name: ObjectName,
    /// Of what has come.
    hashing: Hashing,
    /// The number of bytes that have come.
    got: u64,
    sink: S,
}

impl<S: Sink> Fetch<S> {
    pub(super) fn new(hub: Arc<Hub>, name: ObjectName, sink: S) -> Self {
        Self { hub, name, hashing: Hashing::new(), got: 0, sink }
    }

    /// Fetches from one owner after another. Gives up when no byte has come for as long as the patience.
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
                match self.go_on(owner).await {
                    Ok(()) => return Ok(self.sink),
                    Err(error @ (FetchError::Sink(_) | FetchError::Hashing(_))) => return Err(error),
                    Err(error) => last = error,
                }
                tracing::debug!(
                    node = %self.hub.me, %owner, object = %self.name, got = self.got, %last,
                    "an object did not come from this member"
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
            // Fetchers that were turned away together do not come back together.
            let chance = rand::rng().random_range(0.5..1.5);
            time::sleep(pause.mul_f64(chance)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fetches the rest from an owner. What has come stays if it fails, unless it is garbled.
    pub(super) async fn go_on(&mut self, owner: NodeId) -> Result<(), FetchError> {
        let mut stream = self.ask(owner).await?;
        self.receive(&mut stream).await?;
        if self.hashing.name().await.map_err(FetchError::Hashing)? == self.name {
            return Ok(());
        }
        (self.hashing, self.got) = (Hashing::new(), 0);
        self.sink.clear().await.map_err(FetchError::Sink)?;
        Err(FetchError::Garbled)
    }

    /// Asks an owner, and returns the stream with the rest of the content.
    async fn ask(&self, owner: NodeId) -> Result<RecvStream, FetchError> {
        let connection = self.hub.reach(owner).await.map_err(FetchError::cut_off)?;
        let Ok(opened) = time::timeout(self.hub.limits.dial, connection.open_bi()).await else {
            // As many requests as it allows are open.
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

    /// Hands the rest of the content to the sink. When the stream breaks, what has come before is handed on.
    async fn receive(&mut self, stream: &mut RecvStream) -> Result<(), FetchError> {
        while self.left() > 0 {
            // Memory is taken block by block, whatever length the name says.
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
            Some(_) => Err(FetchError::cut_off("it is longer than its name says")),
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

    /// Does one step of a transfer within the time that an owner may take for it.
    async fn in_time<T, E: fmt::Display>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, FetchError> {
        match time::timeout(self.hub.limits.bulk_progress, step).await {
            Ok(done) => done.map_err(FetchError::cut_off),
            Err(_) => Err(FetchError::cut_off("nothing came in time")),
        }
    }
}

impl FetchError {
    fn cut_off(reason: impl fmt::Display) -> Self {
        Self::CutOff(reason.to_string())
    }
}
