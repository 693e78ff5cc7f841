//! The display of machines.

use serde::{Deserialize, Serialize};

use super::{Fleet, Round, state::Phase, stock::Stock};
use crate::connector::{Machine, MachineState};

/// The progress of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Standing {
    /// It was requested, and does not exist yet.
    Requested,
    /// It runs, and its node has not joined yet.
    Booting,
    /// Its node is a member, and has no task.
    Joined,
    /// Its node has a task.
    Working,
    /// Its node was asked to leave.
    Draining,
    /// It is being terminated.
    Ending,
}

/// A machine as it is displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNow {
    /// Its id; as long as it has none, the key of its request with a number.
    pub id: String,
    /// The name of its offer.
    pub offer: String,
    /// Its progress.
    pub standing: Standing,
    /// Whether the connector lists it; otherwise it was only requested.
    pub is_listed: bool,
    /// When it was created or requested, in milliseconds since 1970, if known.
    pub since_ms: Option<u64>,
    /// The names of its nodes.
    pub nodes: Vec<String>,
    /// The workers of its nodes.
    pub workers: u32,
    /// Whether one of them leads a job.
    pub leads: bool,
    /// Their zone.
    pub zone: Option<String>,
}

impl Standing {
    /// Returns the name of the state.
    pub fn text(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Booting => "booting",
            Self::Joined => "joined",
            Self::Working => "working",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

impl Fleet {
    /// Returns the existing and requested machines. `wanted` and `leave` of the round are not used.
    pub fn machines(&self, round: &Round<'_>) -> Vec<MachineNow> {
        let stock = Stock::of(self, round);
        let mut machines: Vec<MachineNow> =
            stock.alive.values().map(|machine| self.shown(machine, &stock)).collect();
        for (key, request) in &self.state.requests {
            let listed = stock.listed.get(key).copied().unwrap_or(0);
            machines.extend((listed..request.count).map(|number| MachineNow {
                id: format!("{key}/{number}"),
                offer: request.offer.clone(),
                standing: Standing::Requested,
                is_listed: false,
                since_ms: Some(request.asked_ms),
                nodes: Vec::new(),
                workers: 0,
                leads: false,
                zone: None,
            }));
        }
        machines
    }

    /// Returns the time of a machine's open request.
    fn asked_ms(&self, machine: &Machine) -> Option<u64> {
        let by_key = machine.key.as_ref().and_then(|key| self.state.requests.get(key));
        let by_name = || self.state.requests.values().find(|request| request.named.contains(&machine.id));
        by_key.or_else(by_name).map(|request| request.asked_ms)
    }

    fn shown(&self, machine: &Machine, stock: &Stock<'_>) -> MachineNow {
        let nodes = stock.nodes_on(&machine.id);
        let standing = match self.state.machines.get(&machine.id) {
            Some(Phase::Ending { .. }) => Standing::Ending,
            Some(Phase::Draining { .. }) => Standing::Draining,
            _ if machine.state == MachineState::Ending => Standing::Ending,
            _ if stock.leaves_anyway(&machine.id) => Standing::Draining,
            _ if nodes.iter().any(|node| node.working) => Standing::Working,
            _ if !nodes.is_empty() => Standing::Joined,
            _ if machine.state == MachineState::Requested => Standing::Requested,
            _ => Standing::Booting,
        };
        MachineNow {
            id: machine.id.to_string(),
            offer: machine.offer.clone(),
            standing,
            is_listed: true,
            since_ms: machine.created_ms.or_else(|| self.asked_ms(machine)),
            nodes: nodes.iter().map(|node| node.node.clone()).collect(),
            workers: nodes.iter().map(|node| node.workers).sum(),
            leads: nodes.iter().any(|node| node.leads),
            zone: nodes.iter().find_map(|node| node.zone.clone()),
        }
    }
}
