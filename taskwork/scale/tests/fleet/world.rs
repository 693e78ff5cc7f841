//! Machines that are slow, refuse, lose answers, and are taken away.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, rngs::SmallRng};
use taskwork_scale::{
    connector::{Key, Machine, MachineId, MachineState, Offer, Refusal},
    fleet::NodeSeen,
};

/// The maximum time until a created machine is listed, in milliseconds.
const LISTED_MS: u64 = 40_000;
/// The maximum delay of a request whose answer was lost, in milliseconds.
const LATE_MS: u64 = 30_000;
/// The time for which a machine that is gone is still listed, in milliseconds.
const GONE_MS: u64 = 60_000;
/// The time for which the node of a machine that was taken away is a member: until its session expires.
const SESSION_MS: u64 = 15_000;
/// Whether faults happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults(bool);

impl Faults {
    pub(crate) const ALL: Self = Self(true);
    pub(crate) const NONE: Self = Self(false);

    /// Returns whether an event of this probability happens, given a number from 0 to 1.
    pub(crate) fn has(self, drawn: f64, probability: f64) -> bool {
        self.0 && drawn < probability
    }
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) rng: SmallRng,
    pub(crate) faults: Faults,
    machines: BTreeMap<MachineId, Simulated>,
    /// All machines that ever existed.
    made: BTreeSet<MachineId>,
    /// The requests by their keys.
    keys: BTreeMap<Key, (String, u32)>,
    /// Delayed requests.
    late: Vec<(u64, Key)>,
    nodes: u64,
    /// Whether a machine ends with its node, as a process does.
    ends_with_node: bool,
    names_machines: bool,
    /// Whether creation times are reported.
    says_times: bool,
}

struct Simulated {
    offer: String,
    key: Key,
    created_ms: u64,
    listed_ms: u64,
    /// When its node joins, if ever.
    joins_ms: Option<u64>,
    node: Option<Node>,
    told: bool,
    /// The number of its nodes that were asked to leave and have rejoined under another name.
    came_back: u32,
    /// When it ends or ended.
    ends_ms: Option<u64>,
    failed: bool,
}

struct Node {
    name: String,
    joined_ms: u64,
    drained_ms: Option<u64>,
    leaves_ms: Option<u64>,
}

pub(crate) fn offers() -> Vec<Offer> {
    serde_json::from_str(
        r#"[{"name": "small", "workers": 1, "max": 20},
            {"name": "large", "workers": 8, "max": 10, "quantum_s": 3600}]"#,
    )
    .unwrap()
}

impl World {
    pub(crate) fn new(mut rng: SmallRng) -> Self {
        let (ends_with_node, names_machines, says_times) = (rng.random(), rng.random(), rng.random());
        Self {
            now_ms: 1_700_000_000_000,
            rng,
            faults: Faults::NONE,
            machines: BTreeMap::new(),
            made: BTreeSet::new(),
            keys: BTreeMap::new(),
            late: Vec::new(),
            nodes: 0,
            ends_with_node,
            names_machines,
            says_times,
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        let drawn = self.rng.random();
        self.faults.has(drawn, probability)
    }

    /// Lets time pass: machines boot, nodes join and leave, machines end or are taken away.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        let (due, later): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|(at, _)| *at <= now_ms);
        self.late = later;
        for (_, key) in due {
            self.make(&key, u32::MAX);
        }
        let ids: Vec<MachineId> = self.machines.keys().cloned().collect();
        for id in ids {
            let is_taken = self.chance(0.002);
            let is_lost = self.chance(0.002);
            let number = self.nodes;
            let ends_with_node = self.ends_with_node;
            let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.is_there(now_ms)) else {
                continue;
            };
            if is_taken {
                machine.ends_ms = Some(now_ms);
                continue;
            }
            if machine.node.is_none() && machine.joins_ms.is_some_and(|at| at <= now_ms) {
                let name = format!("n{number}");
                machine.node = Some(Node { name, joined_ms: now_ms, drained_ms: None, leaves_ms: None });
                machine.joins_ms = None;
                self.nodes += 1;
            }
            let has_left = |node: &Node| node.leaves_ms.is_some_and(|at| at <= now_ms);
            if machine.node.as_ref().is_some_and(has_left) {
                machine.node = None;
                if ends_with_node {
                    machine.ends_ms = Some(now_ms);
                }
            } else if is_lost && let Some(node) = machine.node.take() {
                machine.came_back += u32::from(node.drained_ms.is_some());
                // Its session has expired; it rejoins under another name.
                machine.joins_ms = Some(now_ms + 10_000);
            }
        }
        self.machines.retain(|_, machine| machine.ends_ms.is_none_or(|at| at + GONE_MS > now_ms));
    }

    /// Creates the machines of a request that were not created before, up to a number.
    fn make(&mut self, key: &Key, most: u32) {
        let (offer, count) = self.keys[key].clone();
        for number in 0..count.min(most) {
            let id: MachineId = format!("{key}.{number}").parse().unwrap();
            // The same key gives the same machines, even after they are gone.
            if !self.made.insert(id.clone()) {
                continue;
            }
            let (boot_ms, lag_ms) =
                (self.rng.random_range(1_000..90_000), self.rng.random_range(0..LISTED_MS));
            let (fails, never_joins) = (self.chance(0.05), self.chance(0.03));
            let now_ms = self.now_ms;
            let made = Simulated {
                offer: offer.clone(),
                key: key.clone(),
                created_ms: now_ms,
                listed_ms: now_ms + lag_ms,
                joins_ms: (!fails && !never_joins).then_some(now_ms + boot_ms),
                node: None,
                told: false,
                came_back: 0,
                ends_ms: fails.then_some(now_ms + boot_ms),
                failed: fails,
            };
            self.machines.insert(id, made);
        }
    }

    pub(crate) fn create(&mut self, offer: &str, count: u32, key: &Key) -> Result<Vec<MachineId>, Refusal> {
        let asked = (offer.to_owned(), count);
        let before = self.keys.entry(key.clone()).or_insert_with(|| asked.clone());
        assert_eq!(*before, asked, "one key for two requests");
        if self.chance(0.15) {
            return Err(Refusal::exhausted("a quota"));
        }
        if self.chance(0.05) {
            return Err(Refusal::wrong("a right is missing"));
        }
        if self.chance(0.3) {
            match self.rng.random_range(0..4) {
                0 => {}
                1 => self.make(key, u32::MAX),
                2 => self.make(key, count / 2),
                _ => {
                    let at = self.now_ms + self.rng.random_range(0..LATE_MS);
                    self.late.push((at, key.clone()));
                }
            }
            return Err(Refusal::unknown("no answer"));
        }
        self.make(key, u32::MAX);
        let its = self.machines.iter().filter(|(_, machine)| machine.key == *key);
        let ids: Vec<MachineId> = its.map(|(id, _)| id.clone()).collect();
        Ok(if self.names_machines { ids } else { Vec::new() })
    }

    /// Lists the machines, unless that fails.
    pub(crate) fn list(&mut self) -> Option<Vec<Machine>> {
        if self.chance(0.15) {
            return None;
        }
        // At times, some or all machines with a node are omitted.
        let (is_short, is_empty) = (self.chance(0.05), self.rng.random());
        let mut machines = Vec::new();
        for (id, machine) in &self.machines {
            let is_left_out = is_short && machine.node.is_some() && (is_empty || self.rng.random());
            if machine.listed_ms <= self.now_ms && !is_left_out {
                machines.push(machine.shown(id, self.now_ms, self.says_times));
            }
        }
        Some(machines)
    }

    /// All existing machines, including unlisted ones.
    pub(crate) fn everything(&self) -> Vec<Machine> {
        let there = self.machines.iter().filter(|(_, machine)| machine.is_there(self.now_ms));
        there.map(|(id, machine)| machine.shown(id, self.now_ms, true)).collect()
    }

    pub(crate) fn nodes(&self) -> Vec<NodeSeen> {
        let there = self.machines.iter().filter(|(_, machine)| {
            machine.is_there(self.now_ms) || machine.ends_ms.is_some_and(|at| at + SESSION_MS > self.now_ms)
        });
        let nodes = there.filter_map(|(id, machine)| Some((id, machine.node.as_ref()?)));
        nodes
            .map(|(id, node)| NodeSeen {
                node: node.name.clone(),
                machine: Some(id.clone()),
                offer: Some(self.machines[id].offer.clone()),
                draining: node.drained_ms.is_some(),
                workers: 1,
                ..NodeSeen::default()
            })
            .collect()
    }

    /// Asks a node to leave; `None` on failure.
    pub(crate) fn drain(&mut self, name: &str) -> Option<()> {
        if self.chance(0.1) {
            return None;
        }
        let (never, ms) = (self.chance(0.05), self.rng.random_range(1_000..20_000));
        let now_ms = self.now_ms;
        let nodes = self.machines.values_mut().filter_map(|machine| machine.node.as_mut());
        let node = nodes.into_iter().find(|node| node.name == name)?;
        node.drained_ms.get_or_insert(now_ms);
        node.leaves_ms = (!never).then_some(now_ms + ms);
        Some(())
    }

    /// Terminates machines. None of them may have a node, unless it was asked to leave long before, or has joined
    /// after the decision. `decided_ms` returns the time of the decision for each machine.
    pub(crate) fn terminate(
        &mut self,
        ids: &[MachineId],
        decided_ms: impl Fn(&MachineId) -> u64,
        drain_ms: u64,
    ) -> Result<(), Refusal> {
        for id in ids {
            if self.chance(0.1) {
                return Err(Refusal::unknown("no answer"));
            }
            let (now_ms, ms) = (self.now_ms, self.rng.random_range(0..20_000));
            let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.is_there(now_ms)) else {
                continue;
            };
            if let Some(node) = &machine.node {
                let has_joined_after = node.joined_ms >= decided_ms(id);
                let was_drained = node.drained_ms.is_some_and(|at| at + drain_ms <= now_ms);
                assert!(
                    has_joined_after || was_drained || machine.told || machine.came_back > 1,
                    "{id} is ended with its node at work"
                );
            }
            if !machine.told {
                (machine.told, machine.ends_ms) = (true, Some(now_ms + ms));
            }
        }
        Ok(())
    }

    /// The machines whose termination was requested.
    pub(crate) fn told(&self) -> impl Iterator<Item = &str> {
        self.machines.iter().filter(|(_, machine)| machine.told).map(|(id, _)| id.as_str())
    }

    /// The number of machines of each offer with a node that does not leave.
    pub(crate) fn joined(&self) -> BTreeMap<String, u32> {
        let mut joined = BTreeMap::new();
        let there = self.machines.values().filter(|machine| machine.is_there(self.now_ms) && !machine.told);
        for machine in
            there.filter(|machine| machine.node.as_ref().is_some_and(|node| node.drained_ms.is_none()))
        {
            *joined.entry(machine.offer.clone()).or_default() += 1;
        }
        joined
    }

    /// The number of machines that ever existed.
    pub(crate) fn made(&self) -> usize {
        self.made.len()
    }

    pub(crate) fn alive(&self) -> usize {
        self.everything().len()
    }
}

impl Simulated {
    fn is_there(&self, now_ms: u64) -> bool {
        self.ends_ms.is_none_or(|at| at > now_ms)
    }

    fn shown(&self, id: &MachineId, now_ms: u64, says_time: bool) -> Machine {
        let state = match self.ends_ms {
            Some(at) if at <= now_ms && self.failed => MachineState::Failed("it did not boot".to_owned()),
            Some(at) if at <= now_ms => MachineState::Gone,
            Some(_) if self.told => MachineState::Ending,
            _ if now_ms < self.created_ms + 5_000 => MachineState::Requested,
            _ => MachineState::Running,
        };
        let (offer, key) = (self.offer.clone(), Some(self.key.clone()));
        Machine { id: id.clone(), offer, state, key, created_ms: says_time.then_some(self.created_ms) }
    }
}
