//! The places of workers that a companion uses for threads of its own.
//!
//! A companion may run work of its job on its own threads, such as the calls of a workflow. Each computing thread uses the
//! place of a worker, and the thread of that worker is parked during this stint. So a node has as many computing threads as
//! workers, and the shares of jobs apply to this work like to tasks.
//!
//! ```text
//!   work waits ──offer──▶ crew ──stint──▶ one more place ──▶ a thread of the companion computes
//!                          ▲                                     │
//!                          └── recalled, or unused for 1 ms ◀────┘
//! ```
//!
//! If the node works on no other job, its idle workers wait here, so that work starts without a delay. A recalled place is
//! returned when the thread that uses it has completed its piece of work; to run a task, the worker leaves at once, since the
//! companion's work may depend on the task.
//!
//! The lock of the crew is taken before that of the places; none is held while the companion is notified.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use super::{
    crew::{Desk, Post, Stint, Workplace},
    shares::Claim,
};
use crate::companion::Supply;

/// The time for which a worker of several jobs stays although its place is not used: the next piece of work may depend on the
/// last one.
const UNUSED_FOR: Duration = Duration::from_millis(1);

/// The places of the workers of a crew for one companion: see [`companion::Places`](crate::companion::Places).
pub(crate) struct Places {
    desk: Arc<Desk>,
    /// Whether time is virtual.
    is_sliced: bool,
    state: Mutex<State>,
    /// Wakes parked workers.
    changed: Condvar,
    /// Wakes parked workers in virtual time.
    woken: Notify,
    waiting: AtomicUsize,
    limit: AtomicUsize,
    used: AtomicUsize,
    post: OnceLock<Post>,
    on_granted: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    claim: Claim,
    /// The parked workers.
    here: BTreeSet<usize>,
    /// The parked workers that others are entitled to, and whether they will run a task there.
    recalled: BTreeMap<usize, bool>,
    used: usize,
    /// Whether there are other jobs to work for.
    is_shared: bool,
    /// The time of all workers here up to the last change of their number, and the time of that change.
    ns: u64,
    since: Option<Instant>,
    /// Whether a worker looks for [`UNUSED_FOR`] whether its place is necessary. The others wait for the end of that.
    is_observed: bool,
    /// The maximum number of places used since then.
    peak: usize,
    is_closed: bool,
}

impl State {
    fn is_spare(&self) -> bool {
        self.used < self.here.len()
    }

    fn must_leave(&self, worker: usize) -> bool {
        self.is_closed || self.recalled.get(&worker).is_some_and(|&for_task| for_task || self.is_spare())
    }

    /// Returns whether a worker begins to observe whether a place is necessary.
    fn observe(&mut self) -> bool {
        let begins = self.is_shared && self.is_spare() && !self.is_observed;
        if begins {
            (self.is_observed, self.peak) = (true, self.used);
        }
        begins
    }

    fn ns_until(&self, now: Instant) -> u64 {
        let passed = self.since.map_or(0, |since| now.saturating_duration_since(since).as_nanos());
        self.ns.saturating_add(u64::try_from(passed * self.here.len() as u128).unwrap_or(u64::MAX))
    }

    /// Updates the time of the workers, before their number changes.
    fn note(&mut self) {
        let now = Instant::now();
        self.ns = self.ns_until(now);
        self.since = Some(now);
    }
}

impl Places {
    pub(super) fn new(desk: Arc<Desk>, claim: Claim, is_sliced: bool) -> Arc<Self> {
        Arc::new(Self {
            desk,
            is_sliced,
            state: Mutex::new(State { claim, ..State::default() }),
            changed: Condvar::new(),
            woken: Notify::new(),
            waiting: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            post: OnceLock::new(),
            on_granted: OnceLock::new(),
        })
    }

    /// Returns the number of workers here, and the total time that workers have spent here.
    pub(crate) fn workers(&self) -> (usize, u64) {
        let state = self.lock();
        (state.here.len(), state.ns_until(Instant::now()))
    }

    /// Sends all workers back, also from places that are used.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        if let Some(post) = self.post.get() {
            post.leave();
        }
        self.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed.notify_all();
        self.woken.notify_waiters();
    }

    fn update_limit(&self, state: &State) {
        self.limit.store(state.here.len() - state.recalled.len(), Relaxed);
    }

    fn depart(&self, state: &mut State, worker: usize) {
        state.note();
        state.here.remove(&worker);
        state.recalled.remove(&worker);
        self.update_limit(state);
        // Another worker may observe its place now.
        if state.is_shared && state.is_spare() {
            self.wake();
        }
    }

    /// Ends an observation after [`UNUSED_FOR`]. Returns whether a place was unused in this time, and no work waits for it.
    fn was_unused(&self, state: &mut State) -> bool {
        state.is_observed = false;
        state.is_shared && state.peak < state.here.len() && self.waiting.load(Relaxed) == 0
    }

    fn stay(&self, worker: usize) {
        let mut state = self.lock();
        while !state.must_leave(worker) {
            if !state.observe() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let until = |state: &mut State| !state.must_leave(worker);
            let observed = self.changed.wait_timeout_while(state, UNUSED_FOR, until);
            state = observed.unwrap_or_else(PoisonError::into_inner).0;
            if self.was_unused(&mut state) {
                break;
            }
        }
        self.depart(&mut state, worker);
    }

    async fn stay_in_time(&self, worker: usize) {
        loop {
            let woken = self.woken.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let observes = {
                let mut state = self.lock();
                if state.must_leave(worker) {
                    self.depart(&mut state, worker);
                    return;
                }
                state.observe()
            };
            if !observes {
                woken.await;
                continue;
            }
            // A recall in this time waits for its end.
            time::sleep(UNUSED_FOR).await;
            let mut state = self.lock();
            if self.was_unused(&mut state) {
                self.depart(&mut state, worker);
                return;
            }
        }
    }
}

impl Supply for Places {
    fn open(self: Arc<Self>, on_granted: Box<dyn Fn() + Send + Sync>) {
        let (claim, is_closed) = {
            let state = self.lock();
            (state.claim, state.is_closed)
        };
        if is_closed || self.on_granted.set(on_granted).is_err() {
            return;
        }
        // Nobody waits for the workers: the places end with the companion.
        drop(self.desk.add(claim, Arc::clone(&self) as Arc<dyn Workplace>));
        // They may have been closed in the meantime.
        if self.lock().is_closed {
            self.close();
        }
    }

    fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    fn set_waiting(&self, waiting: usize) {
        let before = self.waiting.swap(waiting, Relaxed);
        let (used, limit) = (self.used.load(Relaxed), self.limit());
        let is_missing = |waiting| used + waiting > limit;
        // A worker that leaves just now looks for waiting work afterwards.
        if let Some(post) = self.post.get().filter(|_| waiting > before && is_missing(waiting)) {
            post.offer(!is_missing(before));
        }
    }

    fn set_used(&self, used: usize) {
        if self.used.load(Relaxed) == used {
            return;
        }
        let mut state = self.lock();
        self.used.store(used, Relaxed);
        state.used = used;
        state.peak = state.peak.max(used);
        let may_observe = state.is_shared && !state.is_observed;
        let must_wake = state.is_spare() && (may_observe || !state.recalled.is_empty());
        drop(state);
        if must_wake {
            self.wake();
        }
    }
}

impl Workplace for Places {
    fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// A companion takes the workers that come.
    fn allot(&self, _: usize, shared: bool) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_shared, shared) != shared {
            drop(state);
            self.wake();
        }
    }

    fn recall(&self, worker: usize, for_task: bool) {
        let mut state = self.lock();
        if state.here.contains(&worker) && state.recalled.insert(worker, for_task) != Some(for_task) {
            self.update_limit(&state);
            drop(state);
            self.wake();
        }
    }

    fn welcome(&self, worker: usize) {
        let mut state = self.lock();
        state.note();
        state.here.insert(worker);
        self.update_limit(&state);
        let has_recalled = !state.recalled.is_empty();
        drop(state);
        // One of them may leave instead of a thread that still computes.
        if has_recalled {
            self.wake();
        }
    }

    fn stint(self: Arc<Self>, worker: usize) -> Stint {
        if let Some(on_granted) = self.on_granted.get() {
            on_granted();
        }
        if self.is_sliced {
            let stay: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async move { self.stay_in_time(worker).await });
            return Stint::Sliced(stay);
        }
        self.stay(worker);
        Stint::Over
    }

    fn enlist(&self, post: Post) {
        // Cannot fail: it is opened once.
        let _ = self.post.set(post);
    }

    fn set_claim(&self, claim: Claim) {
        self.lock().claim = claim;
        if let Some(post) = self.post.get() {
            post.set_claim(claim);
        }
    }

    fn is_waiting_room(&self) -> bool {
        true
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
