//! The division of a node's workers among its jobs: in proportion to the weights of the jobs that have tasks
//! for them, highest priority first.
//!
//! Each job has a clock that advances while workers are in its pool, more slowly for a larger weight. A worker goes to
//! the job whose clock is behind; a worker in another job's pool is recalled when that job's clock is ahead
//! by more than a quantum. So the shares are fair on average, and workers that one job cannot use go to the others.
//! The clock of a job that has had no tasks restarts a quantum behind the others: it gets a worker immediately,
//! but no compensation for the time without tasks. (The Completely Fair Scheduler of Linux does the same with
//! threads.)

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// The minimum time for which a worker stays with a job, unless the worker finds no task there or another job has
/// a higher priority.
const QUANTUM: Duration = Duration::from_millis(10);

/// The time after which a worker that was recalled and has not returned is recalled again.
const RECALL_AGAIN: Duration = Duration::from_millis(100);

/// The clock rate of a job with weight 1, in ticks per microsecond. High enough that the clock of a job with the
/// largest weight advances, too.
const RATE: u64 = 1 << 10;

/// The start of the clocks, so that one can be set back.
const BEGIN: u64 = 1 << 50;

pub(crate) const WEIGHT_MAX: u32 = 1000;

/// A job's claim on the workers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its share among jobs of the same priority, from 1 to [`WEIGHT_MAX`].
    pub(crate) weight: u32,
    /// Jobs with a higher priority come first.
    pub(crate) priority: i32,
}

impl Default for Claim {
    fn default() -> Self {
        Self { weight: 1, priority: 0 }
    }
}

/// The number of a pool in its crew.
pub(super) type PoolNumber = u64;

/// The shares of the jobs of a node. All times are relative to one fixed start.
#[derive(Debug)]
pub(super) struct Shares {
    pools: BTreeMap<PoolNumber, Share>,
    /// The smallest clock of a pool with tasks at the last check, by priority: the clocks of a priority stand still while
    /// a higher one has all workers. It never decreases, so that no job has to compensate for a time in which another one
    /// had no tasks.
    floors: BTreeMap<i32, u64>,
    /// The location of each worker.
    workers: Vec<Option<Stint>>,
}

/// A pool's clock.
#[derive(Debug, Clone, Copy)]
struct Share {
    claim: Claim,
    /// Its clock, without the current stints of workers.
    ticks: u64,
    /// Whether it had no tasks at the last check.
    was_idle: bool,
}

/// A worker's stay in a pool.
#[derive(Debug, Clone, Copy)]
struct Stint {
    pool: PoolNumber,
    since: Duration,
    recalled: Option<Duration>,
}

/// A worker that should leave its pool, because another one is entitled to it.
#[derive(Debug)]
pub(super) struct Recall {
    pub(super) worker: usize,
    pub(super) from: PoolNumber,
    pub(super) to: PoolNumber,
}

impl Claim {
    fn ticks(self, time: Duration) -> u64 {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        us.saturating_mul(RATE) / u64::from(self.weight.clamp(1, WEIGHT_MAX))
    }
}

impl Shares {
    pub(super) fn new(workers: usize) -> Self {
        Self { pools: BTreeMap::new(), floors: BTreeMap::new(), workers: vec![None; workers] }
    }

    pub(super) fn add(&mut self, pool: PoolNumber, claim: Claim) {
        self.pools.insert(pool, Share { claim, ticks: BEGIN, was_idle: true });
    }

    /// Changes the claim of a pool from now on: earlier time in it counts by the earlier claim. Returns whether it was another
    /// one.
    pub(super) fn set_claim(&mut self, pool: PoolNumber, claim: Claim, now: Duration) -> bool {
        let Some(share) = self.pools.get_mut(&pool).filter(|share| share.claim != claim) else {
            return false;
        };
        for stint in self.workers.iter_mut().flatten().filter(|stint| stint.pool == pool) {
            share.ticks += share.claim.ticks(now.saturating_sub(stint.since));
            stint.since = now;
        }
        if share.claim.priority != claim.priority {
            // The next look sets the clock to those of the new rivals.
            (share.ticks, share.was_idle) = (0, true);
        }
        share.claim = claim;
        true
    }

    /// Removes a pool. Workers may still be in it.
    pub(super) fn remove(&mut self, pool: PoolNumber) {
        self.pools.remove(&pool);
    }

    /// Returns the only pool, if there is exactly one.
    pub(super) fn only(&self) -> Option<PoolNumber> {
        let mut pools = self.pools.keys();
        pools.next().copied().filter(|_| pools.next().is_none())
    }

    /// Records that a worker has gone to a pool.
    pub(super) fn begin(&mut self, worker: usize, pool: PoolNumber, now: Duration) {
        self.workers[worker] = Some(Stint { pool, since: now, recalled: None });
    }

    /// Records that a worker has left its pool.
    pub(super) fn end(&mut self, worker: usize, now: Duration) {
        let Some(stint) = self.workers[worker].take() else { return };
        if let Some(share) = self.pools.get_mut(&stint.pool) {
            share.ticks += share.claim.ticks(now.saturating_sub(stint.since));
        }
    }

    /// Returns the next pool for a worker, if any pool has tasks. `waiting` returns the number of tasks that could
    /// start in a pool.
    pub(super) fn choose(
        &mut self,
        now: Duration,
        waiting: impl Fn(PoolNumber) -> usize,
    ) -> Option<PoolNumber> {
        self.look(now, &waiting);
        let ready = self.pools.keys().filter(|&&pool| waiting(pool) > 0);
        ready.min_by_key(|&&pool| self.rank(pool, now)).copied()
    }

    /// Returns a worker that should leave its pool because another one is entitled to it.
    pub(super) fn recall(&mut self, now: Duration, waiting: impl Fn(PoolNumber) -> usize) -> Option<Recall> {
        self.look(now, &waiting);
        let is_coming = |stint: &Stint| stint.recalled.is_some_and(|at| now < at + RECALL_AGAIN);
        let coming = self.workers.iter().flatten().filter(|stint| is_coming(stint)).count();
        // Arriving workers take the first of these tasks.
        let mut ready: Vec<PoolNumber> =
            self.pools.keys().copied().filter(|&pool| waiting(pool) > 0).collect();
        ready.sort_by_key(|&pool| self.rank(pool, now));
        let mut tasks = ready.iter().flat_map(|&pool| std::iter::repeat_n(pool, waiting(pool)));
        let wanted = tasks.nth(coming)?;
        let staying = self.workers.iter().enumerate();
        let staying =
            staying.filter_map(|(worker, stint)| stint.filter(|it| !is_coming(it)).map(|it| (worker, it)));
        let (worker, stint) = staying
            .filter(|(_, stint)| self.pools.contains_key(&stint.pool) && stint.pool != wanted)
            .max_by_key(|(worker, stint)| (self.rank(stint.pool, now), Reverse(stint.since), *worker))?;
        let from = self.pools[&stint.pool].claim;
        let ahead = self.clock(stint.pool, now) >= self.clock(wanted, now) + from.ticks(QUANTUM);
        let goes = match self.pools[&wanted].claim.priority.cmp(&from.priority) {
            std::cmp::Ordering::Greater => true,
            // One at a time: otherwise all of them would move together.
            std::cmp::Ordering::Equal => {
                ahead && coming == 0 && self.has_more_than_its_share(stint.pool, &waiting)
            }
            std::cmp::Ordering::Less => false,
        };
        if !goes {
            return None;
        }
        self.workers[worker] = Some(Stint { recalled: Some(now), ..stint });
        Some(Recall { worker, from: stint.pool, to: wanted })
    }

    /// Returns the number of workers that a pool would have now if it had enough tasks: its own and the vacant ones,
    /// and at least its fair share.
    pub(super) fn slots(&self, pool: PoolNumber, waiting: impl Fn(PoolNumber) -> usize) -> usize {
        let Some(share) = self.pools.get(&pool) else { return 0 };
        let free = self.workers.iter().filter(|stint| stint.is_none_or(|stint| stint.pool == pool)).count();
        let priority = share.claim.priority;
        let comes_first = |other: &PoolNumber| {
            self.pools[other].claim.priority > priority && (self.is_worked(*other) || waiting(*other) > 0)
        };
        if self.pools.keys().any(comes_first) {
            return free;
        }
        let available = self.available();
        let weights = self.weights_with(pool, &waiting);
        let fair = (available as u64 * u64::from(share.claim.weight)).div_ceil(weights.max(1));
        free.max(usize::try_from(fair).unwrap_or(usize::MAX)).min(available)
    }

    /// Returns the number of workers that are not in a removed pool.
    pub(super) fn available(&self) -> usize {
        let comes_back =
            |stint: &Option<Stint>| stint.is_none_or(|stint| self.pools.contains_key(&stint.pool));
        self.workers.iter().filter(|stint| comes_back(stint)).count()
    }

    /// Returns whether a pool has more workers than its share among the pools with tasks. A pool with exactly its share
    /// keeps it, even if its clock is ahead.
    fn has_more_than_its_share(&self, pool: PoolNumber, waiting: &impl Fn(PoolNumber) -> usize) -> bool {
        let weight = self.pools[&pool].claim.weight;
        let weights = self.weights_with(pool, waiting);
        let there = self.workers.iter().flatten().filter(|stint| stint.pool == pool).count() as u64;
        there * weights > self.available() as u64 * u64::from(weight)
    }

    /// Returns the sum of the weights of a pool and of the others with its priority that have workers or tasks.
    fn weights_with(&self, pool: PoolNumber, waiting: &impl Fn(PoolNumber) -> usize) -> u64 {
        let priority = self.pools[&pool].claim.priority;
        let is_rival = |other: PoolNumber| other == pool || self.is_worked(other) || waiting(other) > 0;
        let rivals =
            self.pools.iter().filter(|(other, share)| share.claim.priority == priority && is_rival(**other));
        rivals.map(|(_, share)| u64::from(share.claim.weight)).sum()
    }

    fn is_worked(&self, pool: PoolNumber) -> bool {
        self.workers.iter().flatten().any(|stint| stint.pool == pool)
    }

    /// Returns the order in which pools get workers: smallest first.
    fn rank(&self, pool: PoolNumber, now: Duration) -> (Reverse<i32>, u64) {
        (Reverse(self.pools[&pool].claim.priority), self.clock(pool, now))
    }

    fn clock(&self, pool: PoolNumber, now: Duration) -> u64 {
        let Share { claim, ticks, .. } = self.pools[&pool];
        let stints = self.workers.iter().flatten().filter(|stint| stint.pool == pool);
        ticks + stints.map(|stint| claim.ticks(now.saturating_sub(stint.since))).sum::<u64>()
    }

    /// Advances the clocks of pools that were idle to those of the others.
    fn look(&mut self, now: Duration, waiting: &impl Fn(PoolNumber) -> usize) {
        let is_idle = |pool| waiting(pool) == 0 && !self.is_worked(pool);
        let (idle, active): (Vec<_>, Vec<_>) = self.pools.keys().copied().partition(|&pool| is_idle(pool));
        let (new, known): (Vec<_>, Vec<_>) = active.into_iter().partition(|pool| self.pools[pool].was_idle);
        // For each priority: the clock of a new pool, a quantum before those of the known ones, and the smallest known clock.
        let mut starts: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
        for pool in known {
            let (claim, clock) = (self.pools[&pool].claim, self.clock(pool, now));
            let start = starts.entry(claim.priority).or_insert((u64::MAX, u64::MAX));
            *start = (start.0.min(clock - claim.ticks(QUANTUM)), start.1.min(clock));
        }
        for pool in new {
            let Some(share) = self.pools.get_mut(&pool) else { continue };
            let priority = share.claim.priority;
            let floor = || self.floors.get(&priority).copied().unwrap_or(BEGIN);
            let start = starts.get(&priority).map_or_else(floor, |&(start, _)| start);
            (share.was_idle, share.ticks) = (false, share.ticks.max(start));
        }
        for (priority, (_, clock)) in starts {
            let floor = self.floors.entry(priority).or_insert(BEGIN);
            *floor = clock.max(*floor);
        }
        for pool in idle {
            if let Some(share) = self.pools.get_mut(&pool) {
                share.was_idle = true;
            }
        }
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
