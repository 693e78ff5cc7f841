//! The queued tasks of a pool, and the workers and thieves that wait for tasks.
//!
//! One lock guards both, so that the demand is always well defined. The lock is taken when a task is split
//! off, started or ended; never while a task is searched. It also guards the current
//! [`cut`](super::cut).

mod cuts;
mod idling;
mod sharing;
mod stealing;
mod waiting;

use std::{
    collections::VecDeque,
    hint,
    sync::{
        OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

pub(super) use self::waiting::Waits;
use self::{idling::Idling, waiting::Waiting};
use super::{
    Entry, PoolView,
    crew::Post,
    cut::{Collecting, Seal},
    signals::Signals,
    sync::{AtomicU64, Condvar, Mutex, MutexGuard},
};
use crate::{
    context::Hunger,
    envelope::TASK_BYTES_MAX,
    figures::Histogram,
    holdings::Basis,
    idle::IdleWork,
    outlook::{self, Outlook},
    steps,
    task::Task,
};

pub(super) struct Queue<T: Task> {
    state: Mutex<State<T>>,
    wake: Condvar,
    stirred: Stirred,
    /// For each worker, whether its task should return briefly.
    interrupted: Box<[AtomicBool]>,
    /// For each worker, whether it should leave for another pool.
    recalled: Box<[AtomicBool]>,
    /// For each worker, whether its task should let its spawned tasks start.
    yields: Box<[AtomicBool]>,
    /// The connection to the crew, from which workers come.
    post: OnceLock<Post>,
}

/// A counter that increases when there may be a task for a waiting worker. On its own cache line, because
/// workers spin on it.
#[repr(align(128))]
struct Stirred(AtomicU64);

/// The time for which a worker spins before it sleeps, while others of its pool work: usually one of them
/// splits within microseconds, which is less than the time to wake a thread.
const WATCH: Duration = if cfg!(feature = "loom") { Duration::ZERO } else { Duration::from_micros(50) };

/// The result of a request for a task without waiting.
pub(super) enum Next<T: Task> {
    Task(Entry<T>),
    Nothing,
    /// The worker should leave: the pool is closed, or another one needs it.
    Leave,
}

/// The action for an interrupted task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// Drop it: it never was this node's.
    Drop,
    /// Encode it for the cut, and continue it.
    Seal,
    GoOn,
}

/// The position in the queue at which a task is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It starts before all others.
    Front,
    /// It starts before all others; and thieves take it after those put there before.
    Spawned,
    /// It starts after the task that was put to the front last.
    Second,
    Back,
}

/// Whether a basis is this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Firm,
    Tentative,
    Void,
}

pub(super) struct Queued<T: Task> {
    pub(super) entry: Entry<T>,
    /// Its size in bytes when it was last sealed for a thief; `None` if it was not sealed since it last ran.
    pub(super) bytes: Option<usize>,
    /// The time of the steal request, for the first task of a grant.
    pub(super) asked: Option<Instant>,
    /// The event that it waits for, if it does not wait for a worker.
    pub(super) waits: Waits,
    /// Whether it was spawned here and has not run: such tasks are queued in reverse order, so
    /// that a tree of them is searched depth first.
    pub(super) spawned: bool,
}

struct State<T: Task> {
    tasks: VecDeque<Queued<T>>,
    waiting: Waiting<T>,
    /// The number of queued tasks that are too large to be sent.
    staying: usize,
    /// The number of workers that could be here.
    slots: usize,
    /// The number of workers that have a task.
    busy: usize,
    asleep: usize,
    /// Whether workers without a task leave for other pools.
    shared: bool,
    thieves: usize,
    /// The start of the demand for more tasks than are queued.
    wanted_since: Option<Instant>,
    gate: Gate,
    steal_times: Histogram,
    /// For each worker that has a task, the basis of the task.
    running: Vec<Option<Basis>>,
    cut: Collecting,
    /// The number of consecutive nodes lost with a task after which the task is set aside; 0 for no limit.
    crashes_max: u32,
}

/// Whether workers may start tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// Running tasks are asked to stop; no task may start.
    Stopped,
    /// The pool is closed: workers return.
    Closed,
}

impl<T: Task> Queue<T> {
    pub(super) fn new(workers: usize, crashes_max: u32) -> Self {
        let state = State {
            tasks: VecDeque::new(),
            waiting: Waiting::default(),
            staying: 0,
            slots: workers,
            busy: 0,
            asleep: 0,
            shared: false,
            thieves: 0,
            wanted_since: None,
            gate: Gate::Open,
            steal_times: Histogram::default(),
            running: vec![None; workers],
            cut: Collecting::default(),
            crashes_max,
        };
        let flags = || (0..workers).map(|_| AtomicBool::new(false)).collect();
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            stirred: Stirred(AtomicU64::new(0)),
            interrupted: flags(),
            recalled: flags(),
            yields: flags(),
            post: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under this lock would be a bug of the runtime; the workers continue with the state as it
        // is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues tasks. Returns whether a thief waits for one.
    #[cfg(all(test, feature = "loom"))]
    pub(super) fn put(&self, entries: impl IntoIterator<Item = Entry<T>>, signals: &Signals) -> bool {
        self.put_locked(self.lock(), entries, End::Back, None, signals)
    }

    fn put_locked(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        entries: impl IntoIterator<Item = Entry<T>>,
        end: End,
        mut asked: Option<Instant>,
        signals: &Signals,
    ) -> bool {
        let before = state.tasks.len();
        for entry in entries {
            if state.cut.is_void(entry.basis) {
                continue;
            }
            let spawned = end == End::Spawned;
            let queued = Queued { asked: asked.take(), spawned, ..Queued::new(entry) };
            state.queue(queued, end);
        }
        let added = state.tasks.len() - before;
        let thief_waits = state.thieves > 0;
        self.added(added, state, signals);
        thief_waits
    }

    /// Queues a task that a worker has split off, or has stopped. Returns whether a thief waits for one. If the
    /// worker has not reached its point of the cut, the task must come with its sealed form: otherwise it is
    /// returned.
    pub(super) fn put_by(
        &self,
        worker: usize,
        entry: Entry<T>,
        end: End,
        sealed: Option<Seal>,
        signals: &Signals,
    ) -> Result<bool, Box<Entry<T>>> {
        let mut state = self.lock();
        if state.cut.awaits(worker) && state.cut.counts(entry.basis) {
            let Some(sealed) = sealed else { return Err(Box::new(entry)) };
            state.cut.add(sealed);
        }
        Ok(self.put_locked(state, [entry], end, None, signals))
    }

    fn added(&self, added: usize, mut state: MutexGuard<'_, State<T>>, signals: &Signals) {
        state.signal(signals);
        let to_wake = added.min(state.asleep);
        self.stir();
        self.offer(state, added);
        for _ in 0..to_wake {
            self.wake.notify_one();
        }
    }

    /// Waits for a task for a worker that has none; `None` when the worker should leave, because the pool is closed
    /// or others need it. `notify` is called if no task can start immediately or, while others of the pool work, soon;
    /// and if the worker was the last that a cut has waited for. `idle_work` runs when the wait exceeds 10 ms.
    pub(super) fn next(
        &self,
        worker: usize,
        signals: &Signals,
        notify: impl Fn(),
        idle_work: IdleWork<'_>,
    ) -> Option<Entry<T>> {
        let mut state = self.lock();
        if self.rest(&mut state, worker, signals) {
            notify();
        }
        if self.is_recalled(worker) {
            state.signal(signals);
            let may_wait = state.busy == 0 || !state.can_begin();
            drop(state);
            if may_wait {
                notify();
            }
            return None;
        }
        if let Some(entry) = state.begin(worker, signals) {
            return Some(entry);
        }
        state.signal(signals);
        if state.busy > 0 && state.gate == Gate::Open && !state.shared {
            state = self.watch(state);
        }
        if !state.can_begin() {
            drop(state);
            notify();
            state = self.lock();
        }
        let mut idling = Idling::begin();
        while state.gate != Gate::Closed {
            if state.can_begin() {
                return state.begin(worker, signals);
            }
            if state.shared {
                return None;
            }
            state = self.idle(state, worker, &mut idling, idle_work);
        }
        None
    }

    /// Spins for up to [`WATCH`] until a task can start, without the lock.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let until = Instant::now() + WATCH;
        while state.gate == Gate::Open && !state.can_begin() && !state.shared && Instant::now() < until {
            let seen = self.stirred.0.load(Relaxed);
            drop(state);
            while self.stirred.0.load(Relaxed) == seen && Instant::now() < until {
                hint::spin_loop();
            }
            state = self.lock();
        }
        state
    }

    /// Must be called under the lock, so that a spinning worker that has not seen the new state sees the
    /// counter change.
    fn stir(&self) {
        self.stirred.0.fetch_add(1, Relaxed);
    }

    /// Returns a task to run if there is one now, like [`next`](Self::next) without waiting. `waits` is state
    /// of the caller: whether it has found none before.
    pub(super) fn try_next(
        &self,
        worker: usize,
        signals: &Signals,
        waits: &mut bool,
        notify: impl Fn(),
    ) -> Next<T> {
        let mut state = self.lock();
        if self.rest(&mut state, worker, signals) {
            notify();
        }
        if state.gate == Gate::Closed || self.is_recalled(worker) {
            state.signal(signals);
            let may_wait = state.busy == 0 || !state.can_begin();
            drop(state);
            if may_wait {
                notify();
            }
            return Next::Leave;
        }
        if state.can_begin() {
            *waits = false;
            return state.begin(worker, signals).map_or(Next::Nothing, Next::Task);
        }
        let shared = state.shared;
        if !std::mem::replace(waits, true) {
            state.signal(signals);
            drop(state);
            notify();
        }
        if shared { Next::Leave } else { Next::Nothing }
    }

    /// Takes all tasks out, including waiting ones; the others are oldest first, that is, nearest to the root first.
    pub(super) fn take_all(&self, signals: &Signals) -> Vec<Entry<T>> {
        let mut state = self.lock();
        state.staying = 0;
        let mut taken = std::mem::take(&mut state.tasks);
        taken.extend(state.waiting.take(|_| true));
        for queued in &taken {
            state.waiting.left(&queued.entry);
        }
        state.signal(signals);
        drop(state);
        taken.into_iter().map(|queued| queued.entry).collect()
    }

    /// Prevents workers from starting tasks, and asks running tasks to stop.
    pub(super) fn stop(&self, signals: &Signals) {
        let mut state = self.lock();
        if state.gate == Gate::Open {
            state.gate = Gate::Stopped;
        }
        signals.set_stop(true);
        state.signal(signals);
        self.stir();
    }

    pub(super) fn resume(&self, signals: &Signals) {
        let mut state = self.lock();
        if state.gate == Gate::Stopped {
            state.gate = Gate::Open;
        }
        signals.set_stop(false);
        state.signal(signals);
        self.stir();
        self.offer(state, usize::MAX);
        self.wake.notify_all();
    }

    /// Closes the pool: running tasks are asked to stop, workers return.
    pub(super) fn close(&self, signals: &Signals) {
        let mut state = self.lock();
        state.gate = Gate::Closed;
        signals.set_stop(true);
        self.stir();
        drop(state);
        self.wake.notify_all();
    }

    /// Returns the number of workers that have a task, and the outlook of the queued tasks.
    pub(super) fn outlook(&self) -> (usize, Outlook) {
        let state = self.lock();
        let waiting = state.tasks.iter().chain(state.waiting.tasks()).map(|queued| queued.entry.outlook);
        (state.busy, outlook::of_all(waiting))
    }

    /// Returns the demand for more tasks than are queued: its duration, and whether a worker here needs a task.
    pub(super) fn hunger(&self) -> Option<Hunger> {
        let state = self.lock();
        let since = state.wanted_since?;
        Some(Hunger { lasts: since.elapsed(), here: state.idle() > state.tasks.len() })
    }

    /// Returns the number of tasks that run, are queued or wait.
    pub(super) fn open_tasks(&self) -> u64 {
        let state = self.lock();
        (state.busy + state.tasks.len() + state.waiting.len()) as u64
    }

    pub(super) fn view(&self) -> PoolView {
        let state = self.lock();
        PoolView {
            workers: state.slots.max(state.busy),
            idle: state.idle(),
            queued: state.tasks.len(),
            waiting: state.waiting.len(),
            untried: state.untried().next(),
            staying: state.staying,
            stopped: state.gate != Gate::Open,
            batch_ids: 0,
        }
    }
}

impl<T: Task> Queued<T> {
    fn new(entry: Entry<T>) -> Self {
        Self { entry, bytes: None, asked: None, waits: Waits::No, spawned: false }
    }

    /// Returns whether it is too large to be sent.
    fn stays(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes > TASK_BYTES_MAX)
    }
}

impl<T: Task> State<T> {
    /// Queues a task among those of the same [order](crate::Hooks::order).
    fn queue(&mut self, queued: Queued<T>, end: End) {
        let order = |queued: &Queued<T>| queued.entry.order;
        let first = || self.tasks.iter().position(|other| order(other) >= order(&queued));
        let place = match end {
            End::Front | End::Spawned => first().unwrap_or(self.tasks.len()),
            End::Second => 1.min(self.tasks.len()),
            End::Back => {
                let last = self.tasks.iter().rposition(|other| order(other) <= order(&queued));
                last.map_or(0, |place| place + 1)
            }
        };
        self.tasks.insert(place, queued);
    }

    fn can_begin(&self) -> bool {
        self.gate == Gate::Open && !self.tasks.is_empty()
    }

    /// Returns the number of workers without a task that are here or could be.
    fn idle(&self) -> usize {
        self.slots.saturating_sub(self.busy)
    }

    fn begin(&mut self, worker: usize, signals: &Signals) -> Option<Entry<T>> {
        let next = if self.gate == Gate::Open { self.tasks.pop_front() } else { None };
        self.staying -= usize::from(next.as_ref().is_some_and(Queued::stays));
        if let Some(asked) = next.as_ref().and_then(|queued| queued.asked) {
            self.steal_times.note(asked.elapsed());
            steps::begun();
        }
        self.running[worker] = next.as_ref().map(|queued| queued.entry.basis);
        self.busy += usize::from(next.is_some());
        self.signal(signals);
        next.map(|queued| queued.entry)
    }

    /// Updates the signals. Under the lock, so that the last update is consistent with the state.
    fn signal(&mut self, signals: &Signals) {
        let (queued, sendable) = (self.tasks.len(), self.tasks.len() - self.staying);
        let wanted = self.idle() + self.thieves > queued || self.thieves > sendable;
        let wanted = self.gate == Gate::Open && wanted;
        self.wanted_since = if wanted { self.wanted_since.or_else(|| Some(Instant::now())) } else { None };
        signals.set_split(wanted);
    }
}
