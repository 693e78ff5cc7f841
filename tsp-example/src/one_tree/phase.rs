//! The phases of an ascent: which steps are made at the root and below, and when it is over.

use serde::{Deserialize, Serialize};

use super::ascent::{Pace, Plan};

/// A part of the ascent in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// At the root of large instances: with the edges between near neighbours only.
    Near,
    /// After that: with all edges.
    After,
    /// At the root of other instances: with all edges.
    Whole,
    /// At the root: again with those that are left, this many times before.
    Again(u32),
    /// Below the root of large instances, where a state is not looked at at first: a search that is stopped
    /// takes a bound of each state that is open, which is then the parent's.
    Waiting,
    /// Below the root, where it starts from the parent's multipliers; this many times before.
    Below(u32),
}

/// The number of cities of a large instance.
const LARGE: usize = 400;
/// The maximum number of repeated ascents at the root, while edges can be forced or forbidden.
const AGAIN_MAX: u32 = 12;
/// The same limit below the root.
const BELOW_MAX: u32 = 1;

impl Phase {
    /// Returns the phase in which the root starts.
    pub(super) fn first(cities: usize, doubled: bool) -> Self {
        if cities >= LARGE && !doubled { Self::Near } else { Self::Whole }
    }

    /// Returns the phase in which other states start.
    pub(super) fn below(cities: usize) -> Self {
        if cities >= LARGE { Self::Waiting } else { Self::Below(0) }
    }

    pub(super) fn plan(self, cities: usize) -> Plan {
        let many = u32::try_from(cities).unwrap_or(u32::MAX);
        match self {
            // Fewer steps for more cities, since each takes so much longer.
            Self::Near => {
                let steps = (400_000 / many).clamp(100, 600);
                Plan { steps, pace: Pace::Mean { first: 0.4, last: 0.004 } }
            }
            Self::After => {
                let steps = (40_000 / many).clamp(5, 60);
                Plan { steps, pace: Pace::Mean { first: 0.02, last: 0.002 } }
            }
            Self::Whole => {
                let steps = many.saturating_mul(6).clamp(300, 3_000);
                Plan { steps, pace: Pace::Mean { first: 0.4, last: 0.004 } }
            }
            Self::Again(_) => Plan { steps: 60, pace: Pace::Gap { first: 1.0, last: 0.1 } },
            Self::Waiting | Self::Below(0) => Plan { steps: 60, pace: Pace::Gap { first: 1.0, last: 0.05 } },
            Self::Below(_) => Plan { steps: 30, pace: Pace::Gap { first: 0.5, last: 0.1 } },
        }
    }

    /// Returns the phase that follows, after conclusions were drawn: whether anything was `decided`, and
    /// whether the one-tree still `holds`. Returns `None` if the ascent is over.
    pub(super) fn next(self, decided: bool, holds: bool) -> Option<Self> {
        match self {
            Self::Near => Some(Self::After),
            Self::Waiting => Some(Self::Below(0)),
            Self::Whole | Self::After => Some(Self::Again(0)),
            Self::Again(times) if !holds || decided && times < AGAIN_MAX => Some(Self::Again(times + 1)),
            Self::Below(times) if !holds || decided && times < BELOW_MAX => Some(Self::Below(times + 1)),
            Self::Again(_) | Self::Below(_) => None,
        }
    }
}
