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

/// Why a search has ended before the whole tree was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Halt {
    /// A solution is as good as the target.
    Target,
    /// The allowed number of states was visited.
    States,
    /// The time was up.
    Time,
}

/// The variable that holds what the search has spent so far.
#[derive(Debug)]
pub(crate) struct Spending;

/// What a search has spent.
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

    /// Of two values announced at the same time one is lost; its node announces a larger one next time.
    fn improves(new: &Spent, old: &Spent) -> bool {
        let held = |spent: &Spent| spent.searched_ms.saturating_add(spent.sum());
        held(new) > held(old)
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

/// The number of parts of the time limit after each of which a node announces the time passed. The last
/// announcement may be lost with the attempt, or when a job is suspended.
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

    /// Takes into account what all nodes have spent.
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

    /// Returns what to announce to the others, if it is time.
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
        let said = self.spent.states.get(&node).copied().unwrap_or(0);
        let left = states_max.saturating_sub(self.spent.sum());
        let nodes = self.spent.states.len() as u64 + 1;
        here.saturating_sub(said) > left / (2 * nodes)
    }

    fn says_time(&self, searched: Duration) -> bool {
        let step = self.time_limit.map(|limit| (limit / TIME_PARTS).max(SAY_TIME_EVERY));
        step.is_some_and(|step| searched >= Duration::from_millis(self.spent.searched_ms) + step)
    }

    /// Returns the number of states that one of several workers may visit before it checks again.
    pub(crate) fn states_ahead(&self, node: NodeId, here: u64) -> u64 {
        let left = self.states_max.map_or(u64::MAX, |max| max.saturating_sub(self.states(node, here)));
        (left / 16).max(1)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        self.stopwatch.end(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn limits(limit: Duration, now: Instant) -> (Arc<Stopwatch>, Limits) {
        let stopwatch = Arc::new(Stopwatch::default());
        let limit_ms = u64::try_from(limit.as_millis()).unwrap();
        let limits = Limits::new(Some(limit_ms), None, &stopwatch, now).unwrap();
        (stopwatch, limits)
    }

    #[test]
    fn only_time_in_which_somebody_searches_counts() {
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
    fn a_node_goes_on_from_the_most_that_it_has_heard_of_whatever_its_clock_says() {
        let (start, limit) = (Instant::now(), Duration::from_secs(60));
        let (_stopwatch, mut newcomer) = limits(limit, start);
        newcomer.hear(&Spent { searched_ms: 50_000, states: BTreeMap::new() }, start);
        assert_eq!(newcomer.halts(NODE, 1, start + Duration::from_secs(9)), None);
        assert_eq!(newcomer.halts(NODE, 1, start + Duration::from_secs(10)), Some(Halt::Time));
    }

    #[test]
    fn time_is_said_now_and_then_and_says_more_than_what_was_known() {
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
}
