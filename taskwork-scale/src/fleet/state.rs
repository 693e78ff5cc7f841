//! What a controller remembers: little enough to be written before each of its acts, and enough that another
//! controller goes on from it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    connector::{Key, MachineId},
    policy::AHEAD_MAX_MS,
};

/// What is remembered of a fleet.
///
/// Machines that do their work are not in it: the connector lists them, and their nodes are members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The beginning of all keys, so that keys made after this state was lost differ from those before.
    pub(super) tag: String,
    /// The number of the next key.
    pub(super) next: u64,
    /// Requests whose machines are not all there yet.
    #[serde(default)]
    pub(super) requests: BTreeMap<Key, Request>,
    /// Machines that are without a node, or on their way out.
    #[serde(default)]
    pub(super) machines: BTreeMap<MachineId, Phase>,
    /// Offers whose machines could not be had, by their names.
    #[serde(default)]
    pub(super) troubles: BTreeMap<String, Trouble>,
}

/// A request for machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) offer: String,
    pub(super) count: u32,
    /// When it was made.
    pub(super) asked_ms: u64,
    /// When the connector has said that it is done.
    pub(super) answered_ms: Option<u64>,
    /// The machines that it has named then.
    #[serde(default)]
    pub(super) named: BTreeSet<MachineId>,
    /// How often the connector was asked, and when the last time.
    pub(super) tries: u32,
    pub(super) last_ms: u64,
}

/// A machine that does no work, or shall not do it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// No member runs on it.
    Lonely {
        since_ms: u64,
        /// Whether one did before.
        had_node: bool,
        offer: String,
    },
    /// Its nodes were asked to leave, or are about to be.
    Draining {
        /// When they were asked the last time.
        since_ms: u64,
        nodes: BTreeSet<String>,
        /// Whether they have taken the place of others that were asked before: a node that has lost its session comes
        /// back under another name, and some machines start their node again.
        again: bool,
    },
    /// The connector was asked to end it, or is about to be.
    Ending { since_ms: u64, told_ms: u64 },
}

/// An offer whose machines could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The number of failures in a row.
    pub failures: u32,
    /// Until when no more of them are asked for, in milliseconds since 1970.
    pub until_ms: u64,
    /// What the last failure was.
    pub why: String,
}

/// The longest text of a failure that is remembered, in characters.
const WHY_CHARS_MAX: usize = 300;
/// The pause after the first failure; each further one doubles it.
const FIRST_PAUSE_MS: u64 = 15_000;
/// The longest pause after failures.
const LONGEST_PAUSE_MS: u64 = 600_000;
/// The pause before a request without an answer is repeated; each further one doubles it.
const FIRST_RETRY_MS: u64 = 5_000;
/// The longest such pause.
const LONGEST_RETRY_MS: u64 = 60_000;

impl State {
    /// Creates the state of a fleet that has not asked for anything. The tag is 1 to 16 lowercase letters and
    /// digits, and no other fleet of this connector has ever had it.
    pub fn new(tag: &str) -> Self {
        Self {
            tag: tag.to_owned(),
            next: 0,
            requests: BTreeMap::new(),
            machines: BTreeMap::new(),
            troubles: BTreeMap::new(),
        }
    }

    /// Makes a key that was never used.
    pub(super) fn new_key(&mut self) -> Option<Key> {
        let key = format!("{}-{}", self.tag, self.next).parse().ok()?;
        self.next = self.next.checked_add(1)?;
        Some(key)
    }

    /// Notes that machines of an offer could not be had.
    pub(super) fn fails(&mut self, offer: &str, now_ms: u64, why: &str) {
        let failures = self.troubles.get(offer).map_or(0, |trouble| trouble.failures).saturating_add(1);
        let doubled = 1_u64 << (failures - 1).min(10);
        let pause_ms = (FIRST_PAUSE_MS * doubled).min(LONGEST_PAUSE_MS);
        let why = why.chars().take(WHY_CHARS_MAX).collect();
        self.troubles
            .insert(offer.to_owned(), Trouble { failures, until_ms: now_ms.saturating_add(pause_ms), why });
    }

    /// Brings times that lie ahead back to now. A controller before may have had a clock that is ahead of this one, and
    /// what it has noted would not be due for as long as that.
    pub(super) fn come_back(&mut self, now_ms: u64) {
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

    /// Lets machines begin to wait so much later.
    pub(super) fn leapt(&mut self, by_ms: u64) {
        for phase in self.machines.values_mut() {
            if let Phase::Lonely { since_ms, .. } | Phase::Draining { since_ms, .. } = phase {
                *since_ms = since_ms.saturating_add(by_ms);
            }
        }
    }

    /// Returns the offers whose machines could not be had lately.
    pub fn troubles(&self) -> &BTreeMap<String, Trouble> {
        &self.troubles
    }

    /// Returns whether no machines of an offer are asked for at present.
    pub fn is_blocked(&self, offer: &str, now_ms: u64) -> bool {
        self.troubles.get(offer).is_some_and(|trouble| now_ms < trouble.until_ms)
    }
}

impl Request {
    /// Returns whether the connector is to be asked again.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let pause_ms = (FIRST_RETRY_MS << self.tries.saturating_sub(1).min(4)).min(LONGEST_RETRY_MS);
        self.answered_ms.is_none() && now_ms.saturating_sub(self.last_ms) >= pause_ms
    }

    /// Returns how many of its machines are still to appear, if so many of them are listed.
    pub(super) fn outstanding(&self, listed: u32) -> u32 {
        self.count.saturating_sub(listed)
    }
}
