//! The queue of calls that wait for a thread, and the worker threads.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use taskwork::companion::{Load, Places};
use tokio::time::Instant;

use super::{
    cancellation::Cancellation,
    deadline::{Deadline, Deadlines},
    executor::Executor,
    futures::Futures,
    seat::Seat,
};
use crate::{
    core::Assignment,
    ids::{CallId, NESTED_BIT},
    platform::{Notifier, Platform, Simulated},
};

/// The number of idle threads that are kept in addition to the workers.
const SPARE_MAX: usize = 4;

/// The maximum depth of nested calls that a program without workers runs on one thread, so that its stack suffices.
const WITHIN_MAX: u32 = 32;

thread_local! {
    /// The depth of nested calls on this thread.
    static WITHIN: Cell<u32> = const { Cell::new(0) };
}

/// The calls that wait for a thread. Their number is bounded by the graph, which assigns them.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    pub(super) changed: Notifier,
    deadlines: Arc<Deadlines>,
    /// The places of the node's workers, unless the program runs without a node.
    places: OnceLock<Places>,
    pub(crate) platform: Platform,
}

/// A call that waits for a thread.
pub(crate) struct Waiting {
    pub(super) executor: Arc<Executor>,
    /// The run of the program that has assigned it.
    pub(super) epoch: u64,
    pub(super) assignment: Assignment,
    pub(super) cancellation: Arc<Cancellation>,
}

/// A call that has started, with a number that is unique in its queue.
pub(super) type Started = (CallId, u64);

/// Whether the thread that has run a call takes the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Continues {
    Here,
    /// Another thread has replaced it, since the call exceeded its timeout.
    Elsewhere,
}

#[derive(Default)]
pub(super) struct State {
    waiting: VecDeque<Waiting>,
    /// The number of calls that run at a time.
    workers: usize,
    /// The number of threads that run a call, except those whose tasks wait.
    pub(super) busy: Busy,
    /// The number of threads whose tasks wait for calls.
    pub(super) lent: usize,
    /// The number of threads that wait for a call.
    pub(super) idle: usize,
    /// The number of threads, except those whose calls have exceeded their timeouts.
    pub(super) threads: usize,
    is_over: bool,
    /// The calls that have started, and those since the creation of the queue.
    started: BTreeMap<Started, Arc<Cancellation>>,
    starts: u64,
    /// The number of calls that have completed or failed.
    ended: u64,
    pub(super) futures: Futures,
}

impl State {
    pub(super) fn push(&mut self, waiting: Waiting) {
        // Nested calls go first: running tasks wait for them.
        if waiting.assignment.call < NESTED_BIT {
            self.waiting.push_back(waiting);
        } else {
            self.waiting.push_front(waiting);
        }
    }

    /// Records that a call starts.
    pub(super) fn start(&mut self, waiting: &Waiting) -> Started {
        self.starts += 1;
        let started = (waiting.assignment.call, self.starts);
        self.started.insert(started, Arc::clone(&waiting.cancellation));
        started
    }

    /// Records that a call which has started has ended.
    pub(super) fn on_stopped(&mut self, started: Started) {
        self.started.remove(&started);
    }

    fn executions(&self, call: CallId) -> impl Iterator<Item = &Arc<Cancellation>> {
        self.started.range((call, 0)..=(call, u64::MAX)).map(|(_, cancellation)| cancellation)
    }
}

/// The number of computing threads, and their total time.
#[derive(Default)]
pub(super) struct Busy {
    threads: usize,
    /// Their time up to the last change of their number, and the time of that change.
    ns: u64,
    since: Option<Instant>,
}

impl Busy {
    pub(super) fn add(&mut self) {
        self.note(Instant::now());
        self.threads += 1;
    }

    pub(super) fn remove(&mut self) {
        self.note(Instant::now());
        self.threads -= 1;
    }

    fn note(&mut self, now: Instant) {
        self.ns = self.ns_until(now);
        self.since = Some(now);
    }

    fn ns_until(&self, now: Instant) -> u64 {
        let passed = self.since.map_or(0, |since| now.saturating_duration_since(since).as_nanos());
        self.ns.saturating_add(u64::try_from(passed * self.threads as u128).unwrap_or(u64::MAX))
    }
}

/// Removes the calls that `are_meant`, and returns them in order.
fn remove(from: &mut VecDeque<Waiting>, are_meant: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
    let (removed, others) = from.drain(..).partition(are_meant);
    *from = others;
    removed
}

/// Runs a call on a new thread, and waits for it.
fn run_deeper(next: Waiting) {
    let next = Mutex::new(Some(next));
    let run = || {
        let next = next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _: Option<Continues> = next.map(Waiting::run);
    };
    let is_run = thread::scope(|scope| {
        thread::Builder::new().name("program, deeper".to_owned()).spawn_scoped(scope, run).is_ok()
    });
    if !is_run {
        run();
    }
}

/// Runs one call after another, in the virtual time of a simulated node.
async fn work_in_virtual_time(simulated: Arc<Simulated>, queue: Arc<Queue>) {
    while let Some((next, started)) = queue.next_in_time().await {
        if let Some(running) = next.begin() {
            running.pass(&simulated).await;
            if running.run() == Continues::Elsewhere {
                queue.lock().on_stopped(started);
                return;
            }
        }
        queue.free_worker(started);
    }
    queue.on_thread_ended();
}

impl Queue {
    /// Creates a queue for the workers of a node.
    pub(crate) fn on(platform: Platform) -> Self {
        Self { changed: platform.notifier(), platform, ..Self::default() }
    }

    /// Computes only in these places of the node's workers.
    pub(crate) fn use_places(self: &Arc<Self>, places: &Places) {
        if self.places.set(places.clone()).is_ok() {
            let queue = Arc::downgrade(self);
            places.open(move || {
                let Some(queue) = queue.upgrade() else { return };
                // A thread that has just found too few places waits from now on.
                drop(queue.lock());
                queue.changed.notify_one();
            });
        }
    }

    /// Takes a waiting call, if another thread may compute.
    fn take(&self, state: &mut State) -> Option<(Waiting, Started)> {
        let limit = self.places.get().map_or(state.workers, Places::limit);
        let next = if state.busy.threads < limit { state.waiting.pop_front() } else { None };
        let next = next.map(|next| {
            state.busy.add();
            let started = state.start(&next);
            (next, started)
        });
        self.report(state);
        next
    }

    /// Reports the demand for places.
    pub(super) fn report(&self, state: &State) {
        if let Some(places) = self.places.get() {
            places.set_used(state.busy.threads);
            places.set_waiting(state.waiting.len());
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        let State { waiting, busy, ended, futures, .. } = &*state;
        Load {
            busy: busy.threads,
            queued: waiting.len() + futures.waiting.len(),
            ended: *ended,
            busy_ns: busy.ns_until(Instant::now()),
        }
    }

    pub(crate) fn push(self: &Arc<Self>, executor: Arc<Executor>, epoch: u64, assignment: Assignment) {
        let mut state = self.lock();
        let waiting = Waiting { executor, epoch, assignment, cancellation: Arc::default() };
        // Without workers the program runs its calls itself.
        if waiting.assignment.is_future() && state.workers > 0 {
            if !state.is_over {
                self.push_future(&mut state, waiting);
            }
            return;
        }
        state.push(waiting);
        self.report(&state);
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Waits for a call. Returns `None` after [`end`](Self::end), or if there are enough idle threads.
    fn next(&self) -> Option<(Waiting, Started)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(next) = self.take(&mut state) {
                return Some(next);
            }
            if state.idle >= state.workers + SPARE_MAX {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(&self.state, state);
            state.idle -= 1;
        }
    }

    /// Records that a thread no longer computes, since its call has ended.
    pub(super) fn free_worker(&self, started: Started) {
        let mut state = self.lock();
        state.busy.remove();
        state.on_stopped(started);
    }

    /// Cancels a call. Returns it if it has not started, and otherwise whether it runs.
    pub(super) fn cancel(&self, call: CallId) -> Result<Assignment, bool> {
        let mut state = self.lock();
        let State { waiting, futures, .. } = &mut *state;
        let is_it = |waiting: &Waiting| waiting.assignment.call == call;
        let removed = remove(waiting, is_it).pop_front();
        if let Some(removed) = removed.or_else(|| remove(&mut futures.waiting, is_it).pop_front()) {
            self.report(&state);
            return Ok(removed.assignment);
        }
        state.executions(call).for_each(|cancellation| cancellation.cancel());
        Err(state.executions(call).next().is_some())
    }

    /// Cancels all calls that have started.
    pub(super) fn cancel_all(&self) {
        self.lock().started.values().for_each(|cancellation| cancellation.cancel());
    }

    /// Returns whether a call runs here that was cancelled.
    pub(super) fn is_stopping(&self, call: CallId) -> bool {
        self.lock().executions(call).any(|cancellation| cancellation.is_cancelled())
    }

    /// Records that a call has completed or failed.
    pub(super) fn on_ended(&self) {
        self.lock().ended += 1;
    }

    /// Waits for a call in virtual time. Returns `None` after the end.
    async fn next_in_time(&self) -> Option<(Waiting, Started)> {
        let notify = self.changed.notify()?;
        loop {
            {
                let mut state = self.lock();
                if state.is_over {
                    return None;
                }
                if let Some(next) = self.take(&mut state) {
                    return Some(next);
                }
                state.idle += 1;
            }
            notify.notified().await;
            self.lock().idle -= 1;
        }
    }

    /// Runs a waiting call on this thread. Returns whether there was one.
    pub(crate) fn run_one(&self) -> bool {
        let Some(next) = self.lock().waiting.pop_front() else { return false };
        let within = WITHIN.get();
        if within < WITHIN_MAX {
            WITHIN.set(within + 1);
            // Without workers no other thread could enforce a deadline.
            let _: Continues = next.run();
            WITHIN.set(within);
        } else {
            run_deeper(next);
        }
        true
    }

    /// Calls `passed` and replaces this worker thread when the deadline of the call that starts on it passes. Returns
    /// `None` if there are no workers, or the thread that watches deadlines could not be started.
    pub(super) fn watch(
        self: &Arc<Self>,
        deadline: Instant,
        passed: impl FnOnce() + Send + 'static,
    ) -> Option<Deadline> {
        // Without workers the program runs its calls itself.
        if self.lock().threads == 0 {
            return None;
        }
        let (queue, seat) = (Arc::downgrade(self), Seat::current());
        let passed = move || {
            let Some(queue) = queue.upgrade() else { return };
            let is_to_be_replaced = queue.abandon(seat.as_ref());
            passed();
            if is_to_be_replaced && let Err(error) = queue.start_worker("task worker in place of another") {
                tracing::error!(%error, "cannot start a thread to replace one whose call has exceeded its timeout");
            }
        };
        self.set_deadline(deadline, passed)
    }

    /// Calls `passed` when the deadline passes. Returns `None` if the thread that watches deadlines cannot be started.
    pub(super) fn set_deadline(
        &self,
        deadline: Instant,
        passed: impl FnOnce() + Send + 'static,
    ) -> Option<Deadline> {
        match self.deadlines.set(&self.platform, deadline, passed) {
            Ok(deadline) => Some(deadline),
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that enforces timeouts of calls");
                None
            }
        }
    }

    /// Calls a function after a pause, on another thread.
    pub(crate) fn after(&self, pause: Duration, passed: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.deadlines.set(&self.platform, Instant::now() + pause, passed) {
            tracing::error!(%error, "cannot start the thread that ends the pauses of calls; restart the node");
        }
    }

    /// Starts a worker thread.
    pub(super) fn start_worker(self: &Arc<Self>, name: &str) -> io::Result<()> {
        if let Platform::Simulated(simulated) = &self.platform {
            self.lock().threads += 1;
            tokio::spawn(work_in_virtual_time(Arc::clone(simulated), Arc::clone(self)));
            return Ok(());
        }
        let queue = Arc::clone(self);
        let work = move || {
            let _seat = Seat::take();
            while let Some((next, started)) = queue.next() {
                if next.run() == Continues::Elsewhere {
                    queue.lock().on_stopped(started);
                    return;
                }
                queue.free_worker(started);
            }
            queue.on_thread_ended();
        };
        self.lock().threads += 1;
        let started = thread::Builder::new().name(name.to_owned()).spawn(work);
        started.map(drop).inspect_err(|_| self.on_thread_ended())
    }

    pub(crate) fn on_thread_ended(&self) {
        self.lock().threads -= 1;
        self.changed.notify_all();
    }

    /// Removes the calls of an executor, and returns them.
    pub(crate) fn take_back(&self, executor: &Executor) -> Vec<Assignment> {
        let mut state = self.lock();
        let is_its = |waiting: &Waiting| std::ptr::eq(Arc::as_ptr(&waiting.executor), executor);
        let State { waiting, futures, .. } = &mut *state;
        let waiting = remove(waiting, is_its).into_iter().chain(remove(&mut futures.waiting, is_its));
        let its = waiting.map(|waiting| waiting.assignment).collect();
        self.report(&state);
        its
    }

    /// Stops the threads, each after its current call.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.futures.end();
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all threads have stopped, except those whose calls have exceeded their timeouts.
    fn wait_for_threads(&self) {
        let mut state = self.lock();
        while state.threads > 0 {
            state = self.changed.wait(&self.state, state);
        }
    }
}

/// The worker threads, until this is dropped.
pub(crate) struct Crew {
    queue: Arc<Queue>,
    is_awaited: bool,
}

impl Crew {
    /// Starts the worker threads.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(queue: &Arc<Queue>, workers: usize) -> io::Result<Self> {
        let crew = Self { queue: Arc::clone(queue), is_awaited: true };
        queue.lock().workers = workers;
        for number in 0..workers {
            queue.start_worker(&format!("task worker {number}"))?;
        }
        Ok(crew)
    }

    /// Stops the threads without waiting for their current calls.
    pub(crate) fn leave(mut self) {
        self.is_awaited = false;
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.queue.end();
        // In virtual time nothing happens while this thread waits.
        if self.is_awaited && matches!(self.queue.platform, Platform::Machine) {
            self.queue.wait_for_threads();
        }
        self.queue.deadlines.end();
    }
}
