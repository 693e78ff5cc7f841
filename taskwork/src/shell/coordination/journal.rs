//! Writes the journal of the job for the companion on this node.

use std::sync::Arc;

use tokio::sync::mpsc;
use zk::journal::{self, Journal, Writer};

use super::Coordination;
use crate::companion::{JournalError, JournalRequest as Request, Written};

type Outcome<T> = Result<T, JournalError>;

impl Coordination {
    /// Performs the companion's requests one by one.
    pub(super) async fn serve_journal(self: Arc<Self>, mut requests: mpsc::Receiver<Request>) {
        let mut journal = None;
        while let Some(request) = requests.recv().await {
            // The companion may have stopped waiting for the answer.
            match request {
                Request::Take(generation, reply) => {
                    drop(reply.send(self.take_journal(&mut journal, generation).await));
                }
                Request::Append(entry, reply) => {
                    drop(reply.send(self.append(journal.as_mut(), &entry).await));
                }
                Request::Replace(entries, reply) => {
                    drop(reply.send(self.replace(journal.as_mut(), &entries).await));
                }
                Request::Note(note, reply) => {
                    drop(reply.send(self.write_note(journal.as_mut(), &note).await));
                }
            }
        }
    }

    async fn take_journal(&self, journal: &mut Option<Journal>, generation: u64) -> Outcome<Written> {
        let writer = Writer { node: self.node.to_string(), attempt: self.attempt_seen(), generation };
        // Unique, since node ids are random.
        let key = format!("{}-{}", self.job, self.node);
        let mut retry = self.retry();
        loop {
            match journal::take(&*self.store, &self.cluster, &self.job.0, &writer, &key).await {
                Ok((taken, journal::Written { key, entries, note })) => {
                    *journal = Some(taken);
                    return Ok(Written { key, entries, note });
                }
                Err(error) => self.again(&mut retry, "taking the journal of the job", error).await?,
            }
        }
    }

    async fn append(&self, journal: Option<&mut Journal>, entry: &[u8]) -> Outcome<usize> {
        let journal = journal.ok_or_else(not_taken)?;
        let mut retry = self.retry();
        while let Err(error) = journal.append(&*self.store, entry).await {
            self.again(&mut retry, "writing the journal of the job", error).await?;
        }
        Ok(journal.entries())
    }

    async fn replace(&self, journal: Option<&mut Journal>, entries: &[Vec<u8>]) -> Outcome<()> {
        let journal = journal.ok_or_else(not_taken)?;
        let first = journal.next();
        for entry in entries {
            self.append(Some(journal), entry).await?;
        }
        let mut retry = self.retry();
        while let Err(error) = journal.forget_before(&*self.store, first).await {
            self.again(&mut retry, "summing up the journal of the job", error).await?;
        }
        Ok(())
    }

    async fn write_note(&self, journal: Option<&mut Journal>, note: &[u8]) -> Outcome<()> {
        let journal = journal.ok_or_else(not_taken)?;
        let mut retry = self.retry();
        while let Err(error) = journal.note(&*self.store, note).await {
            self.again(&mut retry, "writing the note in the journal of the job", error).await?;
        }
        Ok(())
    }

    /// Waits before the next try, or returns why there is none.
    async fn again(
        &self,
        retry: &mut zk::retry::Retry,
        what: &str,
        error: journal::JournalError,
    ) -> Outcome<()> {
        let refused = |reason: String| Err(JournalError::Refused { reason });
        match error {
            journal::JournalError::Replaced => Err(JournalError::Replaced),
            journal::JournalError::NotMember | journal::JournalError::AttemptOver => Err(JournalError::Over),
            error @ journal::JournalError::Full { .. } => refused(error.to_string()),
            journal::JournalError::Store(
                error @ (zk::Error::TooLarge { .. } | zk::Error::Garbled { .. }),
            ) => refused(format!("the journal of the job: {error}")),
            journal::JournalError::Store(error) => {
                if retry.again(&*self.store, what, &error).await {
                    Ok(())
                } else {
                    Err(JournalError::Over)
                }
            }
        }
    }
}

fn not_taken() -> JournalError {
    JournalError::Refused { reason: "the journal of the job was not taken".to_owned() }
}
