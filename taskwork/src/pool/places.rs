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
    /// Counts changes of the number of used places.
    changes: u64,
    /// The number of parked workers that look again by themselves.
    looking: usize,
    is_closed: bool,
}

impl State {
    fn is_spare(&self) -> bool {
        self.used < self.here.len()
    }

    fn must_leave(&self, worker: usize) -> bool {
        self.is_closed || self.recalled.get(&worker).is_some_and(|&for_task| for_task || self.is_spare())
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

    fn arrive(&self, worker: usize) {
        let mut state = self.lock();
        state.note();
        state.here.insert(worker);
        self.update_limit(&state);
        drop(state);
        if let Some(on_granted) = self.on_granted.get() {
            on_granted();
        }
    }

    fn depart(&self, state: &mut State, worker: usize) {
        state.note();
        state.here.remove(&worker);
        state.recalled.remove(&worker);
        self.update_limit(state);
        // The other workers wait without a limit if their places were used when they looked last.
        if state.is_shared && state.is_spare() {
            self.wake();
        }
    }

    /// Returns whether a place was unused since an earlier number of changes, and there is no work for it.
    fn is_unused_since(&self, state: &State, changes: u64) -> bool {
        state.is_shared && state.is_spare() && state.changes == changes && self.waiting.load(Relaxed) == 0
    }

    fn stay(&self, worker: usize) {
        let mut state = self.lock();
        while !state.must_leave(worker) {
            if !state.is_shared || !state.is_spare() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let changes = state.changes;
            state.looking += 1;
            let (woken, timeout) =
                self.changed.wait_timeout(state, UNUSED_FOR).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.looking -= 1;
            if timeout.timed_out() && self.is_unused_since(&state, changes) {
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
            let (may_leave, changes) = {
                let mut state = self.lock();
                if state.must_leave(worker) {
                    self.depart(&mut state, worker);
                    return;
                }
                (state.is_shared && state.is_spare(), state.changes)
            };
            if !may_leave {
                woken.await;
            } else if time::timeout(UNUSED_FOR, woken).await.is_err() {
                let mut state = self.lock();
                if self.is_unused_since(&state, changes) {
                    self.depart(&mut state, worker);
                    return;
                }
            }
        }
    }
}

impl Supply for Places {
    fn open(self: Arc<Self>, on_granted: Box<dyn Fn() + Send + Sync>) {
        if self.on_granted.set(on_granted).is_ok() {
            let claim = self.lock().claim;
            // Nobody waits for the workers: the places end with the companion.
            drop(self.desk.add(claim, Arc::clone(&self) as Arc<dyn Workplace>));
            if self.lock().is_closed {
                self.close();
            }
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
        state.changes += 1;
        let looks = state.is_shared && state.looking == 0;
        let must_wake = state.is_spare() && (looks || !state.recalled.is_empty());
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

    fn welcome(&self, _: usize) {}

    fn stint(self: Arc<Self>, worker: usize) -> Stint {
        self.arrive(worker);
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
mod tests {
    use std::thread;

    use super::*;
    use crate::pool::crew::Crew;

    const SOON: Duration = Duration::from_secs(60);

    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < SOON, "not in time: {what}");
            thread::yield_now();
        }
    }

    fn open(crew: &Crew, claim: Claim) -> Arc<Places> {
        let places = crew.places(claim, false);
        Arc::clone(&places).open(Box::new(|| {}));
        places
    }

    /// A pool with a number of tasks.
    #[derive(Default)]
    struct Tasks {
        waiting: AtomicUsize,
        post: OnceLock<Post>,
    }

    impl Workplace for Tasks {
        fn waiting(&self) -> usize {
            self.waiting.load(Relaxed)
        }
        fn allot(&self, _: usize, _: bool) {}
        fn recall(&self, _: usize, _: bool) {}
        fn welcome(&self, _: usize) {}
        fn stint(self: Arc<Self>, _: usize) -> Stint {
            self.waiting.store(0, Relaxed);
            Stint::Over
        }
        fn enlist(&self, post: Post) {
            let _ = self.post.set(post);
        }
        fn set_claim(&self, _: Claim) {}
    }

    fn add_job(crew: &Crew) -> Arc<Tasks> {
        let pool = Arc::new(Tasks::default());
        drop(crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>));
        pool
    }

    #[test]
    fn workers_of_one_job_wait_in_its_places() {
        let crew = Crew::start(3).unwrap();
        let pool = add_job(&crew);
        let places = open(&crew, Claim::default());
        wait_until("all workers come", || places.limit() == 3);
        let time = places.workers().1;
        wait_until("their time is counted", || places.workers().1 > time);
        places.close();
        wait_until("all workers leave", || places.limit() == 0);
        pool.post.get().unwrap().leave();
        crew.join();
    }

    #[test]
    fn places_of_several_jobs_are_given_for_work_and_returned_after_it() {
        let crew = Crew::start(2).unwrap();
        let pools = [add_job(&crew), add_job(&crew)];
        let places = [open(&crew, Claim::default()), open(&crew, Claim::default())];
        assert_eq!(places[0].limit() + places[1].limit(), 0, "there is no work");
        places[0].set_waiting(5);
        wait_until("all workers come", || places[0].limit() == 2);
        places[0].set_used(2);
        places[0].set_waiting(0);
        places[1].set_waiting(1);
        wait_until("one worker is recalled", || {
            // The crew does this periodically.
            places[1].post.get().unwrap().offer(true);
            places[0].limit() == 1
        });
        assert_eq!(places[0].workers().0, 2, "their places are used");
        places[0].set_used(0);
        wait_until("one worker goes to the other job", || places[1].limit() > 0);
        for place in &places {
            place.set_waiting(0);
            wait_until("all return", || place.limit() == 0);
            place.close();
        }
        for pool in pools {
            pool.post.get().unwrap().leave();
        }
        crew.join();
    }

    #[test]
    fn recalled_place_is_returned_after_its_piece_of_work() {
        let crew = Crew::start(2).unwrap();
        let pools = [add_job(&crew), add_job(&crew)];
        let first = open(&crew, Claim::default());
        first.set_waiting(9);
        wait_until("all workers come", || first.limit() == 2);
        first.set_used(2);
        let urgent = open(&crew, Claim { priority: 1, ..Claim::default() });
        urgent.set_waiting(1);
        // The call balances the crew.
        wait_until("one is recalled", || first.limit() == 1);
        assert_eq!((first.workers().0, urgent.limit()), (2, 0), "its thread still computes");
        first.set_used(1);
        wait_until("it goes to the urgent job", || urgent.limit() == 1);
        for place in [first, urgent] {
            place.close();
        }
        for pool in pools {
            pool.post.get().unwrap().leave();
        }
        crew.join();
    }

    #[test]
    fn task_gets_a_worker_although_all_places_are_used() {
        let crew = Crew::start(2).unwrap();
        let pool = add_job(&crew);
        let places = open(&crew, Claim::default());
        wait_until("all workers come", || places.limit() == 2);
        places.set_used(2);
        pool.waiting.store(1, Relaxed);
        wait_until("the task has run", || {
            // The crew does this periodically.
            pool.post.get().unwrap().offer(true);
            pool.waiting.load(Relaxed) == 0
        });
        wait_until("the worker comes back", || places.limit() == 2);
        places.close();
        pool.post.get().unwrap().leave();
        crew.join();
    }

    #[test]
    fn places_closed_before_they_are_opened_get_no_workers() {
        let crew = Crew::start(1).unwrap();
        let pool = add_job(&crew);
        let places = crew.places(Claim::default(), false);
        places.close();
        Arc::clone(&places).open(Box::new(|| {}));
        pool.post.get().unwrap().leave();
        crew.join();
        assert_eq!(places.limit(), 0);
    }
}
