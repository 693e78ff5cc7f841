//! Bodies of answers that are read from the store in parts.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Bytes;
use hyper::body::Frame;
use taskwork_cli::web::server::Deadline;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::store::{Results, ResultsError};

/// The size of a part with results, in bytes, and its maximum number of results.
const RESULTS_BYTES: usize = 256 << 10;
const RESULTS_MAX: usize = 10_000;

type Read = Result<Bytes, Box<dyn Error + Send + Sync>>;

/// Reads the next part; it is empty at the end.
type Source = Box<dyn FnMut() -> Read + Send>;

/// A body whose parts are read on threads that may block.
pub(super) struct Parts {
    stage: Stage,
    deadline: Deadline,
}

enum Stage {
    Idle(Source),
    Reading(JoinHandle<(Source, Read)>),
    Ended,
}

impl Parts {
    pub(super) fn new(
        deadline: Deadline,
        next: impl FnMut() -> Result<Bytes, Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Self {
        // A connection has a deadline, which a large body may exceed.
        deadline.lift();
        Self { stage: Stage::Idle(Box::new(next)), deadline }
    }

    /// Creates the body of all results from an index: one line for each.
    pub(super) fn of_results(results: Arc<Results>, from: u64, deadline: Deadline) -> Self {
        let mut next = Some(from);
        Self::new(deadline, move || {
            let Some(from) = next else { return Ok(Bytes::new()) };
            let lines = results.lines(from, RESULTS_MAX, RESULTS_BYTES).map_err(Box::<ResultsError>::from)?;
            next = lines.last().and_then(|line| line.index.checked_add(1));
            Ok(lines.into_iter().flat_map(|line| line.json.into_bytes().into_iter().chain([b'\n'])).collect())
        })
    }
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Idle(mut source) => Stage::Reading(spawn_blocking(move || {
                    let read = source();
                    (source, read)
                })),
                Stage::Reading(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
                        self.stage = Stage::Reading(reading);
                        return Poll::Pending;
                    };
                    match read {
                        Ok((_, Ok(part))) if part.is_empty() => Stage::Ended,
                        Ok((source, Ok(part))) => {
                            self.stage = Stage::Idle(source);
                            return Poll::Ready(Some(Ok(Frame::data(part))));
                        }
                        Ok((_, Err(error))) => return Poll::Ready(Some(Err(error))),
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    }
                }
                Stage::Ended => return Poll::Ready(None),
            };
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.deadline.restore();
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}
