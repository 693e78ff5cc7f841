//! The writer of a job's results on one node. Results are durable after their segment is written.

use std::{
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    Objects,
    segment::{Draft, Outcome},
};

/// The size of a segment, in bytes, and the time after its first result, at which it is written.
const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENT_TIME: Duration = Duration::from_secs(1);

/// The maximum size of results that are not durable, in bytes. Tasks pause beyond it.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;

/// The pause after a failed write.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Collects results of a job from the tasks of this node, and writes them.
#[derive(Debug)]
pub(crate) struct Writer(Arc<Shared>);

struct Shared {
    objects: Objects,
    /// The prefix of the names of this writer's segments, which no other writer has.
    name: String,
    state: Mutex<State>,
    changed: Condvar,
    /// The number of the last durable result.
    durable: AtomicU64,
}

struct State {
    draft: Draft,
    /// The number of the last result in the draft.
    last: u64,
    /// The time at which the draft has got its first result.
    since: Option<Instant>,
    /// Whether the draft is written at once.
    hurries: bool,
    /// Whether no more results follow.
    is_closed: bool,
}

impl Writer {
    /// Starts a writer of segments with a prefix of their names that no other writer has.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(objects: Objects, name: String) -> io::Result<Self> {
        let state = State { draft: Draft::new(), last: 0, since: None, hurries: false, is_closed: false };
        let shared = Arc::new(Shared {
            objects,
            name,
            state: Mutex::new(state),
            changed: Condvar::new(),
            durable: AtomicU64::new(0),
        });
        let its = Arc::clone(&shared);
        thread::Builder::new().name("segments".to_owned()).spawn(move || its.write())?;
        Ok(Self(shared))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.0.state().draft.len() < UNWRITTEN_BYTES_MAX
    }

    /// Adds results, and returns the number of the last one. They are durable when [`durable`](Self::durable) has
    /// reached it.
    pub(crate) fn put<'a>(&self, results: impl IntoIterator<Item = &'a (u64, Outcome)>) -> u64 {
        let mut state = self.0.state();
        for (index, outcome) in results {
            state.draft.add(*index, outcome);
            state.last += 1;
        }
        let is_first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        let last = state.last;
        if is_first || state.draft.len() >= SEGMENT_BYTES {
            drop(state);
            self.0.changed.notify_all();
        }
        last
    }

    pub(crate) fn durable(&self) -> u64 {
        self.0.durable.load(SeqCst)
    }

    /// Asks to write all results at once.
    pub(crate) fn hurry(&self) {
        let mut state = self.0.state();
        if !state.hurries && !state.draft.is_empty() {
            state.hurries = true;
            drop(state);
            self.0.changed.notify_all();
        }
    }

    /// Waits until a result is durable, at most so long. Returns whether it is.
    pub(crate) fn wait(&self, number: u64, most: Duration) -> bool {
        let is_missing = |_: &mut State| self.durable() < number;
        drop(self.0.changed.wait_timeout_while(self.0.state(), most, is_missing));
        self.durable() >= number
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes segments until the writer is closed.
    fn write(&self) {
        let mut number = 0_u64;
        while let Some((draft, last)) = self.next() {
            let segment = format!("{}-{number:010}.seg", self.name);
            let content = Bytes::from(draft.seal());
            // The name is new, so a repetition after a lost answer writes the same object.
            while let Err(error) = self.objects.put(&segment, content.clone()) {
                tracing::warn!(segment, %error, "results cannot be written; this is tried again");
                thread::sleep(RETRY_PAUSE);
            }
            number += 1;
            {
                // Under the lock, so that no waiting task misses it.
                let _state = self.state();
                self.durable.store(last, SeqCst);
            }
            self.changed.notify_all();
        }
    }

    /// Waits until a segment is due, and returns it with the number of its last result.
    fn next(&self) -> Option<(Draft, u64)> {
        let mut state = self.state();
        loop {
            let age = state.since.map(|since| since.elapsed());
            let is_due = state.hurries || state.is_closed || state.draft.len() >= SEGMENT_BYTES;
            match age {
                Some(age) if is_due || age >= SEGMENT_TIME => break,
                Some(age) => {
                    let waited = self.changed.wait_timeout(state, SEGMENT_TIME.saturating_sub(age));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None if state.is_closed => return None,
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        state.since = None;
        state.hurries = false;
        let draft = std::mem::replace(&mut state.draft, Draft::new());
        Some((draft, state.last))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}
