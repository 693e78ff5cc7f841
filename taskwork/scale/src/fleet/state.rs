//! The persistent state of a fleet: small enough to be written before each action, and sufficient for another
//! controller to continue.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    connector::{Key, MachineId},
    policy::AHEAD_MAX_MS,
};

/// The persistent state of a fleet.
///
/// Working machines are not in it: the connector lists them, and their nodes are members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The prefix of all keys. A new state has another prefix, so keys never repeat.
    pub(super) tag: String,
    /// The number of the next key.
    pub(super) next: u64,
    /// Requests with missing machines.
    #[serde(default)]
    pub(super) requests: BTreeMap<Key, Request>,
    /// Machines without a node, and leaving machines.
    #[serde(default)]
    pub(super) machines: BTreeMap<MachineId, Phase>,
    /// Recent failures of offers, by their names.
    #[serde(default)]
    pub(super) troubles: BTreeMap<String, Trouble>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) offer: String,
    pub(super) count: u32,
    pub(super) asked_ms: u64,
    pub(super) answered_ms: Option<u64>,
    /// The machines in the answer.
    #[serde(default)]
    pub(super) named: BTreeSet<MachineId>,
    /// The number of calls to the connector, and the time of the last one.
    pub(super) tries: u32,
    pub(super) last_ms: u64,
}

/// The state of a machine that does no work or is to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// No member runs on it.
    Lonely {
        since_ms: u64,
        /// Whether it had a member before.
        had_node: bool,
        offer: String,
    },
    /// Its nodes were asked to leave, or will be in this round.
    Draining {
        /// The time of the last request.
        since_ms: u64,
        nodes: BTreeSet<String>,
        /// Whether they are successors of nodes that were asked before: a node that has lost its session rejoins
        /// under another name, and some machines restart their node.
        again: bool,
    },
    /// The connector was asked to terminate it, or will be in this round.
    Ending { since_ms: u64, told_ms: u64 },
}

/// Failures of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The number of consecutive failures.
    pub failures: u32,
    /// The end of the pause, in milliseconds since 1970.
    pub until_ms: u64,
    /// The last failure.
    pub why: String,
}

/// The maximum length of a stored error message, in characters.
const WHY_CHARS_MAX: usize = 300;
/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE_MS: u64 = 15_000;
/// The maximum pause after failures.
const LONGEST_PAUSE_MS: u64 = 600_000;
/// The pause before an unanswered request is repeated. It doubles each time.
const FIRST_RETRY_MS: u64 = 5_000;
const LONGEST_RETRY_MS: u64 = 60_000;

impl State {
    /// Creates the state of a new fleet. The tag has 1 to 16 lowercase letters and digits, and no other fleet of this
    /// connector has ever used it.
    pub fn new(tag: &str) -> Self {
        Self {
            tag: tag.to_owned(),
            next: 0,
            requests: BTreeMap::new(),
            machines: BTreeMap::new(),
            troubles: BTreeMap::new(),
        }
    }

    pub(super) fn new_key(&mut self) -> Option<Key> {
        let key = format!("{}-{}", self.tag, self.next).parse().ok()?;
        self.next = self.next.checked_add(1)?;
        Some(key)
    }

    /// Records a failure to get machines of an offer.
    pub(super) fn record_failure(&mut self, offer: &str, now_ms: u64, why: &str) {
        let failures = self.troubles.get(offer).map_or(0, |trouble| trouble.failures).saturating_add(1);
        let doubled = 1_u64 << (failures - 1).min(10);
        let pause_ms = (FIRST_PAUSE_MS * doubled).min(LONGEST_PAUSE_MS);
        let why = why.chars().take(WHY_CHARS_MAX).collect();
        self.troubles
            .insert(offer.to_owned(), Trouble { failures, until_ms: now_ms.saturating_add(pause_ms), why });
    }

    /// Moves times in the future back to now. An earlier controller may have had a clock that was ahead; its entries
    /// would be due too late.
    pub(super) fn clamp_to_now(&mut self, now_ms: u64) {
        let back = |at_ms: &mut u64, most_ms: u64| {
            if *at_ms > now_ms.saturating_add(most_ms) {
                *at_ms = now_ms.saturating_add(most_ms - AHEAD_MAX_MS);
            }
        };
        for request in self.requests.values_mut() {
            back(&mut request.asked_ms, AHEAD_MAX_MS);
            back(&mut request.last_ms, AHEAD_MAX_MS);
            request.answered_ms.iter_mut().for_each(|at_ms| back(at_ms, AHEAD_MAX_MS));
        }
        for phase in self.machines.values_mut() {
            let (since_ms, told_ms) = match phase {
                Phase::Lonely { since_ms, .. } | Phase::Draining { since_ms, .. } => (since_ms, None),
                Phase::Ending { since_ms, told_ms } => (since_ms, Some(told_ms)),
            };
            back(since_ms, AHEAD_MAX_MS);
            if let Some(told_ms) = told_ms {
                back(told_ms, AHEAD_MAX_MS);
            }
        }
        for trouble in self.troubles.values_mut() {
            back(&mut trouble.until_ms, LONGEST_PAUSE_MS + AHEAD_MAX_MS);
        }
    }

    /// Postpones the time limits of waiting machines.
    pub(super) fn postpone(&mut self, by_ms: u64) {
        for phase in self.machines.values_mut() {
            if let Phase::Lonely { since_ms, .. } | Phase::Draining { since_ms, .. } = phase {
                *since_ms = since_ms.saturating_add(by_ms);
            }
        }
    }

    /// Returns the recent failures of offers.
    pub fn troubles(&self) -> &BTreeMap<String, Trouble> {
        &self.troubles
    }

    /// Returns whether an offer is paused.
    pub fn is_blocked(&self, offer: &str, now_ms: u64) -> bool {
        self.troubles.get(offer).is_some_and(|trouble| now_ms < trouble.until_ms)
    }
}

impl Request {
    /// Returns whether the request is due to be sent again.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let pause_ms = (FIRST_RETRY_MS << self.tries.saturating_sub(1).min(4)).min(LONGEST_RETRY_MS);
        self.answered_ms.is_none() && now_ms.saturating_sub(self.last_ms) >= pause_ms
    }

    /// Returns the number of machines that are still missing if this many are listed.
    pub(super) fn outstanding(&self, listed: u32) -> u32 {
        self.count.saturating_sub(listed)
    }
}
