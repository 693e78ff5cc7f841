//! The time of a pool's workers by activity. The clock is read when a task starts and ends, never while
//! it is searched.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use crate::figures::WorkerTimes;

/// The activity of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Doing {
    /// It is in no task of this pool, and does not wait for one here.
    Away = 0,
    /// It has no task.
    Looking = 1,
    /// It runs the program's code.
    Searching = 2,
    /// It has a task, and runs the runtime's code: the task was completed or is written.
    Handling = 3,
}

/// The times of all workers of a pool.
#[derive(Debug)]
pub(crate) struct Times {
    begun: Instant,
    /// The start of the first task, in nanoseconds since `start`; 0 before that.
    first_ns: AtomicU64,
    lanes: Vec<Lane>,
}

/// The times of one worker, written only by that worker, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    /// Its activity and the start of that, in nanoseconds: the two lowest bits are the [`Doing`].
    now: AtomicU64,
    starting_ns: AtomicU64,
    looking_ns: AtomicU64,
    searching_ns: AtomicU64,
    handling_ns: AtomicU64,
}

impl Times {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            begun: Instant::now(),
            first_ns: AtomicU64::new(0),
            lanes: (0..workers).map(|_| Lane::default()).collect(),
        }
    }

    /// Records the activity of a worker from now on. Only that worker may call it.
    pub(crate) fn note(&self, worker: usize, doing: Doing) {
        self.note_at(self.now_ns(), worker, doing);
    }

    fn note_at(&self, now_ns: u64, worker: usize, doing: Doing) {
        if doing == Doing::Searching && self.first_ns.load(Relaxed) == 0 {
            let _ = self.first_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
        }
        let lane = &self.lanes[worker];
        let (before, since_ns) = unpacked(lane.now.swap(now_ns << 2 | doing as u64, Relaxed));
        let mut spent = WorkerTimes::default();
        self.add_span(&mut spent, before, since_ns, now_ns);
        for (sum, part) in [
            (&lane.starting_ns, spent.starting_ns),
            (&lane.looking_ns, spent.looking_ns),
            (&lane.searching_ns, spent.searching_ns),
            (&lane.handling_ns, spent.handling_ns),
        ] {
            if part > 0 {
                // Only one thread writes it.
                sum.store(sum.load(Relaxed) + part, Relaxed);
            }
        }
    }

    /// Returns the sums of all workers so far, including their current activities. Inexact while they work: a worker
    /// may be between two activities.
    pub(crate) fn sums(&self) -> WorkerTimes {
        self.sums_at(self.now_ns())
    }

    fn sums_at(&self, now_ns: u64) -> WorkerTimes {
        let mut sums = WorkerTimes::default();
        for lane in &self.lanes {
            let (doing, since_ns) = unpacked(lane.now.load(Relaxed));
            sums += WorkerTimes {
                starting_ns: lane.starting_ns.load(Relaxed),
                looking_ns: lane.looking_ns.load(Relaxed),
                searching_ns: lane.searching_ns.load(Relaxed),
                handling_ns: lane.handling_ns.load(Relaxed),
            };
            self.add_span(&mut sums, doing, since_ns, now_ns);
        }
        sums
    }

    /// Adds a span of time. Time without a task counts as `starting` until a worker of the pool has had a task.
    fn add_span(&self, sums: &mut WorkerTimes, doing: Doing, from_ns: u64, to_ns: u64) {
        let span_ns = to_ns.saturating_sub(from_ns);
        match doing {
            Doing::Away => {}
            Doing::Searching => sums.searching_ns += span_ns,
            Doing::Handling => sums.handling_ns += span_ns,
            Doing::Looking => {
                let first_ns = match self.first_ns.load(Relaxed) {
                    0 => u64::MAX,
                    first_ns => first_ns,
                };
                let starting_ns = first_ns.clamp(from_ns, to_ns.max(from_ns)) - from_ns;
                sums.starting_ns += starting_ns;
                sums.looking_ns += span_ns - starting_ns;
            }
        }
    }

    /// Returns the nanoseconds since the start, at least 1. Two bits are free for a hundred years.
    fn now_ns(&self) -> u64 {
        nanoseconds(self.begun.elapsed()).max(1)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 2)
}

fn unpacked(now: u64) -> (Doing, u64) {
    let doing = match now & 3 {
        0 => Doing::Away,
        1 => Doing::Looking,
        2 => Doing::Searching,
        _ => Doing::Handling,
    };
    (doing, now >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn worker_time_is_the_sum_of_four_activities() {
        let times = Times::new(2);
        let note = |ms: u64, worker, doing| times.note_at(ms * MS, worker, doing);
        let sums = |ms: u64| times.sums_at(ms * MS);
        assert_eq!(sums(5), WorkerTimes::default(), "no worker has come");
        note(5, 0, Doing::Looking);
        note(5, 1, Doing::Looking);
        assert_eq!(sums(15), WorkerTimes { starting_ns: 20 * MS, ..WorkerTimes::default() });
        note(15, 0, Doing::Searching);
        note(115, 0, Doing::Handling);
        note(116, 0, Doing::Looking);
        let so_far = WorkerTimes {
            starting_ns: 20 * MS,
            looking_ns: (103 + 2) * MS,
            searching_ns: 100 * MS,
            handling_ns: MS,
        };
        assert_eq!(sums(118), so_far);
        assert_eq!(so_far.total_ns(), 2 * 113 * MS);
        note(118, 1, Doing::Searching);
        note(118, 0, Doing::Away);
        let later = WorkerTimes { searching_ns: 1_100 * MS, ..so_far };
        assert_eq!(sums(1_118), later, "one works, one is away");
        assert_eq!(sums(1_118), later, "looking changes nothing");
        assert_eq!(sums(7), so_far, "a clock that goes back counts for nothing");
    }

    #[test]
    fn current_activity_is_included_in_the_sums() {
        let times = Times::new(1);
        times.note(0, Doing::Looking);
        times.note(0, Doing::Searching);
        while times.sums().searching_ns == 0 {
            std::hint::spin_loop();
        }
        times.note(0, Doing::Away);
        assert_eq!(times.sums(), times.sums(), "nothing is added any more");
    }
}
