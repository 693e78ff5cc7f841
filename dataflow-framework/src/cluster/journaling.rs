//! Writes the journal of a program: outcomes that must not happen twice, or change, when the program restarts.
//!
//! The coordinator takes the journal before the program starts, and restores its content. From then on facts
//! are written as one entry after another; facts that arrive during a write are gathered in the next entry.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use taskwork::companion::{Journal, JournalError, Written};

use super::leading::Leading;
use crate::{
    core::Fact,
    encoding::{decode, encode, stable_hash},
    program::entries,
};

/// The number of entries that are written without delay.
const WRITES_AT_ONCE: u64 = 16;

/// The delay of further entries, in milliseconds, unless the program waits.
const GATHER_MS: u64 = 40;

/// The interval of writing the note for a later run of the program, in milliseconds.
const NOTE_MS: u64 = 2_000;

/// The number of entries, and their size in bytes, above which they are replaced by a summary.
const ENTRIES_MAX: usize = 1_000;
const ENTRIES_BYTES_MAX: usize = 96 << 20;

/// The delay before taking the journal is retried after a seemingly later writer has refused it, in
/// milliseconds.
const TAKE_AGAIN_MS: u64 = 500;

/// The maximum number of these retries; then the program restarts as a later run. A writer that is still
/// present may have abandoned its run, which this node need not have heard of.
const TAKES_MAX: u32 = 5;

/// The interval at which a program that waits for its journal checks whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// The state of the journal of a run.
#[derive(Debug, Default)]
pub(super) struct Writing {
    stage: Stage,
    writes: u64,
    /// The times of the last write, and of the last note.
    last_ms: u64,
    noted_ms: u64,
    is_long: bool,
    /// The time from which the journal may be taken.
    take_ms: u64,
    /// The number of times another run has refused the journal.
    refusals: u32,
    /// The reason why the program cannot continue.
    trouble: Option<String>,
}

/// The writer of the journal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This run, once it has taken the journal.
    #[default]
    NotTaken,
    Taken,
    /// Another run.
    Replaced,
    /// No writer any longer.
    Over,
}

enum Write {
    Take(u64),
    Append(Vec<u8>),
    Replace(Vec<Vec<u8>>),
    Note(Vec<u8>),
}

/// The result of a write.
enum Done {
    Taken(Result<Written, JournalError>),
    Appended(Result<usize, JournalError>),
    Replaced(Result<(), JournalError>),
    Noted(Result<(), JournalError>),
}

/// Writes one entry after another.
pub(super) struct Journaling {
    journal: Journal,
    under_way: Option<UnderWay>,
}

type UnderWay = Pin<Box<dyn Future<Output = (Arc<Leading>, Done)> + Send>>;

impl Journaling {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, under_way: None }
    }

    /// Waits until a write completes.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(super) async fn done(&mut self) {
        let Some(under_way) = &mut self.under_way else { return pending().await };
        let (leading, done) = under_way.await;
        self.under_way = None;
        leading.apply(done);
    }

    /// Starts the next write for the program on this node, if no write is running.
    pub(super) fn begin(&mut self, leading: Option<Arc<Leading>>, now_ms: u64) {
        let Some(leading) = leading.filter(|_| self.under_way.is_none()) else { return };
        let Some(write) = leading.next_write(now_ms) else { return };
        let journal = self.journal.clone();
        self.under_way = Some(Box::pin(async move {
            let done = match write {
                Write::Take(generation) => Done::Taken(journal.take(generation).await),
                Write::Append(entry) => Done::Appended(journal.append(entry).await),
                Write::Replace(entries) => Done::Replaced(journal.replace(entries).await),
                Write::Note(note) => Done::Noted(journal.note(note).await),
            };
            (leading, done)
        }));
    }
}

impl Writing {
    /// Returns whether it is time to try to take the journal, and records the try.
    fn begin_attempt(&mut self, now_ms: u64) -> bool {
        let is_time = now_ms >= self.take_ms;
        if is_time {
            self.take_ms = now_ms + TAKE_AGAIN_MS;
        }
        is_time
    }

    /// Records that a later run holds the journal. Returns whether this run must stop trying.
    fn is_refused(&mut self) -> bool {
        if self.refusals == 0 {
            tracing::warn!(
                "another node, which is still present, writes the journal of the program; this node retries"
            );
        }
        self.refusals += 1;
        self.refusals >= TAKES_MAX
    }
}

impl Leading {
    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the journal is taken and its content is restored. Unwinds the program if it was stopped.
    pub(super) fn wait_until_taken(&self) {
        loop {
            let locked = self.writing();
            let is_taken = |writing: &Writing| writing.stage == Stage::Taken;
            let writing =
                self.is_taken.wait_while(&self.writing, locked, STOP_LOOK, |writing| !is_taken(writing));
            let may_begin = is_taken(&writing);
            drop(writing);
            self.engine.end_if_stopped();
            if may_begin {
                return;
            }
        }
    }

    /// Returns whether the content of the journal is known.
    pub(super) fn is_journal_taken(&self) -> bool {
        self.writing().stage == Stage::Taken
    }

    /// Returns whether nothing is written any longer, so that waiting for a write is pointless.
    pub(super) fn is_written_no_more(&self) -> bool {
        let writing = self.writing();
        writing.trouble.is_some() || matches!(writing.stage, Stage::Replaced | Stage::Over)
    }

    /// Returns whether another run has taken the journal from this one.
    pub(super) fn is_replaced(&self) -> bool {
        self.writing().stage == Stage::Replaced
    }

    /// Returns the reason why the program cannot continue, if it is the journal.
    pub(super) fn trouble(&self) -> Option<String> {
        self.writing().trouble.clone()
    }

    fn next_write(&self, now_ms: u64) -> Option<Write> {
        let mut writing = self.writing();
        if matches!(writing.stage, Stage::Replaced | Stage::Over) || writing.trouble.is_some() {
            return None;
        }
        if writing.stage == Stage::NotTaken {
            return writing.begin_attempt(now_ms).then_some(Write::Take(self.run.generation));
        }
        if std::mem::take(&mut writing.is_long) {
            let facts = self.engine.written_so_far();
            return Some(Write::Replace(entries(&facts).into_iter().map(coded::<[Fact]>).collect()));
        }
        let (has_records, is_urgent) = self.engine.pending_records();
        let may_write = is_urgent || writing.writes < WRITES_AT_ONCE || now_ms >= writing.last_ms + GATHER_MS;
        if has_records && may_write {
            writing.writes += 1;
            writing.last_ms = now_ms;
            return Some(Write::Append(coded(&self.engine.records()[..])));
        }
        if now_ms < writing.noted_ms + NOTE_MS {
            return None;
        }
        writing.noted_ms = now_ms;
        self.engine.note().map(|note| Write::Note(coded(&note)))
    }

    fn apply(&self, done: Done) {
        match done {
            Done::Taken(Ok(written)) => self.taken(&written),
            Done::Taken(Err(JournalError::Replaced)) => {
                let gives_up = self.writing().is_refused();
                if gives_up {
                    self.stop_writing(Stage::Replaced);
                }
            }
            Done::Appended(Ok(entries)) => {
                self.writing().is_long |= entries > ENTRIES_MAX;
                self.engine.on_written();
            }
            Done::Replaced(Ok(())) | Done::Noted(Ok(())) => {}
            // The program continues on another node, unless that run stops.
            Done::Appended(Err(JournalError::Replaced))
            | Done::Replaced(Err(JournalError::Replaced))
            | Done::Noted(Err(JournalError::Replaced)) => self.stop_writing(Stage::Replaced),
            Done::Taken(Err(JournalError::Over))
            | Done::Appended(Err(JournalError::Over))
            | Done::Replaced(Err(JournalError::Over))
            | Done::Noted(Err(JournalError::Over)) => self.stop_writing(Stage::Over),
            Done::Taken(Err(error))
            | Done::Appended(Err(error))
            | Done::Replaced(Err(error))
            | Done::Noted(Err(error)) => self.cannot_go_on(error.to_string()),
        }
    }

    fn stop_writing(&self, stage: Stage) {
        self.writing().stage = stage;
        self.engine.stop();
    }

    fn cannot_go_on(&self, reason: String) {
        self.writing().trouble.get_or_insert(reason);
        self.engine.stop();
        self.is_taken.notify_one();
    }

    /// Restores the content of the journal.
    fn taken(&self, Written { key, entries, note, .. }: &Written) {
        let mut facts = Vec::new();
        for entry in entries {
            match decode::<Vec<Fact>>(entry) {
                Ok(some) => facts.extend(some),
                Err(failed) => {
                    let reason = format!("the journal of the program cannot be read: {}", failed.reason);
                    return self.cannot_go_on(reason);
                }
            }
        }
        let note = note.as_ref().and_then(|note| decode(note).ok());
        if !facts.is_empty() {
            tracing::info!(facts = facts.len(), "the journal says what must not happen a second time");
        }
        self.engine.recall(stable_hash(key), facts, note.unwrap_or_default());
        let mut writing = self.writing();
        writing.stage = Stage::Taken;
        let bytes: usize = entries.iter().map(Vec::len).sum();
        writing.is_long = entries.len() > ENTRIES_MAX / 2 || bytes > ENTRIES_BYTES_MAX;
        drop(writing);
        self.is_taken.notify_one();
    }
}

/// Encodes a value whose encoding cannot fail.
fn coded<T: serde::Serialize + ?Sized>(what: &T) -> Vec<u8> {
    encode(&what).unwrap_or_else(|failed| unreachable!("facts can be encoded: {}", failed.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator checks for pending facts more often than it may try to take the journal.
    #[test]
    fn journal_is_retried_despite_frequent_checks() {
        let mut writing = Writing::default();
        let tries = (0..2_000).step_by(50).filter(|now_ms| writing.begin_attempt(*now_ms));
        assert_eq!(tries.collect::<Vec<_>>(), [0, 500, 1_000, 1_500]);
    }

    #[test]
    fn journal_kept_by_another_run_is_retried_a_limited_number_of_times() {
        let mut writing = Writing::default();
        let refusals = (1..10).find(|_| writing.is_refused());
        assert_eq!(refusals, Some(TAKES_MAX));
    }
}
