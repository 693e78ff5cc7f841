//! The journal of a job: events that happened once and must not be repeated, or be repeated with another
//! outcome.
//!
//! One node writes at a time, the one that has *taken* the journal. Taking it sets the znode, and so changes
//! its version, which is the fence: every write checks it in the same multi. So writes of a replaced writer
//! fail, however late they arrive. A node reads the journal after taking it, and sees everything that was
//! written before.
//!
//! ```text
//! journal                     the writer; the znode's version is the fence
//!   e-<number>                an entry, or the location of its chunks
//!   c-<version>-<number>/<k>  the chunks of a large entry; they mean nothing until the entry names them
//!   note                      a state that each write replaces
//! ```
//!
//! The writer numbers the entries, so an append can be repeated until its outcome is known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::{
    blob,
    error::{Error, Result},
    job::remove,
    paths::{ClusterPaths, JobPaths},
    record,
    store::{CreateMode, Op, OpAnswer, Store, Version},
};

/// The maximum number of entries of a journal. A writer that approaches it [removes summarized
/// entries](Journal::forget_before).
pub const JOURNAL_ENTRIES_MAX: usize = 10_000;

/// The maximum size of all entries of a journal, in bytes.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// The maximum size of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 << 10;

/// The number of times that others may take a journal while one node tries to take it.
const TAKES_MAX: usize = 64;

/// The number of entries that are read or removed by one request, or concurrently.
const TOGETHER_MAX: usize = 128;

/// A node that writes to the journal, or will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The node.
    pub node: String,
    /// The attempt at the job in which it writes.
    pub attempt: u32,
    /// A number that grows from one writer in an attempt to the next, as far as the writers know.
    pub generation: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    #[serde(flatten)]
    writer: Writer,
    /// The key of the whole journal.
    key: String,
}

/// Why the journal was not taken or written.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum JournalError {
    /// The node is no longer a member.
    #[error("the node is no longer a member")]
    NotMember,
    /// The attempt no longer exists.
    #[error("the attempt is over")]
    AttemptOver,
    /// A later writer has taken the journal.
    #[error("another node writes the journal")]
    Replaced,
    /// The journal would be too large.
    #[error(
        "the journal of the job would have {entries} entries of {bytes} bytes; the limit is \
         {JOURNAL_ENTRIES_MAX} of {JOURNAL_BYTES_MAX} bytes"
    )]
    Full {
        /// The number of entries, including the rejected one.
        entries: usize,
        /// Their size, in bytes.
        bytes: u64,
    },
    /// The store refused the request. If the error is [transient](Error::is_transient), the outcome may be
    /// unknown: call again with the same data.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The journal of a job, for the node that has taken it.
#[derive(Debug)]
pub struct Journal {
    paths: JobPaths,
    member: String,
    version: Version,
    /// The number of the next entry.
    next: u64,
    /// The entries: their sizes, and the locations of their chunks, if any.
    entries: BTreeMap<u64, (u64, Option<String>)>,
    /// The size of all entries, in bytes.
    bytes: u64,
    has_note: bool,
}

/// The content of a journal when it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The key given by the first writer.
    pub key: String,
    /// The entries in their order.
    pub entries: Vec<Vec<u8>>,
    /// The last note.
    pub note: Option<Vec<u8>>,
}

type Outcome<T> = std::result::Result<T, JournalError>;

/// Makes a node the writer of a job's journal, and returns the previous content. `key` becomes the key of the
/// journal if it has none. It can be called again: each call replaces the previous writer.
///
/// # Errors
/// [`JournalError::Replaced`] if the journal was taken by a writer of a later attempt, or of a later
/// generation in this attempt, that is still a member.
pub async fn take(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    writer: &Writer,
    key: &str,
) -> Outcome<(Journal, Written)> {
    let paths = cluster.job(job);
    let (version, key) = held(store, cluster, &paths, writer, key).await?;
    let mut journal = Journal {
        member: cluster.member(&writer.node),
        version,
        next: 0,
        entries: BTreeMap::new(),
        bytes: 0,
        has_note: false,
        paths,
    };
    let (entries, note) = journal.read(store).await?;
    Ok((journal, Written { key, entries, note }))
}

/// Makes a node the writer. Returns the new version of the znode, and the key.
async fn held(
    store: &dyn Store,
    cluster: &ClusterPaths,
    paths: &JobPaths,
    writer: &Writer,
    key: &str,
) -> Outcome<(Version, String)> {
    let path = paths.journal();
    for _ in 0..TAKES_MAX {
        let (before, stat) = match store.get(&path).await {
            Ok((content, stat)) => (Some(record::read::<Holder>(&path, &content)?), Some(stat)),
            Err(Error::NoNode { .. }) => (None, None),
            Err(error) => return Err(error.into()),
        };
        if let Some(Holder { writer: before, .. }) = &before
            && (before.attempt, before.generation) > (writer.attempt, writer.generation)
            && store.exists(&cluster.member(&before.node)).await?.is_some()
        {
            return Err(JournalError::Replaced);
        }
        let key = before.map_or_else(|| key.to_owned(), |before| before.key);
        let data = record::write(&Holder { writer: writer.clone(), key: key.clone() });
        let taken = match &stat {
            Some(stat) => Op::Set { path: path.clone(), data, version: Some(stat.version) },
            None => Op::Create { path: path.clone(), data, mode: CreateMode::Persistent },
        };
        let ops = vec![
            check(cluster.member(&writer.node), None),
            check(paths.attempt(writer.attempt).base(), None),
            taken,
        ];
        match store.multi(ops).await {
            Ok(answers) => {
                let version = match answers.last() {
                    Some(OpAnswer::Set(version)) => *version,
                    _ => 0,
                };
                return Ok((version, key));
            }
            Err(Error::Multi { index: 0, cause }) if is_missing(&cause) => {
                return Err(JournalError::NotMember);
            }
            Err(Error::Multi { cause, .. }) if is_missing(&cause) => return Err(JournalError::AttemptOver),
            // Another node was faster, or an earlier try of this one.
            Err(Error::Multi { index: 2, cause })
                if matches!(*cause, Error::NodeExists { .. } | Error::BadVersion { .. }) =>
            {
                store.sync(&path).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended { path, tries: TAKES_MAX }.into())
}

fn is_missing(cause: &Error) -> bool {
    matches!(cause, Error::NoNode { .. })
}

fn check(path: String, version: Option<Version>) -> Op {
    Op::Check { path, version }
}

/// Converts an answer: znodes of the journal can only be missing because a later writer has removed them.
fn still<T>(answer: Result<T>) -> Outcome<T> {
    match answer {
        Err(Error::NoNode { .. }) => Err(JournalError::Replaced),
        other => Ok(other?),
    }
}

impl Journal {
    /// Reads the content. No other node writes any more.
    async fn read(&mut self, store: &dyn Store) -> Outcome<(Vec<Vec<u8>>, Option<Vec<u8>>)> {
        let names = store.children(&self.paths.journal()).await?;
        let numbers: Vec<u64> =
            names.iter().filter_map(|name| name.strip_prefix("e-")?.parse().ok()).collect();
        let mut entries = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(TOGETHER_MAX) {
            let paths: Vec<_> = numbers.iter().map(|number| self.paths.journal_entry(*number)).collect();
            let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
            for ((number, path), answer) in numbers.iter().zip(paths).zip(asked) {
                let content = still(answer.await)?.0;
                let data = still(blob::get(store, &path, &content).await)?;
                let folder = blob::folder(&path, &content)?;
                self.bytes += data.len() as u64;
                self.entries.insert(*number, (data.len() as u64, folder));
                entries.push(data);
            }
        }
        self.next = numbers.last().map_or(0, |last| last + 1);
        let note = if names.iter().any(|name| name == "note") {
            self.has_note = true;
            Some(still(store.get(&self.paths.journal_note()).await)?.0)
        } else {
            None
        };
        Ok((entries, note))
    }

    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry of up to [`CHUNKED_BYTES_MAX`](crate::CHUNKED_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// See [`JournalError`]. After a transient error, call again with the same data: it is written once.
    pub async fn append(&mut self, store: &dyn Store, data: &[u8]) -> Outcome<()> {
        let (number, size) = (self.next, data.len() as u64);
        let bytes = self.bytes + size;
        if self.entries.len() >= JOURNAL_ENTRIES_MAX || bytes > JOURNAL_BYTES_MAX {
            return Err(JournalError::Full { entries: self.entries.len() + 1, bytes });
        }
        let path = self.paths.journal_entry(number);
        let folder = self.paths.journal_chunks(self.version, number);
        let content = blob::put(store, folder, data, blob::INLINE_BYTES_MAX, Some(self.fence())).await;
        let content = content.map_err(fenced)?;
        let folder = blob::folder(&path, &content)?;
        match self.write(store, vec![Op::Create { path, data: content, mode: CreateMode::Persistent }]).await
        {
            // It was created by an earlier try: no other node writes under this version.
            Ok(()) | Err(JournalError::Store(Error::NodeExists { .. })) => {}
            Err(error) => return Err(error),
        }
        self.entries.insert(number, (size, folder));
        self.bytes = bytes;
        self.next = number + 1;
        Ok(())
    }

    /// Replaces the note, of up to [`NOTE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn note(&mut self, store: &dyn Store, data: &[u8]) -> Outcome<()> {
        let (path, data) = (self.paths.journal_note(), data.to_vec());
        if data.len() > NOTE_BYTES_MAX {
            return Err(Error::TooLarge { path, size: data.len(), limit: NOTE_BYTES_MAX }.into());
        }
        if !self.has_note {
            let create = Op::Create { path: path.clone(), data: data.clone(), mode: CreateMode::Persistent };
            let created = self.write(store, vec![create]).await;
            match created {
                // It was created by an earlier try, with the same note or another one.
                Err(JournalError::Store(Error::NodeExists { .. })) => self.has_note = true,
                Ok(()) => {
                    self.has_note = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.write(store, vec![Op::Set { path, data, version: None }]).await
    }

    /// Removes the entries before this number, because later ones contain their information. If it fails
    /// halfway, some of them remain.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn forget_before(&mut self, store: &dyn Store, number: u64) -> Outcome<()> {
        while let Some((first, _)) = self.entries.range(..number).next() {
            let first = *first;
            let some: Vec<u64> =
                self.entries.range(first..number).map(|(n, _)| *n).take(TOGETHER_MAX).collect();
            let delete = |number: &u64| Op::Delete { path: self.paths.journal_entry(*number), version: None };
            match self.write(store, some.iter().map(delete).collect()).await {
                // It was removed by an earlier try.
                Ok(()) | Err(JournalError::Store(Error::NoNode { .. })) => {}
                Err(error) => return Err(error),
            }
            for number in some {
                let Some((bytes, folder)) = self.entries.remove(&number) else { continue };
                self.bytes -= bytes;
                if let Some(folder) = folder {
                    remove(store, folder).await?;
                }
            }
        }
        Ok(())
    }

    fn fence(&self) -> Op {
        check(self.paths.journal(), Some(self.version))
    }

    /// Executes operations if this is still the writer, and a member.
    async fn write(&self, store: &dyn Store, ops: Vec<Op>) -> Outcome<()> {
        let checks = [self.fence(), check(self.member.clone(), None)];
        match store.multi(checks.into_iter().chain(ops).collect()).await {
            Ok(_) => Ok(()),
            Err(Error::Multi { index: 1, cause }) if is_missing(&cause) => Err(JournalError::NotMember),
            Err(Error::Multi { index: 0, cause }) => Err(fenced(Error::Multi { index: 0, cause })),
            Err(Error::Multi { cause, .. }) => Err((*cause).into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Converts the error of a write whose first operation is the fence.
fn fenced(error: Error) -> JournalError {
    match error {
        Error::Multi { index: 0, cause } => match *cause {
            Error::BadVersion { .. } => JournalError::Replaced,
            Error::NoNode { .. } => JournalError::AttemptOver,
            cause => cause.into(),
        },
        error => error.into(),
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
