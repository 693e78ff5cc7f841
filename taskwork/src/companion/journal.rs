//! A companion's access to the journal of its job: the durable record of events that must not happen again, or not
//! with another outcome, even if nodes are lost.

use std::fmt;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of pending requests. A companion usually has one at a time.
pub(crate) const REQUESTS_MAX: usize = 16;

/// The journal of a job, with one writer at a time. Clones share it.
///
/// It is stored with the job: in ZooKeeper, or in the directory of a run within this process, or in memory if such a
/// run has none. It is deleted when the job is forgotten.
#[derive(Clone)]
pub struct Journal {
    requests: mpsc::Sender<Request>,
}

/// The content of a journal at the time when a writer took it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Written {
    /// A unique key of this job across all journals.
    pub key: String,
    /// The entries, in order.
    pub entries: Vec<Vec<u8>>,
    /// The last note.
    pub note: Option<Vec<u8>>,
}

/// The reasons for which a journal was not taken or written. The outcome of a failed write is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A later writer has taken the journal.
    #[error("another node writes the journal of the job")]
    Replaced,
    /// The node's work on the job is over.
    #[error("the work on the job is over")]
    Over,
    /// The journal would be too large, was never taken, or cannot be read.
    #[error("{reason}")]
    Refused {
        /// The details.
        reason: String,
    },
}

/// A request to the loop that writes the journal, with the channel for its answer.
pub(crate) enum Request {
    Take(u64, Reply<Written>),
    Append(Vec<u8>, Reply<usize>),
    Replace(Vec<Vec<u8>>, Reply<()>),
    Note(Vec<u8>, Reply<()>),
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

impl Journal {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        (Self { requests }, requested)
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, JournalError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| JournalError::Over)?;
        answer.await.unwrap_or(Err(JournalError::Over))
    }

    /// Makes this node the writer, and returns the content written so far. Afterwards no previous writer can change it.
    /// `generation` should grow from one writer to the next: an earlier writer cannot take the journal from a later one
    /// that is still a member.
    ///
    /// # Errors
    /// See [`JournalError`]. Transient errors are retried as long as the node's session lasts.
    ///
    /// # Cancellation safety
    /// If the future is dropped, it is unknown whether this node is the writer.
    pub async fn take(&self, generation: u64) -> Result<Written, JournalError> {
        self.ask(|reply| Request::Take(generation, reply)).await
    }

    /// Appends an entry of up to 64 MiB, and returns the number of entries. A journal has at most 10,000 entries and
    /// 256 MiB.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// If the future is dropped, it is unknown whether the entry was written.
    pub async fn append(&self, entry: Vec<u8>) -> Result<usize, JournalError> {
        self.ask(|reply| Request::Append(entry, reply)).await
    }

    /// Replaces all entries by equivalent ones. If the node is lost during the call, the next writer may find previous
    /// entries in addition to the new ones.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// As if the node were lost.
    pub async fn replace(&self, entries: Vec<Vec<u8>>) -> Result<(), JournalError> {
        self.ask(|reply| Request::Replace(entries, reply)).await
    }

    /// Replaces the note, of up to 64 KiB: information that the next note supersedes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// If the future is dropped, it is unknown whether the note was written.
    pub async fn note(&self, note: Vec<u8>) -> Result<(), JournalError> {
        self.ask(|reply| Request::Note(note, reply)).await
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
