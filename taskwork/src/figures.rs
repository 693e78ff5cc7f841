//! Statistics of a node's work.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use taskwork_core::Counts;
use zk::figures::NodeFigures;

pub use crate::outlook::Outlook;
pub use zk::Histogram;

/// The work of one node, or of all nodes of a run together, since they started. Failures make the sums
/// inexact (exact figures belong in a program's [`Output`](crate::Output)).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Figures {
    /// Units of work, usually states, as the program counts them by
    /// [`Context::worked`](crate::Context::worked).
    pub worked: u64,
    /// The part of it done in earlier attempts, which is repeated.
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
    /// Coordination transactions that were rebuilt or sent again.
    pub retries: u64,
    /// Tasks handed over to other nodes when leaving.
    pub handed_on: u64,
    /// Tasks parked in ZooKeeper when leaving, because no node took them.
    pub parked: u64,
    /// Tasks continued from the last written state of departed nodes.
    pub recovered: u64,
    /// Grants whose tasks were dropped because the victim was lost before it had written the grant: other nodes
    /// continue from its last written state.
    pub dropped: u64,
    /// Task ids that these transactions toggled in the global task list.
    pub toggles: u64,
    /// The durations of steals, from the request to the start of a stolen task.
    pub steal_times: Histogram,
    /// The share of the whole that is done, as the program estimates it, in units of 10⁻¹⁸.
    pub done_attos: u64,
    /// The best outlook that the nodes have reported.
    pub outlook: Outlook,
    /// The best that may still be found in tasks that completed with [work left](crate::Context::leave_open), such as at
    /// a limit.
    pub left_open: Outlook,
    /// Tasks that run, are queued or wait now. `None` from nodes that do not report it.
    pub open_tasks: Option<u64>,
    /// The time of the workers by activity.
    pub times: WorkerTimes,
}

/// The time of the workers of a job by activity, in nanoseconds. Each moment of a worker counts for exactly one
/// activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct WorkerTimes {
    /// They ran the program's code.
    pub searching_ns: u64,
    /// They had a task, and ran the runtime's code: a task was completed, or was written.
    pub handling_ns: u64,
    /// They had no task, after the first task had started on their node.
    pub looking_ns: u64,
    /// They had no task, and none had started on their node yet.
    pub starting_ns: u64,
}

impl WorkerTimes {
    /// Returns the time in which they had no task.
    pub fn idle_ns(&self) -> u64 {
        self.looking_ns.saturating_add(self.starting_ns)
    }

    /// Adds the time in which a companion computed, and that of the workers that lent it their places. Not all companions
    /// use such places, so the companion's time may exceed it.
    pub(crate) fn add_companion(&mut self, ns: u64, places_ns: u64) {
        self.looking_ns = self.looking_ns.saturating_add(places_ns);
        let looking = ns.min(self.looking_ns);
        self.looking_ns -= looking;
        self.starting_ns = self.starting_ns.saturating_sub(ns - looking);
        self.searching_ns = self.searching_ns.saturating_add(ns);
    }

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
        // They may come from a znode with arbitrary content.
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.worked, other.worked);
        add(&mut self.worked_earlier, other.worked_earlier);
        add(&mut self.tasks, other.tasks);
        add(&mut self.splits, other.splits);
        add(&mut self.requests, other.requests);
        add(&mut self.steals, other.steals);
        add(&mut self.stolen_tasks, other.stolen_tasks);
        add(&mut self.transactions, other.transactions);
        add(&mut self.retries, other.retries);
        add(&mut self.handed_on, other.handed_on);
        add(&mut self.parked, other.parked);
        add(&mut self.recovered, other.recovered);
        add(&mut self.dropped, other.dropped);
        add(&mut self.toggles, other.toggles);
        add(&mut self.done_attos, other.done_attos);
        self.steal_times += other.steal_times;
        self.outlook.merge_best(other.outlook);
        self.left_open.merge_best(other.left_open);
        self.open_tasks = self.open_tasks.into_iter().chain(other.open_tasks).reduce(u64::saturating_add);
        self.times += other.times;
    }
}

impl From<Counts> for Figures {
    fn from(counts: Counts) -> Self {
        Self {
            requests: counts.requests,
            steals: counts.steals,
            stolen_tasks: counts.stolen_tasks,
            transactions: counts.transactions,
            retries: counts.retries,
            handed_on: counts.handed_on,
            parked: counts.parked,
            recovered: counts.recovered,
            dropped: counts.dropped,
            toggles: counts.toggles,
            ..Self::default()
        }
    }
}

/// Sums the reports of nodes. The share that is done, the open tasks and the outlook are those of the last attempt only.
/// The tasks of a node that has sent its last report are elsewhere, so only what it has left open remains of its outlook.
pub(crate) fn sum<'a>(reports: impl Iterator<Item = &'a NodeFigures<Figures>> + Clone) -> Figures {
    let mut sum = Figures::default();
    let last = reports.clone().map(|report| report.attempt).max();
    for report in reports {
        let mut figures = report.figures;
        if report.last {
            figures.outlook = figures.left_open;
        }
        if Some(report.attempt) != last {
            (figures.done_attos, figures.open_tasks) = (0, None);
            (figures.outlook, figures.left_open) = (Outlook::Nothing, Outlook::Nothing);
            figures.worked_earlier = figures.worked;
        }
        sum += figures;
    }
    sum
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
    fn companion_time_replaces_idle_time_and_may_exceed_it() {
        let times = |searching_ns, looking_ns, starting_ns| WorkerTimes {
            searching_ns,
            handling_ns: 1,
            looking_ns,
            starting_ns,
        };
        let cases = [
            (0, 0, times(5, 10, 4)),
            (12, 0, times(17, 0, 2)),
            (20, 0, times(25, 0, 0)),
            (12, 7, times(17, 5, 4)),
        ];
        for (ns, places_ns, expected) in cases {
            let mut found = times(5, 10, 4);
            found.add_companion(ns, places_ns);
            assert_eq!(found, expected, "{ns} ns, {places_ns} ns in places");
        }
    }
}
