//! A companion's way to the journal of its job: what has happened once and must not happen again, or have another
//! outcome then, whichever nodes are lost.

use std::fmt;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of requests that wait. A companion usually has one at a time.
pub(crate) const REQUESTS_MAX: usize = 16;

/// The journal of a job, which one node writes at a time. Clones are the same.
///
/// It is kept with the job: in ZooKeeper, or in the directory of a run within this process, or in memory if such a run
/// has none. It goes when the job is forgotten.
#[derive(Clone)]
pub struct Journal {
    requests: mpsc::Sender<Request>,
}

/// What was in a journal when it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Written {
    /// A text by which this job is told from all others, since there are journals.
    pub key: String,
    /// The entries in their order.
    pub entries: Vec<Vec<u8>>,
    /// The last note.
    pub note: Option<Vec<u8>>,
}

/// Why a journal was not taken or written. Of what was to be written it is not known whether it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A later writer has taken the journal.
    #[error("another node writes the journal of the job")]
    Replaced,
    /// The node's work on the job is over.
    #[error("the work on the job is over")]
    Over,
    /// It would be too large, or was never taken, or cannot be read.
    #[error("{reason}")]
    Refused {
        /// What has happened.
        reason: String,
    },
}

/// A request to the loop that writes the journal, and the way of its answer.
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

    /// Makes this node the writer, and returns what was written before. From then on no writer before changes anything.
    /// `generation` should grow from one writer to the next: an earlier one does not take the journal from a later one
    /// that is still a member.
    ///
    /// # Errors
    /// See [`JournalError`]. What is transient is tried again as long as the node's session lasts.
    ///
    /// # Cancellation safety
    /// If the future is dropped, this node may be the writer or not.
    pub async fn take(&self, generation: u64) -> Result<Written, JournalError> {
        self.ask(|reply| Request::Take(generation, reply)).await
    }

    /// Adds an entry of up to 64 MiB, and returns the number of entries. All entries may have 256 MiB, and be 10,000.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// If the future is dropped, the entry may be written or not.
    pub async fn append(&self, entry: Vec<u8>) -> Result<usize, JournalError> {
        self.ask(|reply| Request::Append(entry, reply)).await
    }

    /// Replaces all entries by these, which say the same. If the node is lost meanwhile, the next writer may find
    /// entries of before beside them.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// As if the node were lost.
    pub async fn replace(&self, entries: Vec<Vec<u8>>) -> Result<(), JournalError> {
        self.ask(|reply| Request::Replace(entries, reply)).await
    }

    /// Replaces the note, of up to 64 KiB: what is worth knowing as long as nothing newer is.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancellation safety
    /// If the future is dropped, the note may be written or not.
    pub async fn note(&self, note: Vec<u8>) -> Result<(), JournalError> {
        self.ask(|reply| Request::Note(note, reply)).await
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
