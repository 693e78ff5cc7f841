//! The workers of a node, which work in the pools of all its jobs.
//!
//! ```text
//!   one pool:      a worker stays in it, and waits in it for tasks
//!   several pools: crew ──choose──▶ stint in a pool: one task after another ──┐
//!                   ▲    no task there, or recalled for another pool          │
//!                   └─────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Shares`] decides which pool gets a worker. A worker without a pool is *vacant*, and all pools are notified
//! that they could have it, so that their tasks split. A recalled worker leaves at its task's next `migrate()`; the
//! task is queued, and is the next to start there.
//!
//! The crew's lock is taken before that of a pool, never in the other order. While there is a single pool, it is
//! taken only when pools are added or removed.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{self, Instant},
};

use super::{
    places::Places,
    shares::{Claim, PoolNumber, Recall, Shares},
};

/// A pool in which the workers of a crew can work.
pub(crate) trait Workplace: Send + Sync {
    /// Returns the number of tasks that could start now.
    fn waiting(&self) -> usize;
    /// Sets the number of workers that it may have, and whether they have other pools to work in.
    fn allot(&self, slots: usize, shared: bool);
    /// Asks a worker to leave after its task, or at its next `migrate()`. `for_task` is whether a task waits for it
    /// elsewhere, and not a companion.
    fn recall(&self, worker: usize, for_task: bool);
    /// Prepares for the arrival of a worker, and cancels its recall.
    fn welcome(&self, worker: usize);
    /// Works in the pool until it is closed or, if workers are [shared](Self::allot), until there is no task or the
    /// worker is recalled.
    fn stint(self: Arc<Self>, worker: usize) -> Stint;
    /// Connects the pool to the crew, once.
    fn enlist(&self, post: Post);
    /// Changes the claim of the pool on the workers of its crew.
    fn set_claim(&self, claim: Claim);
    /// Returns whether workers wait here rather than in the pool of the same job.
    fn is_waiting_room(&self) -> bool {
        false
    }
}

/// A worker's stay in a pool.
pub(crate) enum Stint {
    Over,
    /// It is over when this future completes, in virtual time.
    Sliced(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// The workers of a node. They exit when it is dropped, each at its task's next `migrate()`.
pub(crate) struct Crew {
    desk: Arc<Desk>,
    #[cfg(test)]
    threads: Vec<thread::JoinHandle<()>>,
}

/// The shared state of a crew's workers.
pub(super) struct Desk {
    state: Mutex<State>,
    /// Wakes vacant workers.
    wake: Condvar,
    /// Wakes vacant workers in virtual time.
    woken: Notify,
    vacant: AtomicUsize,
    /// Notified when there are several pools, which are then [balanced](Desk::balance) periodically as long as necessary.
    several: Notify,
    /// The number of workers that have not exited.
    out: AtomicUsize,
    begun: Instant,
}

struct State {
    shares: Shares,
    pools: BTreeMap<PoolNumber, Place>,
    next: PoolNumber,
    closed: bool,
}

/// A pool that workers can work in.
#[derive(Clone)]
struct Place {
    pool: Arc<dyn Workplace>,
    /// A channel of which each worker in the pool holds a clone.
    away: mpsc::Sender<Infallible>,
}

/// A pool's connection to its crew.
pub(crate) struct Post {
    desk: Arc<Desk>,
    number: PoolNumber,
}

/// The workers that are in a pool, or may come. Dropping it stops no worker: close the pool first, then wait until
/// they have [returned](Self::returned).
#[derive(Debug)]
pub(crate) struct Workers {
    /// Closed when the pool has left the crew, and the last worker has returned.
    back: mpsc::Receiver<Infallible>,
}

/// The interval at which workers are recalled for jobs that have had less than their share.
const BALANCE_EVERY: Duration = Duration::from_millis(5);

impl Workers {
    /// Waits until every worker has returned from a pool that is closed, without blocking a thread.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn returned(&mut self) {
        // Nothing is ever sent.
        let _ = self.back.recv().await;
    }
}

impl Crew {
    /// Starts a number of threads.
    ///
    /// # Errors
    /// If the operating system refuses a thread. Threads already started exit.
    pub(crate) fn start(workers: usize) -> io::Result<Self> {
        #[cfg_attr(not(test), expect(unused_mut, reason = "only tests join the threads"))]
        let mut crew = Self::without_workers(workers);
        for worker in 0..workers {
            let desk = Arc::clone(&crew.desk);
            let name = format!("worker-{worker}");
            desk.out.fetch_add(1, Relaxed);
            let started = thread::Builder::new().name(name).spawn(move || {
                desk.work(worker);
                desk.out.fetch_sub(1, Relaxed);
            });
            match started {
                #[cfg(test)]
                Ok(thread) => crew.threads.push(thread),
                #[cfg(not(test))]
                Ok(_) => {}
                Err(refused) => {
                    crew.desk.out.fetch_sub(1, Relaxed);
                    return Err(refused);
                }
            }
        }
        Ok(crew)
    }

    /// Starts tasks on the runtime with virtual time.
    pub(crate) fn start_sliced(workers: usize) -> Self {
        let crew = Self::without_workers(workers);
        for worker in 0..workers {
            let desk = Arc::clone(&crew.desk);
            desk.out.fetch_add(1, Relaxed);
            tokio::spawn(async move {
                desk.work_in_slices(worker).await;
                desk.out.fetch_sub(1, Relaxed);
            });
        }
        crew
    }

    fn without_workers(workers: usize) -> Self {
        let shares = Shares::new(workers);
        let state = State { shares, pools: BTreeMap::new(), next: 0, closed: false };
        Self {
            desk: Arc::new(Desk {
                state: Mutex::new(state),
                wake: Condvar::new(),
                woken: Notify::new(),
                vacant: AtomicUsize::new(0),
                several: Notify::new(),
                out: AtomicUsize::new(0),
                begun: Instant::now(),
            }),
            #[cfg(test)]
            threads: Vec::new(),
        }
    }

    /// Waits until every thread has exited. All pools must be closed.
    ///
    /// # Panics
    /// If a thread has panicked: a worker catches the panics of its tasks.
    #[cfg(test)]
    pub(crate) fn join(mut self) {
        let threads = std::mem::take(&mut self.threads);
        drop(self);
        for thread in threads {
            thread.join().expect("a worker catches the panics of its tasks");
        }
    }

    pub(crate) fn add(&self, claim: Claim, pool: Arc<dyn Workplace>) -> Workers {
        self.desk.add(claim, pool)
    }

    /// Returns the places that a companion may use, closed at first. `is_sliced` is whether time is virtual.
    pub(crate) fn places(&self, claim: Claim, is_sliced: bool) -> Arc<Places> {
        Places::new(Arc::clone(&self.desk), claim, is_sliced)
    }

    /// Recalls workers according to the jobs' shares, in an endless loop.
    pub(crate) fn keep_balance(&self) -> impl Future<Output = ()> + Send + use<> {
        let desk = Arc::clone(&self.desk);
        async move {
            loop {
                desk.several.notified().await;
                while desk.balance() {
                    time::sleep(BALANCE_EVERY).await;
                }
            }
        }
    }

    /// Returns the number of workers that are not in a closed pool.
    pub(crate) fn available(&self) -> usize {
        self.desk.lock().shares.available()
    }

    /// Returns the number of workers that have not exited.
    pub(crate) fn out(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let desk = Arc::clone(&self.desk);
        move || desk.out.load(Relaxed)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.closed = true;
        self.desk.wake_vacant(state);
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under this lock would be a bug of the runtime; the workers continue with the state as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn add(self: &Arc<Self>, claim: Claim, pool: Arc<dyn Workplace>) -> Workers {
        let (away, back) = mpsc::channel(1);
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        pool.enlist(Post { desk: Arc::clone(self), number });
        state.shares.add(number, claim);
        state.pools.insert(number, Place { pool, away });
        state.allot();
        if state.pools.len() > 1 {
            self.several.notify_one();
        }
        self.wake_vacant(state);
        Workers { back }
    }

    fn wake_vacant(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.wake.notify_all();
        self.woken.notify_waiters();
    }

    /// Works on a thread until the crew is dropped.
    fn work(&self, worker: usize) {
        let mut state = self.lock();
        loop {
            if state.closed {
                return;
            }
            if let Some(Place { pool, away }) = self.assign(&mut state, worker) {
                drop(state);
                pool.stint(worker);
                drop(away);
                state = self.back(worker);
                continue;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.vacant.fetch_sub(1, Relaxed);
        }
    }

    /// Works in virtual time until the crew is dropped.
    async fn work_in_slices(&self, worker: usize) {
        loop {
            let woken = self.woken.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let assigned = {
                let mut state = self.lock();
                if state.closed {
                    return;
                }
                self.assign(&mut state, worker)
            };
            let Some(Place { pool, away }) = assigned else {
                woken.await;
                self.vacant.fetch_sub(1, Relaxed);
                continue;
            };
            if let Stint::Sliced(slices) = pool.stint(worker) {
                slices.await;
            }
            drop(away);
            drop(self.back(worker));
        }
    }

    /// Returns the pool for a worker to work in; `None` if the worker is vacant now.
    fn assign(&self, state: &mut State, worker: usize) -> Option<Place> {
        // Incremented before any pool is examined: a task put there afterwards causes a notification.
        self.vacant.fetch_add(1, Relaxed);
        let State { shares, pools, .. } = state;
        let waiting = |pool: PoolNumber| pools.get(&pool).map_or(0, |place| place.pool.waiting());
        let number = shares.only().or_else(|| shares.choose(self.now(), waiting));
        let number = number.or_else(|| if jobs(pools) > 1 { None } else { waiting_room(pools) })?;
        let place = pools.get(&number)?.clone();
        self.vacant.fetch_sub(1, Relaxed);
        shares.begin(worker, number, self.now());
        place.pool.welcome(worker);
        state.allot_if_shared();
        Some(place)
    }

    /// Records that a worker has returned from a pool.
    fn back(&self, worker: usize) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.shares.end(worker, self.now());
        // Also with a single pool: the worker may come from one that was closed, and is available again.
        state.allot();
        state
    }

    /// Recalls workers for jobs that have had less than their share. Returns whether more may have to be recalled later.
    fn balance(&self) -> bool {
        let mut state = self.lock();
        let State { shares, pools, .. } = &mut *state;
        let waiting = |pool: PoolNumber| pools.get(&pool).map_or(0, |place| place.pool.waiting());
        if pools.len() < 2 {
            return false;
        }
        if self.vacant.load(Relaxed) > 0 {
            if pools.keys().any(|&pool| waiting(pool) > 0) {
                self.wake.notify_all();
                self.woken.notify_waiters();
            }
        } else {
            while let Some(Recall { worker, from, to }) = shares.recall(self.now(), waiting) {
                let for_task = pools.get(&to).is_some_and(|place| !place.pool.is_waiting_room());
                if let Some(place) = pools.get(&from) {
                    place.pool.recall(worker, for_task);
                }
            }
        }
        state.allot();
        let State { pools, .. } = &*state;
        jobs(pools) > 1 || pools.values().any(|place| place.pool.waiting() > 0)
    }
}

/// Returns the number of jobs with these pools: a waiting room belongs to the job of another pool.
fn jobs(pools: &BTreeMap<PoolNumber, Place>) -> usize {
    pools.values().filter(|place| !place.pool.is_waiting_room()).count()
}

fn waiting_room(pools: &BTreeMap<PoolNumber, Place>) -> Option<PoolNumber> {
    pools.iter().find(|(_, place)| place.pool.is_waiting_room()).map(|(&number, _)| number)
}

impl State {
    /// Notifies every pool of the number of workers that it could have.
    fn allot(&self) {
        let waiting = |pool: PoolNumber| self.pools.get(&pool).map_or(0, |place| place.pool.waiting());
        let is_task =
            |(number, place): (&PoolNumber, &Place)| !place.pool.is_waiting_room() && waiting(*number) > 0;
        // Workers do not stay in a waiting room while there are tasks.
        let (shared, may_leave) =
            (self.pools.len() > 1, jobs(&self.pools) > 1 || self.pools.iter().any(is_task));
        for (&number, Place { pool, .. }) in &self.pools {
            let shared = if pool.is_waiting_room() { may_leave } else { shared };
            pool.allot(self.shares.slots(number, waiting), shared);
        }
    }

    fn allot_if_shared(&self) {
        if self.pools.len() > 1 {
            self.allot();
        }
    }
}

impl Post {
    /// Notifies the crew of queued tasks. `first` is whether there were none before. Must not be called
    /// under the lock of a pool.
    pub(super) fn offer(&self, first: bool) {
        if self.desk.vacant.load(Relaxed) > 0 {
            let state = self.desk.lock();
            self.desk.wake_vacant(state);
        } else if first && self.desk.balance() {
            self.desk.several.notify_one();
        }
    }

    /// Changes the claim of the pool. Must not be called under the lock of a pool.
    pub(super) fn set_claim(&self, claim: Claim) {
        let mut state = self.desk.lock();
        if state.shares.set_claim(self.number, claim, self.desk.now()) {
            state.allot_if_shared();
        }
    }

    /// Removes the pool from the crew: no more workers come. Must not be called under the lock of a pool.
    pub(super) fn leave(&self) {
        let mut state = self.desk.lock();
        if state.pools.remove(&self.number).is_some() {
            state.shares.remove(self.number);
            state.allot();
            self.desk.wake_vacant(state);
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.desk.lock();
        f.debug_struct("Crew").field("shares", &state.shares).finish_non_exhaustive()
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "crew_tests.rs"]
mod tests;
