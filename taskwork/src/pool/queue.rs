//! The tasks that wait in a pool, and who waits for tasks.
//!
//! One lock guards both, so that the question "is anybody hungry?" always has one answer. The lock is taken
//! when a task is split off, begun or ended; never while a task is searched.

use std::{
    collections::VecDeque,
    hint,
    sync::{PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Entry, PoolView,
    signals::Signals,
    sync::{AtomicU64, Condvar, Mutex, MutexGuard},
};
use crate::{
    envelope::TASK_BYTES_MAX,
    figures::Histogram,
    outlook::{self, Outlook},
    task::Task,
};

/// The queue of a pool.
pub(super) struct Queue<T: Task> {
    state: Mutex<State<T>>,
    wake: Condvar,
    stirred: Stirred,
}

/// Grows when there may be something for a worker that waits. On a cache line of its own: it is watched.
#[repr(align(128))]
struct Stirred(AtomicU64);

/// How long a worker watches for a task before it lies down, while others of its pool work: mostly one of
/// them splits within microseconds, and to wake a thread takes longer than that.
const WATCH: Duration = if cfg!(feature = "loom") { Duration::ZERO } else { Duration::from_micros(50) };

/// What there is for a worker that does not wait.
#[cfg(feature = "simulation")]
pub(super) enum Next<T: Task> {
    Task(Entry<T>),
    /// Nothing now.
    Nothing,
    /// The pool is closed.
    Closed,
}

/// A task that waits.
pub(super) struct Queued<T: Task> {
    pub(super) entry: Entry<T>,
    /// How many bytes it had when it was last sealed for a thief; `None` if it was not, since it last ran.
    pub(super) bytes: Option<usize>,
    /// When it was asked for elsewhere, if it is the first of what came.
    pub(super) asked: Option<Instant>,
}

struct State<T: Task> {
    tasks: VecDeque<Queued<T>>,
    /// Those that are too large to be sent.
    staying: usize,
    workers: usize,
    idle: usize,
    /// Those of the idle that sleep.
    asleep: usize,
    thieves: usize,
    gate: Gate,
    steal_times: Histogram,
}

/// Whether workers may begin tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// Running tasks are asked to stop; nobody begins one.
    Stopped,
    /// The pool is at its end: workers return.
    Closed,
}

impl<T: Task> Queue<T> {
    pub(super) fn new(workers: usize) -> Self {
        let state = State {
            tasks: VecDeque::new(),
            staying: 0,
            workers,
            idle: 0,
            asleep: 0,
            thieves: 0,
            gate: Gate::Open,
            steal_times: Histogram::default(),
        };
        Self { state: Mutex::new(state), wake: Condvar::new(), stirred: Stirred(AtomicU64::new(0)) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under this lock would be a mistake of ours; the workers go on with what there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts tasks into the queue. Says whether a thief waits for one.
    pub(super) fn put(&self, entries: impl IntoIterator<Item = Entry<T>>, signals: &Signals) -> bool {
        self.put_stolen(entries, None, signals)
    }

    /// The same for tasks that were asked for, elsewhere and at that time: what the steal took ends when the
    /// first of them begins.
    pub(super) fn put_stolen(
        &self,
        entries: impl IntoIterator<Item = Entry<T>>,
        mut asked: Option<Instant>,
        signals: &Signals,
    ) -> bool {
        let mut state = self.lock();
        let before = state.tasks.len();
        let queued = entries.into_iter().map(|entry| Queued { entry, bytes: None, asked: asked.take() });
        state.tasks.extend(queued);
        let added = state.tasks.len() - before;
        let thief_waits = state.thieves > 0;
        self.added(added, state, signals);
        thief_waits
    }

    /// Puts tasks back to the place from which they were [taken for a thief](Self::take_for_thief).
    pub(super) fn put_back(&self, kept: Vec<Queued<T>>, signals: &Signals) {
        if kept.is_empty() {
            return;
        }
        let mut state = self.lock();
        let added = kept.len();
        for queued in kept.into_iter().rev() {
            state.staying += usize::from(queued.stays());
            state.tasks.push_front(queued);
        }
        self.added(added, state, signals);
    }

    fn added(&self, added: usize, state: MutexGuard<'_, State<T>>, signals: &Signals) {
        state.signal(signals);
        let to_wake = added.min(state.asleep);
        self.stir();
        drop(state);
        for _ in 0..to_wake {
            self.wake.notify_one();
        }
    }

    /// How long steals took.
    pub(super) fn steal_times(&self) -> Histogram {
        self.lock().steal_times
    }

    /// Waits for a task to run; `None` when the pool is closed. `hungry` is called when none can begin at
    /// once, nor soon if others of the pool work.
    pub(super) fn next(&self, signals: &Signals, hungry: impl FnOnce()) -> Option<Entry<T>> {
        let mut state = self.lock();
        if let Some(entry) = state.begin(signals) {
            return Some(entry);
        }
        state.idle += 1;
        state.signal(signals);
        if state.idle < state.workers && state.gate == Gate::Open {
            state = self.watch(state);
        }
        if !state.can_begin() {
            drop(state);
            hungry();
            state = self.lock();
        }
        while state.gate != Gate::Closed {
            if state.can_begin() {
                state.idle -= 1;
                return state.begin(signals);
            }
            state.asleep += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        }
        None
    }

    /// Watches for a task for a moment, without the lock.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let until = Instant::now() + WATCH;
        while state.gate == Gate::Open && !state.can_begin() && Instant::now() < until {
            let seen = self.stirred.0.load(Relaxed);
            drop(state);
            while self.stirred.0.load(Relaxed) == seen && Instant::now() < until {
                hint::spin_loop();
            }
            state = self.lock();
        }
        state
    }

    /// Under the lock, so that whoever has seen the state has seen this too, or sees it change.
    fn stir(&self) {
        self.stirred.0.fetch_add(1, Relaxed);
    }

    /// A task to run, if there is one now: what [`next`](Self::next) does, without its waiting. `waits` is
    /// the caller's, and says whether it is counted as idle; `hungry` is called when it becomes so.
    #[cfg(feature = "simulation")]
    pub(super) fn try_next(&self, signals: &Signals, waits: &mut bool, hungry: impl FnOnce()) -> Next<T> {
        let mut state = self.lock();
        if state.gate == Gate::Closed {
            return Next::Closed;
        }
        if state.can_begin() {
            state.idle -= usize::from(std::mem::take(waits));
            return state.begin(signals).map_or(Next::Nothing, Next::Task);
        }
        if !std::mem::replace(waits, true) {
            state.idle += 1;
            state.signal(signals);
            drop(state);
            hungry();
        }
        Next::Nothing
    }

    /// Takes all tasks out, oldest first: those nearest to the root.
    pub(super) fn take_all(&self, signals: &Signals) -> Vec<Entry<T>> {
        let mut state = self.lock();
        state.staying = 0;
        let taken = std::mem::take(&mut state.tasks);
        state.signal(signals);
        drop(state);
        taken.into_iter().map(|queued| queued.entry).collect()
    }

    /// Up to `tasks_max` tasks for a thief, oldest first, but never more than half of what is queued unless
    /// that is a single task: the hungry here are not to starve by serving others. As far as their sizes are
    /// known they have no more than `bytes_max` together, or are a single one; what is too large to be sent
    /// stays.
    pub(super) fn take_for_thief(
        &self,
        tasks_max: usize,
        bytes_max: usize,
        signals: &Signals,
    ) -> Vec<Queued<T>> {
        let mut state = self.lock();
        let tasks_max = state.tasks.len().div_ceil(2).min(tasks_max);
        let (mut taken, mut bytes, mut place) = (Vec::new(), 0, 0);
        while taken.len() < tasks_max
            && let Some(next) = state.tasks.get(place)
        {
            if next.stays() {
                place += 1;
                continue;
            }
            bytes += next.bytes.unwrap_or(0);
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            taken.extend(state.tasks.remove(place));
        }
        state.signal(signals);
        taken
    }

    /// How many thieves wait at this node; each adds to the demand.
    pub(super) fn set_thieves(&self, thieves: usize, signals: &Signals) {
        let mut state = self.lock();
        state.thieves = thieves;
        state.signal(signals);
    }

    /// Lets nobody begin a task.
    pub(super) fn stop(&self, signals: &Signals) {
        let mut state = self.lock();
        if state.gate == Gate::Open {
            state.gate = Gate::Stopped;
        }
        signals.set_stop(true);
        state.signal(signals);
        self.stir();
    }

    /// Lets workers begin tasks again.
    pub(super) fn resume(&self, signals: &Signals) {
        let mut state = self.lock();
        if state.gate == Gate::Stopped {
            state.gate = Gate::Open;
        }
        signals.set_stop(false);
        state.signal(signals);
        self.stir();
        drop(state);
        self.wake.notify_all();
    }

    /// Ends the pool: running tasks are asked to stop, workers return.
    pub(super) fn close(&self, signals: &Signals) {
        let mut state = self.lock();
        state.gate = Gate::Closed;
        signals.set_stop(true);
        self.stir();
        drop(state);
        self.wake.notify_all();
    }

    /// How many workers are not waiting, and what the tasks that wait may still hold.
    pub(super) fn outlook(&self) -> (usize, Outlook) {
        let state = self.lock();
        let waiting = state.tasks.iter().map(|queued| queued.entry.outlook);
        (state.workers - state.idle, outlook::of_all(waiting))
    }

    pub(super) fn view(&self) -> PoolView {
        let state = self.lock();
        PoolView {
            workers: state.workers,
            idle: state.idle,
            queued: state.tasks.len(),
            staying: state.staying,
            stopped: state.gate != Gate::Open,
            batch_ids: 0,
            batches: 0,
        }
    }
}

impl<T: Task> Queued<T> {
    /// It is too large to be sent.
    fn stays(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes > TASK_BYTES_MAX)
    }
}

impl<T: Task> State<T> {
    fn can_begin(&self) -> bool {
        self.gate == Gate::Open && !self.tasks.is_empty()
    }

    fn begin(&mut self, signals: &Signals) -> Option<Entry<T>> {
        let next = if self.gate == Gate::Open { self.tasks.pop_front() } else { None };
        self.staying -= usize::from(next.as_ref().is_some_and(Queued::stays));
        if let Some(asked) = next.as_ref().and_then(|queued| queued.asked) {
            self.steal_times.note(asked.elapsed());
        }
        self.signal(signals);
        next.map(|queued| queued.entry)
    }

    /// Says what is wanted now. Under the lock, so that the last word is right.
    fn signal(&self, signals: &Signals) {
        let (queued, sendable) = (self.tasks.len(), self.tasks.len() - self.staying);
        let wanted = self.idle + self.thieves > queued || self.thieves > sendable;
        signals.set_split(self.gate == Gate::Open && wanted);
    }
}
