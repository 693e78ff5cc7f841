//! What a node has done, in numbers.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::outlook::Outlook;

/// What one node, or all nodes of a run together, have done since they started. Failures make the sums
/// inexact (exact figures belong in a program's [`Output`](crate::Output)).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Figures {
    /// Units of work, usually states, as the program counts them by
    /// [`Context::worked`](crate::Context::worked).
    pub worked: u64,
    /// Those of them done in attempts before the present one, whose tasks are repeated.
    pub worked_earlier: u64,
    /// Tasks completed.
    pub tasks: u64,
    /// Tasks split off.
    pub splits: u64,
    /// Steal requests sent to other nodes.
    pub requests: u64,
    /// Grants received from other nodes in answer to a steal request.
    pub steals: u64,
    /// Tasks received from other nodes.
    pub stolen_tasks: u64,
    /// Coordination transactions committed: batches, claims of parked tasks, clean leaves.
    pub transactions: u64,
    /// Coordination transactions that had to be built or sent again.
    pub retries: u64,
    /// Tasks handed on to other nodes when leaving.
    pub handed_on: u64,
    /// Tasks parked in ZooKeeper when leaving, because no node took them.
    pub parked: u64,
    /// Tasks that were continued from what nodes that are gone had last written.
    pub recovered: u64,
    /// Grants whose tasks were dropped because the node that had given them was lost before it had written
    /// that: other nodes continue from what it had written.
    pub dropped: u64,
    /// Task ids that these transactions toggled in the global task list.
    pub toggles: u64,
    /// The durations of steals, from the request to the beginning of a stolen task.
    pub steal_times: Histogram,
    /// The share of the whole that is done, as the program estimates it, in units of 10⁻¹⁸.
    pub done_attos: u64,
    /// The best that may still be found, as far as the nodes have reported it.
    pub outlook: Outlook,
    /// Tasks that run, are queued or wait now. `None` from nodes that do not report it.
    pub open_tasks: Option<u64>,
    /// Where the time of the workers went.
    pub times: WorkerTimes,
}

/// Where the time of workers went while they were there for a job, in nanoseconds. Each moment of a worker counts
/// as one of these, so the sum is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct WorkerTimes {
    /// They ran the program's code.
    pub searching_ns: u64,
    /// They had a task, and ran the runtime's code: a task had ended, or was written.
    pub handling_ns: u64,
    /// They had no task, and some task had begun on their node before.
    pub looking_ns: u64,
    /// They had no task, and none had begun on their node yet.
    pub starting_ns: u64,
}

impl WorkerTimes {
    /// Returns the sum, which is the workers' time.
    pub fn total_ns(&self) -> u64 {
        let Self { searching_ns, handling_ns, looking_ns, starting_ns } = *self;
        [searching_ns, handling_ns, looking_ns, starting_ns].into_iter().fold(0, u64::saturating_add)
    }
}

impl AddAssign for WorkerTimes {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        add(&mut self.searching_ns, other.searching_ns);
        add(&mut self.handling_ns, other.handling_ns);
        add(&mut self.looking_ns, other.looking_ns);
        add(&mut self.starting_ns, other.starting_ns);
    }
}

impl Figures {
    /// Returns the share of the whole that is done, from 0 to 1, as the program estimates it by
    /// [`Context::progressed`](crate::Context::progressed). `None` if nothing was reported.
    pub fn share(&self) -> Option<f64> {
        (self.done_attos > 0).then(|| (self.done_attos as f64 * 1e-18).min(1.0))
    }

    /// Converts a share to units of 10⁻¹⁸; 0 if it is NaN.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within range")]
    pub(crate) fn attos(share: f64) -> u64 {
        (share.clamp(0.0, 1.0) * 1e18) as u64
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.worked += other.worked;
        self.worked_earlier += other.worked_earlier;
        self.tasks += other.tasks;
        self.splits += other.splits;
        self.requests += other.requests;
        self.steals += other.steals;
        self.stolen_tasks += other.stolen_tasks;
        self.transactions += other.transactions;
        self.retries += other.retries;
        self.handed_on += other.handed_on;
        self.parked += other.parked;
        self.recovered += other.recovered;
        self.dropped += other.dropped;
        self.toggles += other.toggles;
        self.steal_times += other.steal_times;
        self.done_attos = self.done_attos.saturating_add(other.done_attos);
        self.outlook.merge_best(other.outlook);
        self.open_tasks = self.open_tasks.into_iter().chain(other.open_tasks).reduce(u64::saturating_add);
        self.times += other.times;
    }
}

/// A histogram of durations, in classes that grow by a factor of √2 each: the first is up to 7.812 µs, the
/// seventeenth up to two milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram([u32; 32]);

/// The upper limit of the first class.
const FIRST_CLASS: Duration = Duration::from_nanos(7_812);

impl Histogram {
    /// Records one duration.
    pub(crate) fn note(&mut self, took: Duration) {
        let class = (0..31).find(|&class| took <= Self::end(class)).unwrap_or(31);
        self.0[class] = self.0[class].saturating_add(1);
    }

    /// Returns the upper limit of a class.
    fn end(class: usize) -> Duration {
        FIRST_CLASS.mul_f64(std::f64::consts::SQRT_2.powi(i32::try_from(class).unwrap_or(0)))
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// Returns the duration that the given share of them (from 0 to 1) did not exceed, as the upper limit of
    /// its class. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = share.clamp(0.0, 1.0) * self.count() as f64;
        let mut seen = 0;
        let class = self.0.iter().position(|&times| {
            seen += u64::from(times);
            times > 0 && seen as f64 >= wanted
        });
        class.map(Self::end)
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        for (times, others) in self.0.iter_mut().zip(other.0) {
            *times = times.saturating_add(others);
        }
    }
}

/// A counter written mostly by one thread, on its own cache line to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_ends_of_their_classes() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(0.5), None);
        for ms in 1..=99 {
            times.note(Duration::from_millis(ms));
        }
        times.note(Duration::from_secs(3600));
        let within = |share, from, to| {
            let time = times.quantile(share).unwrap();
            assert!((Duration::from_millis(from)..Duration::from_millis(to)).contains(&time), "{time:?}");
        };
        within(0.0, 1, 2);
        within(0.5, 50, 71);
        within(0.99, 99, 140);
        assert!(
            times.quantile(1.0).unwrap() < Duration::from_secs(1),
            "the last class has no end of its own"
        );
        assert_eq!(times.count(), 100);
    }
}
