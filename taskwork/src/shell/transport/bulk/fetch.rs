//! The fetcher's side of a fetch: tries the owners in turn until the object is complete.

use std::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::time::{self, Instant};

use super::{BulkState, FetchError, Stream, Streams, hashing::Hashing, sink::Sink};
use crate::{
    id::NodeId,
    wire::{
        bulk::{ANSWER_BYTES, Answer, Ask, ObjectName},
        codec,
    },
};

/// The number of bytes hashed and passed to the sink at a time.
const BLOCK_BYTES: usize = 512 << 10;
/// The first pause after all owners failed; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause after all owners failed.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The number of contents with a wrong hash after which the fetch fails.
const GARBLED_TIMES_MAX: usize = 3;

pub(super) struct Fetch<'a, S> {
    streams: &'a dyn Streams,
    state: &'a BulkState,
    name: ObjectName,
    /// The hash of the received bytes.
    hashing: Hashing,
    /// The number of bytes received.
    got: u64,
    sink: S,
}

impl<'a, S: Sink> Fetch<'a, S> {
    pub(super) fn new(streams: &'a dyn Streams, state: &'a BulkState, name: ObjectName, sink: S) -> Self {
        Self { streams, state, name, hashing: Hashing::new(), got: 0, sink }
    }

    /// Fetches from the owners in turn. Fails when no byte has been received for `patience`.
    pub(super) async fn run(
        mut self,
        owners: impl Fn() -> Vec<NodeId>,
        patience: Duration,
    ) -> Result<S, FetchError> {
        let (mut came, mut pause, mut garbled) = (Instant::now(), PAUSE_MIN, 0);
        let mut last = FetchError::NoOwner;
        // Seeded, so that simulated runs can be replayed; nodes differ.
        let mut random = SmallRng::seed_from_u64(self.streams.node().0 ^ self.name.bytes);
        loop {
            let mut is_busy = false;
            for owner in owners() {
                let before = self.got;
                let waiting = Instant::now();
                // Held only during a transfer, where each step has a deadline. A patient fetch of a missing object
                // must not stop other fetches.
                let place = self.state.fetching.acquire().await.expect("it is never closed");
                came += waiting.elapsed();
                let fetched = self.fetch_rest(owner).await;
                drop(place);
                match fetched {
                    Ok(()) => return Ok(self.sink),
                    Err(error @ (FetchError::Sink(_) | FetchError::Over)) => return Err(error),
                    Err(error) => last = error,
                }
                is_busy |= matches!(last, FetchError::Busy);
                tracing::debug!(
                    node = %self.streams.node(), %owner, object = %self.name, got = self.got, %last,
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
                // A busy owner has the object, so other failures are not final.
                return Err(if is_busy { FetchError::Busy } else { last });
            }
            // Randomised, so that fetchers that were rejected together do not retry together.
            let chance = random.random_range(0.5..1.5);
            time::sleep(pause.mul_f64(chance)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Lets an owner know that this node has the whole object from elsewhere, by fetching nothing after its end.
    pub(super) async fn confirm(mut self, owner: NodeId) -> Result<(), FetchError> {
        self.got = self.name.bytes;
        let mut stream = self.ask(owner).await?;
        self.receive(&mut *stream).await
    }

    /// Fetches the rest from an owner. On failure the received bytes are kept, unless their hash is wrong.
    pub(super) async fn fetch_rest(&mut self, owner: NodeId) -> Result<(), FetchError> {
        let mut stream = self.ask(owner).await?;
        self.receive(&mut *stream).await?;
        if self.hashing.name().await.map_err(|_| FetchError::Over)? == self.name {
            return Ok(());
        }
        (self.hashing, self.got) = (Hashing::new(), 0);
        self.sink.clear().await.map_err(FetchError::Sink)?;
        Err(FetchError::Garbled)
    }

    /// Requests the rest of the content from an owner, and returns the stream with it.
    async fn ask(&self, owner: NodeId) -> Result<Box<dyn Stream>, FetchError> {
        let ask = codec::encode(&Ask { object: self.name, offset: self.got });
        let mut stream = self.streams.open(owner, ask.map_err(FetchError::cut_off)?).await?;
        let mut answer = [0; ANSWER_BYTES];
        if self.in_time(stream.read(&mut answer)).await? < ANSWER_BYTES {
            return Err(FetchError::cut_off("it ends before the answer"));
        }
        match codec::decode(&answer).map_err(FetchError::cut_off)? {
            Answer::Here => Ok(stream),
            Answer::Unknown => Err(FetchError::Unknown),
            Answer::Busy => Err(FetchError::Busy),
        }
    }

    /// Passes the rest of the content to the sink, including the bytes received before a failure.
    async fn receive(&mut self, stream: &mut dyn Stream) -> Result<(), FetchError> {
        while self.left() > 0 {
            // Memory is allocated per block: the length in the name is not trusted.
            let mut block =
                vec![0; usize::try_from(self.left()).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES))];
            let mut filled = 0;
            let mut outcome = Ok(());
            while filled < block.len() && outcome.is_ok() {
                match self.in_time(stream.read(&mut block[filled..])).await {
                    Ok(bytes @ 1..) => filled += bytes,
                    Ok(0) => outcome = Err(FetchError::cut_off("it ends too early")),
                    Err(error) => outcome = Err(error),
                }
            }
            block.truncate(filled);
            self.keep(block).await?;
            outcome?;
        }
        match self.in_time(stream.read(&mut [0])).await? {
            0 => Ok(()),
            _ => Err(FetchError::cut_off("it is longer than its name specifies")),
        }
    }

    async fn keep(&mut self, block: Vec<u8>) -> Result<(), FetchError> {
        let (bytes, block) = (block.len() as u64, Bytes::from(block));
        self.hashing.add(block.clone(), self.state.blocking).await.map_err(|_| FetchError::Over)?;
        self.got += bytes;
        self.state.received.fetch_add(bytes, Relaxed);
        self.sink.take(block).await.map_err(FetchError::Sink)
    }

    fn left(&self) -> u64 {
        self.name.bytes - self.got
    }

    /// Performs one step of a transfer within the owner's time limit.
    async fn in_time<T>(&self, step: impl Future<Output = Result<T, FetchError>>) -> Result<T, FetchError> {
        match time::timeout(self.state.progress, step).await {
            Ok(done) => done,
            Err(_) => Err(FetchError::cut_off("timeout while waiting for data")),
        }
    }
}

impl FetchError {
    pub(crate) fn cut_off(reason: impl fmt::Display) -> Self {
        Self::CutOff(reason.to_string())
    }
}
