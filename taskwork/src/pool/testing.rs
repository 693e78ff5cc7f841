//! The limits of the pools of tests, and waits for them.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{Pool, PoolLimits, Work};
use crate::{core::Cut, task::Task};

pub(super) const LIMITS: PoolLimits = PoolLimits {
    task_children_max: 3,
    batch_ids_commit: usize::MAX,
    spawned_tasks_max: 1_000,
    crashes_max: 3,
    ledger: true,
    ledger_bytes_max: usize::MAX,
};

/// The maximum time of each wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn wait_for<T: Task>(pool: &Pool<T>, what: &str, mut holds: impl FnMut(&Pool<T>) -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds(pool) {
        assert!(Instant::now() < give_up, "waited in vain for {what}: {:?}", pool.view());
        thread::yield_now();
    }
}

/// Takes a cut, which lasts until every running task was polled.
pub(super) fn cut<T: Task>(pool: &Arc<Pool<T>>) -> Cut {
    pool.begin_cut(&[]).unwrap();
    ready_cut(pool)
}

/// Waits for the end of a cut.
pub(super) fn ready_cut<T: Task>(pool: &Arc<Pool<T>>) -> Cut {
    let mut cut = None;
    wait_for(pool, "a cut", |_| {
        cut = Arc::clone(pool).ready_cut().unwrap();
        cut.is_some()
    });
    cut.unwrap()
}
