//! When a search is to end before the whole tree was searched: the time is up, or the states are.
//!
//! Nobody counts for all. Each node says now and then how many states it has visited, in a variable that holds the counts of all; the
//! fewer are left to the limit, the more often. So a limit is told of after some n·log(limit) messages, and passed by little (G. Cormode,
//! S. Muthukrishnan and K. Yi, Algorithms for distributed functional monitoring, 2008).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use taskwork::{NodeId, Variable};

/// Why a search has ended before the whole tree was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Halt {
    /// A solution is as good as the target.
    Target,
    /// As many states were visited as were allowed.
    States,
    /// The time was up.
    Time,
}

/// The variable that says what the search has taken so far.
#[derive(Debug)]
pub(crate) struct Spending;

/// What a search has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// When its first state was visited, in milliseconds since 1970 on the clock of the node that did.
    pub(crate) began_ms: u64,
    /// States visited, as far as their nodes have said.
    pub(crate) states: BTreeMap<NodeId, u64>,
}

impl Spent {
    fn sum(&self) -> u64 {
        self.states.values().sum()
    }
}

impl Variable for Spending {
    type Value = Spent;
    const NAME: &'static str = "spent";

    /// Of two that were said at the same time one is lost; who has said it says it again, with more, the next time.
    fn improves(new: &Spent, old: &Spent) -> bool {
        (old.began_ms, new.sum()) > (new.began_ms, old.sum())
    }
}

/// The limits of a search, as one worker keeps them.
#[derive(Debug)]
pub(crate) struct Limits {
    states_max: Option<u64>,
    time_limit: Option<Duration>,
    /// When the time is up, once it is known when it began.
    deadline: Option<Instant>,
    spent: Spent,
}

impl Limits {
    pub(crate) fn new(time_limit_ms: Option<u64>, states_max: Option<u64>) -> Option<Self> {
        let spent = Spent { began_ms: unix_ms(), states: BTreeMap::new() };
        (time_limit_ms.is_some() || states_max.is_some()).then(|| Self {
            states_max,
            time_limit: time_limit_ms.map(Duration::from_millis),
            deadline: None,
            spent,
        })
    }

    /// Takes note of what all have taken.
    pub(crate) fn hear(&mut self, spent: &Spent) {
        self.spent.clone_from(spent);
        let passed = Duration::from_millis(unix_ms().saturating_sub(spent.began_ms));
        let left = self.time_limit.map(|limit| limit.saturating_sub(passed));
        self.deadline = left.and_then(|left| Instant::now().checked_add(left));
    }

    /// What is known so far: what a worker says that has heard of nobody.
    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Whether there is to be an end, `here` states having been visited on this node.
    pub(crate) fn halts(&self, node: NodeId, here: u64, now: Instant) -> Option<Halt> {
        if self.states_max.is_some_and(|max| self.states(node, here) >= max) {
            return Some(Halt::States);
        }
        self.deadline.is_some_and(|deadline| now >= deadline).then_some(Halt::Time)
    }

    fn states(&self, node: NodeId, here: u64) -> u64 {
        let said = self.spent.states.get(&node).copied().unwrap_or(0);
        self.spent.sum() - said + here.max(said)
    }

    /// What to tell the others, if it is time to.
    pub(crate) fn says(&self, node: NodeId, here: u64) -> Option<Spent> {
        let said = self.spent.states.get(&node).copied().unwrap_or(0);
        let left = self.states_max?.saturating_sub(self.spent.sum());
        let nodes = self.spent.states.len() as u64 + 1;
        (here.saturating_sub(said) > left / (2 * nodes)).then(|| {
            let mut spent = self.spent.clone();
            spent.states.insert(node, here);
            spent
        })
    }

    /// How many states may be visited before it is looked again, by one of several workers.
    pub(crate) fn states_ahead(&self, node: NodeId, here: u64) -> u64 {
        let left = self.states_max.map_or(u64::MAX, |max| max.saturating_sub(self.states(node, here)));
        (left / 16).max(1)
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_clock_is_ahead_does_not_end_a_search_that_has_just_begun() {
        let mut limits = Limits::new(Some(60_000), None).unwrap();
        // Another node's clock said so an hour ago, by this node's clock; or the job was put aside for an hour.
        limits.hear(&Spent { began_ms: unix_ms() - 3_600_000, states: BTreeMap::new() });
        assert_eq!(limits.halts(NodeId(1), 1, Instant::now()), None);
    }
}
