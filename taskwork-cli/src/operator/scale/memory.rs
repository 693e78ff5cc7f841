//! What a controller remembers, and what it says to people: two znodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taskwork_scale::{
    fleet::State,
    policy::{Candidate, Goals, Observation, Policy},
};

/// The format that is written, and the newest that can be read.
const FORMAT: u32 = 1;
/// The number of decisions that are kept for people.
pub(super) const DECISIONS_MAX: usize = 50;
/// The number of machines up to which the last observation is kept for `taskwork whatif`.
const MACHINES_SHOWN_MAX: usize = 500;

/// What a controller goes on from.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::operator) struct Memory {
    format: u32,
    pub(super) fleet: State,
    pub(super) policy: Policy,
}

/// The same as it is written, without a copy.
#[derive(Serialize)]
struct MemoryRef<'a> {
    format: u32,
    fleet: &'a State,
    policy: &'a Policy,
}

/// What a controller says to people.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::operator) struct Said {
    /// When it was said, in milliseconds since 1970.
    pub(in crate::operator) at_ms: u64,
    pub(super) goals: Goals,
    pub(in crate::operator) currency: Option<String>,
    /// How many machines there are in each standing.
    pub(super) machines: BTreeMap<String, u32>,
    pub(super) wanted: u32,
    pub(super) reason: String,
    pub(in crate::operator) table: Vec<Candidate>,
    pub(super) spent: Option<f64>,
    /// Offers that are left alone at present, with the reasons.
    pub(super) troubles: BTreeMap<String, String>,
    /// The last observation, unless that is too large.
    pub(in crate::operator) observation: Option<Observation>,
    /// The last decisions that differed from those before, the newest first.
    pub(super) decisions: Vec<Past>,
}

/// A decision that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Past {
    pub(super) at_ms: u64,
    pub(super) wanted: u32,
    pub(super) reason: String,
}

impl Memory {
    /// Creates the memory of a controller that has done nothing yet.
    pub(super) fn new(tag: &str, goals: Goals) -> Self {
        Self { format: FORMAT, fleet: State::new(tag), policy: Policy::new(goals) }
    }

    /// Reads what another controller has written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::operator) fn read(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let garbled = |error: serde_json::Error| {
            format!("what the last controller has written cannot be read: {error}")
        };
        let Format { format } = serde_json::from_slice(text).map_err(garbled)?;
        if format > FORMAT {
            return Err(format!(
                "what the last controller has written has format {format}; this one reads up to {FORMAT}: update it"
            ));
        }
        serde_json::from_slice(text).map_err(garbled)
    }

    pub(in crate::operator) fn policy(self) -> Policy {
        self.policy
    }
}

/// Returns what is to be written of a fleet and a policy.
pub(super) fn written(fleet: &State, policy: &Policy) -> Vec<u8> {
    serde_json::to_vec(&MemoryRef { format: FORMAT, fleet, policy }).expect("plain data")
}

impl Said {
    /// Reads what a controller has said; empty if it has said nothing that can be read.
    pub(in crate::operator) fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Adds a decision, if it is another one than the last.
    ///
    /// Returns whether it is.
    pub(super) fn decided(&mut self, at_ms: u64, wanted: u32, reason: &str) -> bool {
        (self.at_ms, self.wanted) = (at_ms, wanted);
        reason.clone_into(&mut self.reason);
        let is_new = self.decisions.first().is_none_or(|last| last.wanted != wanted);
        if is_new {
            self.decisions.insert(0, Past { at_ms, wanted, reason: reason.to_owned() });
            self.decisions.truncate(DECISIONS_MAX);
        }
        is_new
    }

    pub(super) fn observed(&mut self, observation: Observation) {
        self.observation = (observation.machines.len() <= MACHINES_SHOWN_MAX).then_some(observation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_newer_or_garbage_is_refused() {
        let memory = Memory::new("abc", Goals { max: 7, ..Goals::default() });
        let read = Memory::read(&written(&memory.fleet, &memory.policy)).unwrap();
        assert_eq!((read.fleet, read.policy), (memory.fleet, memory.policy));
        for (text, part) in [("", "cannot be read"), ("{}", "format"), (r#"{"format": 2}"#, "update it")] {
            let refused = Memory::read(text.as_bytes()).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn decisions_are_kept_as_long_as_they_differ_and_not_for_ever() {
        let mut said = Said::default();
        assert!(said.decided(1, 3, "a job runs"));
        assert!(!said.decided(2, 3, "still"));
        assert_eq!((said.reason.as_str(), said.at_ms, said.decisions.len()), ("still", 2, 1));
        for wanted in 0..100 {
            said.decided(3, wanted, "more");
        }
        assert_eq!((said.decisions.len(), said.decisions[0].wanted), (DECISIONS_MAX, 99));
        assert_eq!(Said::read(&said.write()).decisions, said.decisions);
        assert_eq!(Said::read(b"garbage").decisions, []);
    }
}
