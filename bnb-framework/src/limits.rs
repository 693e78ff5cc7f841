//! Limits that end a search before the whole tree is searched: time and states.
//!
//! No node counts for all. Each node announces its number of visited states now and then, in a variable that
//! holds the counts of all nodes; the fewer states are left to the limit, the more often it does. A limit is
//! thus noticed after about n·log(limit) messages, and exceeded by little (G. Cormode, S. Muthukrishnan and
//! K. Yi, Algorithms for distributed functional monitoring, 2008).
//!
//! There is no common clock either: those of the nodes may differ by hours. Each node counts the time in
//! which it searches, starting from the largest value that it has received, and announces it now and then.
//! The time limit thus applies approximately to the node that has searched longest; time in which a job is
//! suspended does not count.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{NodeId, Variable};

/// The reason why a search stopped before the whole tree was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Halt {
    /// A solution is as good as the target.
    Target,
    /// The allowed number of states was visited.
    States,
    /// The time was up.
    Time,
}

/// The variable that holds the states and the time spent by the search.
#[derive(Debug)]
pub(crate) struct Spending;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// The time spent searching, in ms, as far as the nodes have announced it.
    pub(crate) searched_ms: u64,
    /// States visited, as far as their nodes have announced them.
    pub(crate) states: BTreeMap<NodeId, u64>,
}

impl Spent {
    fn sum(&self) -> u64 {
        self.states.values().fold(0, |sum, states| sum.saturating_add(*states))
    }
}

impl Variable for Spending {
    type Value = Spent;
    const NAME: &'static str = "spent";

    /// If two values are announced at the same time, one is lost; its node announces a larger one later. All
    /// nodes must agree on the winner, even if both are equally good: otherwise each node keeps its own value, and
    /// assumes that the others have visited nothing.
    fn improves(new: &Spent, old: &Spent) -> bool {
        let held = |spent: &Spent| spent.searched_ms.saturating_add(spent.sum());
        (held(new), &new.states) > (held(old), &old.states)
    }
}

/// A node's count of the time in which it searches.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    searched: Duration,
    /// When the count was last updated.
    last: Option<Instant>,
    /// The number of workers that search now.
    searching: usize,
}

/// The time for which all of a node's workers may be without a task while the node still counts as searching,
/// since they look for one.
const LOOKS_FOR: Duration = Duration::from_secs(1);

impl Stopwatch {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time spent searching until now.
    fn read(&self, now: Instant) -> Duration {
        self.count().go_on(now)
    }

    /// Takes into account how long others have searched.
    fn hear(&self, searched: Duration, now: Instant) {
        let mut count = self.count();
        count.go_on(now);
        count.searched = count.searched.max(searched);
    }

    fn begin(&self, now: Instant) {
        let mut count = self.count();
        count.go_on(now);
        count.searching += 1;
    }

    fn end(&self, now: Instant) {
        let mut count = self.count();
        count.go_on(now);
        count.searching -= 1;
    }
}

impl Count {
    fn go_on(&mut self, now: Instant) -> Duration {
        let since = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        if self.searching > 0 || since <= LOOKS_FOR {
            self.searched += since;
        }
        self.last = self.last.max(Some(now));
        self.searched
    }
}

/// The limits of a search, as kept by one worker while it has a task.
#[derive(Debug)]
pub(crate) struct Limits {
    states_max: Option<u64>,
    time_limit: Option<Duration>,
    stopwatch: Arc<Stopwatch>,
    spent: Spent,
}

/// The number of announcements of the elapsed time within the time limit. The last announcement may be lost with the
/// attempt, or when a job is suspended.
const TIME_PARTS: u32 = 32;
/// The minimum interval between such announcements.
const SAY_TIME_EVERY: Duration = Duration::from_millis(200);

impl Limits {
    pub(crate) fn new(
        time_limit_ms: Option<u64>,
        states_max: Option<u64>,
        stopwatch: &Arc<Stopwatch>,
        now: Instant,
    ) -> Option<Self> {
        if time_limit_ms.is_none() && states_max.is_none() {
            return None;
        }
        stopwatch.begin(now);
        Some(Self {
            states_max,
            time_limit: time_limit_ms.map(Duration::from_millis),
            stopwatch: Arc::clone(stopwatch),
            spent: Spent::default(),
        })
    }

    /// Applies the spending announced by all nodes.
    pub(crate) fn hear(&mut self, spent: &Spent, now: Instant) {
        self.spent.clone_from(spent);
        self.stopwatch.hear(Duration::from_millis(spent.searched_ms), now);
    }

    /// Returns why the search must end now, if it must, after `here` states were visited on this node.
    pub(crate) fn halts(&self, node: NodeId, here: u64, now: Instant) -> Option<Halt> {
        if self.states_max.is_some_and(|max| self.states(node, here) >= max) {
            return Some(Halt::States);
        }
        self.time_limit.is_some_and(|limit| self.stopwatch.read(now) >= limit).then_some(Halt::Time)
    }

    fn states(&self, node: NodeId, here: u64) -> u64 {
        let said = self.spent.states.get(&node).copied().unwrap_or(0);
        self.spent.sum().saturating_sub(said).saturating_add(here.max(said))
    }

    /// Returns the spending to announce, if an announcement is due.
    pub(crate) fn says(&self, node: NodeId, here: u64, now: Instant) -> Option<Spent> {
        let searched = self.stopwatch.read(now);
        if !self.says_states(node, here) && !self.says_time(searched) {
            return None;
        }
        let mut spent = self.spent.clone();
        spent.searched_ms = u64::try_from(searched.as_millis()).unwrap_or(u64::MAX).max(spent.searched_ms);
        let said = spent.states.entry(node).or_default();
        *said = here.max(*said);
        Some(spent)
    }

    fn says_states(&self, node: NodeId, here: u64) -> bool {
        let Some(states_max) = self.states_max else { return false };
        // At once for the first time: how soon the others announce theirs depends on how many nodes there are.
        let Some(said) = self.spent.states.get(&node) else { return here > 0 };
        let left = states_max.saturating_sub(self.spent.sum());
        here.saturating_sub(*said) > left / (2 * self.nodes())
    }

    /// Returns the number of nodes that are known to search, with this one.
    fn nodes(&self) -> u64 {
        self.spent.states.len().max(1) as u64
    }

    fn says_time(&self, searched: Duration) -> bool {
        let step = self.time_limit.map(|limit| (limit / TIME_PARTS).max(SAY_TIME_EVERY));
        step.is_some_and(|step| searched >= Duration::from_millis(self.spent.searched_ms) + step)
    }

    /// Returns the number of states that one of several workers may visit before it checks again.
    pub(crate) fn states_ahead(&self, node: NodeId, here: u64) -> u64 {
        let left = self.states_max.map_or(u64::MAX, |max| max.saturating_sub(self.states(node, here)));
        (left / (16 * self.nodes())).max(1)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        self.stopwatch.end(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const NODE: NodeId = NodeId(1);

    fn limits(limit: Duration, now: Instant) -> (Arc<Stopwatch>, Limits) {
        let stopwatch = Arc::new(Stopwatch::default());
        let limit_ms = u64::try_from(limit.as_millis()).unwrap();
        let limits = Limits::new(Some(limit_ms), None, &stopwatch, now).unwrap();
        (stopwatch, limits)
    }

    #[test]
    fn only_time_with_active_search_counts() {
        let (start, limit, hour) = (Instant::now(), Duration::from_secs(60), Duration::from_secs(3600));
        let (stopwatch, first) = limits(limit, start);
        assert_eq!(first.halts(NODE, 1, start + limit / 2), None);
        // A reading of the clock during one state that takes long.
        assert_eq!(first.halts(NODE, 1, start + limit * 2), Some(Halt::Time));
        drop(first);

        let (stopwatch_2, second) = limits(limit, start);
        assert_eq!(second.halts(NODE, 1, start + limit / 2), None);
        stopwatch_2.end(start + limit / 2);
        // Suspended for an hour, and resumed.
        stopwatch_2.begin(start + hour);
        assert_eq!(second.halts(NODE, 1, start + hour), None);
        assert_eq!(second.halts(NODE, 1, start + hour + limit), Some(Halt::Time));
        drop(stopwatch);
    }

    #[test]
    fn node_continues_from_maximum_announced_regardless_of_clock() {
        let (start, limit) = (Instant::now(), Duration::from_secs(60));
        let (_stopwatch, mut newcomer) = limits(limit, start);
        newcomer.hear(&Spent { searched_ms: 50_000, states: BTreeMap::new() }, start);
        assert_eq!(newcomer.halts(NODE, 1, start + Duration::from_secs(9)), None);
        assert_eq!(newcomer.halts(NODE, 1, start + Duration::from_secs(10)), Some(Halt::Time));
    }

    #[test]
    fn time_announcements_are_periodic_and_increase() {
        let (start, limit) = (Instant::now(), Duration::from_secs(64));
        let (_stopwatch, mut limits) = limits(limit, start);
        let (mut said, mut times) = (Spent::default(), 0);
        for tenth in 0..640 {
            let now = start + Duration::from_millis(100) * tenth;
            if let Some(spent) = limits.says(NODE, u64::from(tenth), now) {
                assert!(Spending::improves(&spent, &said) && !Spending::improves(&said, &spent));
                (said, times) = (spent, times + 1);
                limits.hear(&said, now);
            }
        }
        assert_eq!((times, said.searched_ms), (31, 62_000));
    }

    /// Visits states on `nodes` nodes in turn until one of them reaches the limit. A node knows its own
    /// announcements at once; the others receive them after each of them has visited `delay` further
    /// states. Returns the number of states, and of announcements.
    fn states_visited(nodes: u64, limit: u64, delay: u64) -> (u64, u64) {
        let now = Instant::now();
        let stopwatch = Arc::new(Stopwatch::default());
        let mut all: Vec<_> = (0..nodes)
            .map(|node| (NodeId(node), Limits::new(None, Some(limit), &stopwatch, now).unwrap()))
            .collect();
        let (mut here, mut announced, mut on_the_way) = (0, 0, VecDeque::<(u64, Spent)>::new());
        while all.iter().all(|(node, limits)| limits.halts(*node, here, now).is_none()) {
            while on_the_way.front().is_some_and(|(due, _)| *due <= here) {
                let (_, spent) = on_the_way.pop_front().unwrap();
                let behind = all.iter_mut().filter(|(_, limits)| Spending::improves(&spent, &limits.spent));
                behind.for_each(|(_, limits)| limits.hear(&spent, now));
            }
            here += 1;
            for (node, limits) in &mut all {
                if let Some(spent) = limits.says(*node, here, now) {
                    limits.hear(&spent, now);
                    on_the_way.push_back((here + delay, spent));
                    announced += 1;
                }
            }
        }
        (here * nodes, announced)
    }

    #[test]
    fn state_limit_is_exceeded_only_slightly() {
        for (nodes, delay) in [(1, 0), (1, 100), (4, 0), (4, 100), (50, 100)] {
            let (states, announced) = states_visited(nodes, 1_000_000, delay);
            let passed = states - 1_000_000;
            // All announce at the same time here, the worst case: they are heard one after the other.
            let most = nodes * nodes * (delay + 1);
            assert!(passed <= most, "{passed} too many on {nodes} nodes, heard after {delay}");
            assert!(announced <= 100 * nodes, "{announced} announcements of {nodes} nodes");
        }
    }
}
