//! All results of a job, as the body of an answer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Bytes;
use hyper::body::Frame;
use taskwork_cli::web::server::Deadline;

use crate::store::{Results, ResultsError};

/// The size of a part of the body, in bytes, and its maximum number of results.
const PART_BYTES: usize = 256 << 10;
const PART_RESULTS: usize = 10_000;

/// The body: one line for each result.
#[derive(Debug)]
pub(super) struct Lines {
    results: Arc<Results>,
    /// The index of the next result; `None` after the last one.
    next: Option<u64>,
    deadline: Deadline,
}

impl Lines {
    pub(super) fn new(results: Arc<Results>, from: u64, deadline: Deadline) -> Self {
        // A connection has a deadline, which all results of a large job may exceed.
        deadline.lift();
        Self { results, next: Some(from), deadline }
    }
}

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = ResultsError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResultsError>>> {
        let Some(from) = self.next else { return Poll::Ready(None) };
        let lines = match self.results.lines(from, PART_RESULTS, PART_BYTES) {
            Ok(lines) => lines,
            Err(error) => {
                self.next = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        let Some(last) = lines.last() else { return Poll::Ready(None) };
        self.next = last.index.checked_add(1);
        let mut text = String::new();
        for line in &lines {
            text.extend([&*line.json, "\n"]);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.deadline.restore();
    }
}
