//! A job's share of the nodes that work on several jobs at a time.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use super::{JobRecord, end::update};
use crate::{error::Result, paths::ClusterPaths, store::Store};

/// The largest weight of a job.
pub const WEIGHT_MAX: u32 = 1000;

/// The range of priorities.
pub const PRIORITY_RANGE: std::ops::RangeInclusive<i32> = -100..=100;

/// A job's share of the workers of each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Its weight among the jobs of its priority, up to [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
    /// Jobs of a higher priority come first; lower ones get the workers that those leave idle.
    pub priority: i32,
    /// Whether nodes that work on it work on no other job at the same time.
    pub exclusive: bool,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, priority: 0, exclusive: false }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weight, priority, exclusive } = self;
        write!(f, "weight {weight}, priority {priority}")?;
        if *exclusive { write!(f, ", exclusive") } else { Ok(()) }
    }
}

/// A change of the share of a job that is not over. A part without a value stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewShare {
    /// The weight.
    pub weight: Option<NonZeroU32>,
    /// The priority.
    pub priority: Option<i32>,
}

/// A recorded change of a job's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareChange {
    /// When it was requested, in milliseconds since 1970 by the clock of the user's machine.
    pub at_ms: u64,
    /// The user that requested it.
    pub by: String,
    /// The share from then on.
    pub share: Share,
}

/// The maximum number of recorded changes of a job's share: the latest ones.
pub const SHARE_CHANGES_MAX: usize = 16;

/// Changes the share of a job that is running or suspended, and records the change. Returns the record: in another state,
/// the job is not changed. Repeating a request has no effect.
///
/// # Errors
/// Any error from the store.
pub async fn set_share(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    new: NewShare,
    by: &str,
    now_ms: u64,
) -> Result<JobRecord> {
    update(store, cluster, job, |record| {
        let NewShare { weight, priority } = new;
        let before = record.share;
        let share = Share {
            weight: weight.unwrap_or(before.weight),
            priority: priority.unwrap_or(before.priority),
            ..before
        };
        let changes = record.state.accepts_share() && share != before;
        if changes {
            record.share = share;
            let surplus = (record.share_changes.len() + 1).saturating_sub(SHARE_CHANGES_MAX);
            record.share_changes.drain(..surplus);
            record.share_changes.push(ShareChange { at_ms: now_ms, by: by.to_owned(), share });
        }
        changes
    })
    .await
}
