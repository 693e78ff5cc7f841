//! Queues of calls that cannot run on every member, and of spread calls: one for each demand and for spread or not.
//! See `placing.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{
        demand::Demand,
        levels::Levels,
        ready::{Key, urgency},
    },
    ids::NESTED_BIT,
};

/// The waiting calls with requirements.
#[derive(Debug, Default)]
pub(in crate::core) struct Lanes {
    pub(in crate::core) by_kind: BTreeMap<LaneKind, Lane>,
}

/// The common properties of the calls of a lane: their demand, and whether they are spread.
pub(in crate::core) type LaneKind = (Demand, bool);

#[derive(Debug, Default)]
pub(in crate::core) struct Lane {
    pub(in crate::core) calls: BTreeSet<Key>,
    /// Whether it was reported that no member can run them.
    pub(in crate::core) is_told: bool,
}

impl Lanes {
    pub(in crate::core) fn push(&mut self, kind: LaneKind, key: Key) {
        self.by_kind.entry(kind).or_default().calls.insert(key);
    }

    pub(in crate::core) fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    /// Sorts all calls again.
    pub(in crate::core) fn reorder(&mut self, levels: &Levels) {
        for lane in self.by_kind.values_mut() {
            let level = |level, call| if call < NESTED_BIT { levels.of(call) } else { level };
            let again = |((priority, before), call): Key| (urgency(priority.0, level(before.0, call)), call);
            lane.calls = std::mem::take(&mut lane.calls).into_iter().map(again).collect();
        }
    }
}
