//! The state of a controller, and its report for operators: the content of two znodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taskwork_scale::{
    fleet::State,
    policy::{Candidate, Goals, JobUnserved, Observation, Policy},
};

use super::demand::Newest;

/// The format that is written, and the newest that can be read.
const FORMAT: u32 = 2;
/// The number of decisions kept in the report.
pub(super) const DECISIONS_MAX: usize = 50;
/// The maximum number of machines with which the last observation is kept for `taskwork whatif`.
const MACHINES_SHOWN_MAX: usize = 500;
/// The number of jobs without an offer that are named.
pub(super) const UNSERVED_SHOWN_MAX: usize = 20;
/// The maximum number of machines of a controller: their state fits into one request to ZooKeeper for all possible
/// names and states.
pub(super) const MACHINES_MAX: u32 = 2_000;

/// The state from which a controller continues.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    format: u32,
    pub(super) fleet: State,
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) newest: Newest,
}

/// Serializes a [`Memory`] without copying it.
#[derive(Serialize)]
struct MemoryRef<'a> {
    format: u32,
    fleet: &'a State,
    policy: &'a Policy,
    newest: &'a Newest,
}

/// The report of a controller for operators.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Said {
    /// The time of the report, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(super) goals: Goals,
    pub(crate) currency: Option<String>,
    /// The number of machines by standing.
    pub(crate) machines: BTreeMap<String, u32>,
    pub(crate) wanted: u32,
    pub(super) reason: String,
    pub(crate) table: Vec<Candidate>,
    pub(crate) spent: Option<f64>,
    pub(super) spent_since_ms: Option<u64>,
    /// Offers that are suspended at present, with the reasons.
    pub(super) troubles: BTreeMap<String, String>,
    /// The first of the jobs that no offer can serve.
    pub(super) unserved: Vec<JobUnserved>,
    /// The last observation, unless it is too large.
    pub(crate) observation: Option<Observation>,
    /// The last decisions that changed the number of machines, the newest first.
    pub(super) decisions: Vec<Past>,
}

/// A past decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Past {
    pub(super) at_ms: u64,
    pub(super) wanted: u32,
    pub(super) reason: String,
}

impl Memory {
    /// Creates the state of a new controller.
    pub(super) fn new(tag: &str, goals: Goals) -> Self {
        Self { format: FORMAT, fleet: State::new(tag), policy: Policy::new(goals), newest: Newest::new() }
    }

    /// Parses the state that another controller wrote.
    ///
    /// # Errors
    /// If the text is no such state, or its format is newer.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let garbled = |error: serde_json::Error| {
            format!("the state written by the last controller cannot be read: {error}")
        };
        let Format { format } = serde_json::from_slice(text).map_err(garbled)?;
        if format > FORMAT {
            return Err(format!(
                "the state written by the last controller has format {format}; this one reads up to {FORMAT}: update it"
            ));
        }
        serde_json::from_slice(text).map_err(garbled)
    }

    pub(crate) fn policy(self) -> Policy {
        self.policy
    }
}

/// Encodes a [`Memory`].
pub(super) fn written(fleet: &State, policy: &Policy, newest: &Newest) -> Vec<u8> {
    serde_json::to_vec(&MemoryRef { format: FORMAT, fleet, policy, newest }).expect("plain data")
}

impl Said {
    /// Parses the report of a controller; empty if it cannot be parsed.
    pub(crate) fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Records a decision. Returns whether it changed the number of machines.
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

    /// Keeps only the last decision and its reason.
    pub(super) fn shorten(&mut self) {
        self.observation = None;
        self.table.clear();
        self.decisions.truncate(1);
    }

    pub(super) fn observed(&mut self, mut observation: Observation) {
        observation.unserved.truncate(UNSERVED_SHOWN_MAX);
        self.unserved = std::mem::take(&mut observation.unserved);
        self.observation = (observation.machines.len() <= MACHINES_SHOWN_MAX).then_some(observation);
    }
}

#[cfg(test)]
mod tests {
    use taskwork::client::scaling::SCALING_BYTES_MAX;
    use taskwork_scale::{
        connector::{Machine, MachineId, Offer},
        fleet::{Action, Fleet, Limits, Round},
    };

    use super::{
        super::{
            demand::Demand,
            observed::{self, Scope},
        },
        *,
    };

    #[test]
    fn newer_or_garbled_memory_is_refused() {
        let memory = Memory::new("abc", Goals { max: 7, ..Goals::default() });
        let read = Memory::read(&written(&memory.fleet, &memory.policy, &memory.newest)).unwrap();
        assert_eq!((read.fleet, read.policy), (memory.fleet, memory.policy));
        for (text, part) in [("", "cannot be read"), ("{}", "format"), (r#"{"format": 3}"#, "update it")] {
            let refused = Memory::read(text.as_bytes()).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    /// All machines start at once, with names of the maximum length.
    #[test]
    fn memory_of_maximum_machines_fits_into_request() {
        let offers: Vec<Offer> = serde_json::from_value(serde_json::json!(
            [{"name": "o".repeat(40), "workers": 64, "max": MACHINES_MAX, "price_per_hour": 1.5}]
        ))
        .unwrap();
        let offer = &offers[0].name;
        let Memory { fleet, mut policy, .. } =
            Memory::new("0123456789abcdef", Goals { max: MACHINES_MAX, ..Goals::default() });
        let mut fleet = Fleet::new(offers.clone(), Limits::default(), fleet);
        let wanted = BTreeMap::from([(offer.clone(), MACHINES_MAX)]);
        let now_ms = 1_800_000_000_000;
        let round = |now_ms, machines| Round {
            now_ms,
            wanted: &wanted,
            leave: &[],
            machines,
            missed: &[],
            nodes: &[],
            knows_all_nodes: true,
        };
        let actions = fleet.plan(&round(now_ms, &[]));
        let Action::Create { key, .. } = &actions[0] else { panic!("{actions:?}") };
        let id = |number| format!("{number:063}").parse::<MachineId>().unwrap();
        fleet.created(now_ms, key, &Ok((0..MACHINES_MAX).map(id).collect()));
        // One machine is not listed, so that the request stays open.
        let machine = |number| Machine {
            id: id(number),
            offer: offer.clone(),
            state: taskwork_scale::connector::MachineState::Running,
            key: None,
            created_ms: None,
        };
        let machines: Vec<Machine> = (1..MACHINES_MAX).map(machine).collect();
        fleet.plan(&round(now_ms + 5_000, &machines));
        let shown = fleet.machines(&round(now_ms + 5_000, &machines));
        let mut snapshot = taskwork::view::View::default().snapshot();
        snapshot.cluster.at_ms = now_ms + 5_000;
        let mut observation = observed::observation(
            &snapshot,
            &Scope::default(),
            &Demand::default(),
            &shown,
            (&offers, None),
            fleet.state(),
        );
        observation.waiting_jobs = 1;
        let decision = policy.decide(&observation);
        let mut said = Said { table: decision.table, ..Said::default() };
        for wanted in 0..100 {
            said.decided(now_ms, wanted, &decision.reason);
        }
        said.observed(observation);
        let size = written(fleet.state(), &policy, &Newest::new()).len() + said.write().len();
        assert!(size < SCALING_BYTES_MAX, "{size} of {SCALING_BYTES_MAX} bytes");
        assert!(size > SCALING_BYTES_MAX / 2, "{size} bytes: there is room for more machines");
    }

    #[test]
    fn decisions_are_kept_if_they_differ_up_to_limit() {
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
