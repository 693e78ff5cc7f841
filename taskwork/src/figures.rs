//! What a node has done, in numbers.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

/// What one node, or all nodes of a run together, have done since they started. Sums; nothing here is exact to
/// the task under failures (exact figures belong into a program's [`Output`](crate::Output)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Figures {
    /// Units of work, as the program counts them by [`Context::worked`](crate::Context::worked): states, mostly.
    pub worked: u64,
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
    /// Tasks parked in ZooKeeper when leaving, since nobody took them.
    pub parked: u64,
    /// Task ids that these transactions toggled in the global task list.
    pub toggles: u64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.worked += other.worked;
        self.tasks += other.tasks;
        self.splits += other.splits;
        self.requests += other.requests;
        self.steals += other.steals;
        self.stolen_tasks += other.stolen_tasks;
        self.transactions += other.transactions;
        self.retries += other.retries;
        self.handed_on += other.handed_on;
        self.parked += other.parked;
        self.toggles += other.toggles;
    }
}

/// A counter that one thread mostly writes, on a cache line of its own so that counting disturbs nobody.
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
}
