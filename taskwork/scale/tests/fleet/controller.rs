//! A controller that may be killed between any two of its steps.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng as _;
use taskwork_scale::{
    connector::{Machine, MachineId},
    fleet::{Action, Fleet, Limits, NodeSeen, Round, Standing, State},
};

use crate::world::{World, offers};

/// The controller, and the state it has written.
#[derive(Debug)]
pub(crate) struct Controller {
    written: String,
    /// The machines at the time of that state, as the policy knows them.
    known: BTreeSet<MachineId>,
    fleet: Option<Fleet>,
    pub(crate) killed: u64,
}

/// The input of a round.
struct Seen {
    machines: Vec<Machine>,
    missed: Vec<Machine>,
    nodes: Vec<NodeSeen>,
}

impl Controller {
    pub(crate) fn new() -> Self {
        Self {
            written: serde_json::to_string(&State::new("t")).unwrap(),
            known: BTreeSet::new(),
            fleet: None,
            killed: 0,
        }
    }

    /// The fleet of a controller that takes over.
    fn taken_over(&self) -> Fleet {
        Fleet::new(offers(), Limits::default(), serde_json::from_str(&self.written).unwrap())
    }

    /// Performs one round.
    pub(crate) fn round(&mut self, world: &mut World, wanted: &BTreeMap<String, u32>) {
        // Without a list nothing is done.
        let Some(machines) = world.list() else { return };
        let mut fleet = self.fleet.take().unwrap_or_else(|| self.taken_over());
        let nodes = world.nodes();
        let missed = fleet.missed(&machines, &nodes, |id| self.known.contains(id));
        let seen = Seen { machines, missed, nodes };
        let planned = fleet.plan(&round(world.now_ms, wanted, &seen));
        if self.is_killed(world) {
            return;
        }
        if world.faults.has(world.rng.random(), 0.05) {
            // The state was not written, so nothing is done, and the controller reads it again.
            return;
        }
        self.written = serde_json::to_string(fleet.state()).unwrap();
        let there = seen.machines.iter().chain(&seen.missed).filter(|machine| !machine.state.is_over());
        self.known = there.map(|machine| machine.id.clone()).collect();
        for action in planned {
            if self.is_killed(world) {
                return;
            }
            match action {
                Action::Create { offer, count, key } => {
                    let answer = world.create(&offer, count, &key);
                    if self.is_killed(world) {
                        return;
                    }
                    fleet.created(world.now_ms, &key, &answer);
                }
                Action::Drain { node, .. } => {
                    if world.drain(&node).is_none() {
                        fleet.not_asked(&node);
                    }
                }
                Action::Terminate { machines } => {
                    let state: serde_json::Value = serde_json::from_str(&self.written).unwrap();
                    let decided_ms = |id: &MachineId| {
                        state["machines"][id.as_str()]["ending"]["since_ms"].as_u64().unwrap()
                    };
                    if world.terminate(&machines, decided_ms, Limits::default().drain_ms).is_err() {
                        fleet.not_ended(&machines);
                    }
                }
            }
        }
        self.fleet = Some(fleet);
    }

    fn is_killed(&mut self, world: &mut World) -> bool {
        let is_killed = world.faults.has(world.rng.random(), 0.04);
        self.killed += u64::from(is_killed);
        is_killed
    }

    /// The existing machines of each offer that were not chosen to leave, including unlisted ones.
    pub(crate) fn staying(&self, world: &World) -> BTreeMap<String, u32> {
        let seen = Seen { machines: world.everything(), missed: Vec::new(), nodes: world.nodes() };
        let told: BTreeSet<&str> = world.told().collect();
        let mut there = BTreeMap::new();
        for machine in self.taken_over().machines(&round(world.now_ms, &BTreeMap::new(), &seen)) {
            let is_real = seen.machines.iter().any(|real| real.id.as_str() == machine.id);
            let leaves = matches!(machine.standing, Standing::Draining | Standing::Ending);
            if is_real && !leaves && !told.contains(machine.id.as_str()) {
                *there.entry(machine.offer).or_default() += 1;
            }
        }
        there
    }

    /// Returns whether its state has no request and no machine.
    pub(crate) fn has_forgotten_all(&self) -> bool {
        let state: serde_json::Value = serde_json::from_str(&self.written).unwrap();
        ["requests", "machines"].iter().all(|name| state[name].as_object().unwrap().is_empty())
    }
}

fn round<'a>(now_ms: u64, wanted: &'a BTreeMap<String, u32>, seen: &'a Seen) -> Round<'a> {
    Round {
        now_ms,
        wanted,
        leave: &[],
        machines: &seen.machines,
        missed: &seen.missed,
        nodes: &seen.nodes,
        knows_all_nodes: true,
    }
}
