//! Limits on the calls that run at a time, over all members.
//!
//! A call with limits counts from its assignment on, so it is assigned only to a member with a free worker: otherwise others
//! would wait for it without need. It counts while it waits for its own calls, so these have no limits, which excludes
//! deadlocks.
//!
//! After a restart of the program, calls of its earlier run may still run, and their limits are unknown until the program has
//! made them again. Until then, and until all members have reported these calls, no call with limits starts. An unknown
//! call waits for no other one, so this wait ends.
//!
//! A task that makes calls is not reported: it runs again, because the new run does not know its calls. So its limits may be
//! exceeded after a loss of the program's node, until its earlier thread returns.

use super::{Demand, Load, Members};
use crate::needs;

impl Members {
    /// Lets calls with limits wait while some members have not reported the calls that they run since an earlier run.
    pub(in crate::core) fn set_untold(&mut self, are_untold: bool) {
        self.are_untold = are_untold;
    }

    /// Returns a limit that lets no other call start now.
    pub(in crate::core) fn reached_limit(&self, demand: Demand) -> Option<&'static str> {
        let is_unknown = |load: &Load| load.tasks.iter().any(|(task, _)| task.is_none());
        let are_unknown = || self.are_untold || self.known.values().any(is_unknown);
        let first = demand.limits.first().filter(|_| are_unknown());
        let used = |name: &str| self.known.values().filter_map(|load| load.limits.get(name)).sum::<i64>();
        let is_reached = |limit: &str| needs::limit(limit).is_some_and(|(name, calls)| used(name) >= calls);
        first.or_else(|| demand.limits.iter().find(|limit| is_reached(limit))).copied()
    }
}

impl Load {
    /// Adds this number of calls to those that count for the limits of a demand.
    pub(super) fn count_limits(&mut self, demand: Demand, calls: i64) {
        for (name, _) in demand.limits.iter().filter_map(|limit| needs::limit(limit)) {
            *self.limits.entry(name).or_default() += calls;
        }
    }
}
