//! A job's share of the nodes that work on several jobs at a time.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

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
