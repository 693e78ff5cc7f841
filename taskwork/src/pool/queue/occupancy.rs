//! For how long workers have had a task, and for how long they could have had one.

use std::time::Duration;

use tokio::time::Instant;

/// The time that the workers of a pool have spent with and without a task, summed over them. The clock is read
/// once when the number of either changes, never while a task is searched.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool) struct Occupancy {
    since: Instant,
    workers_busy: usize,
    workers_idle: usize,
    busy: Duration,
    idle: Duration,
}

impl Occupancy {
    pub(super) fn begin(idle: usize) -> Self {
        let nothing = Duration::ZERO;
        Self { since: Instant::now(), workers_busy: 0, workers_idle: idle, busy: nothing, idle: nothing }
    }

    /// Notes how many workers have a task from now on, and how many have none.
    pub(super) fn changed(&mut self, busy: usize, idle: usize) {
        if (self.workers_busy, self.workers_idle) != (busy, idle) {
            self.changed_at(Instant::now(), busy, idle);
        }
    }

    fn changed_at(&mut self, now: Instant, busy: usize, idle: usize) {
        *self = Self { workers_busy: busy, workers_idle: idle, ..self.at(now) };
    }

    fn at(self, now: Instant) -> Self {
        let passed = now.saturating_duration_since(self.since);
        let times = |workers: usize| passed.saturating_mul(u32::try_from(workers).unwrap_or(u32::MAX));
        let busy = self.busy.saturating_add(times(self.workers_busy));
        let idle = self.idle.saturating_add(times(self.workers_idle));
        Self { since: now, busy, idle, ..self }
    }

    /// Returns the times with and without a task until now, in nanoseconds.
    pub(in crate::pool) fn now_ns(self) -> (u64, u64) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = self.at(Instant::now());
        (nanos(now.busy), nanos(now.idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_counts_for_the_time_in_which_it_had_a_task() {
        let mut occupancy = Occupancy::begin(3);
        let begun = occupancy.since;
        let after = |seconds| begun + Duration::from_secs(seconds);
        occupancy.changed_at(after(2), 2, 1);
        occupancy.changed_at(after(12), 2, 1);
        occupancy.changed_at(after(13), 0, 0);
        let then = occupancy.at(after(113));
        assert_eq!((then.busy, then.idle), (Duration::from_secs(22), Duration::from_secs(17)));
        assert_eq!(then.at(after(1)).busy, then.busy, "a clock that goes back counts for nothing");
    }
}
