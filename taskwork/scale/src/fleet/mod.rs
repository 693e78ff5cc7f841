//! A fleet: the machines requested by a controller, from the request to their end.
//!
//! ```text
//!   requested ─▶ booting ─▶ joined ─▶ working ─▶ draining ─▶ ending ─▶ gone
//!       │           └────────── never joins ─────────────────▲
//!       └── refused: a pause for this offer
//! ```
//!
//! Three lists are compared every few seconds: the wanted machines, the machines listed by the connector, and the
//! members of the cluster, each of which names its machine. The result is a list of [actions](Action). A [`Fleet`]
//! does no I/O and has no clock, and every step can be repeated:
//!
//! - The [state](Fleet::state) after a plan is written **before** its actions are performed. Each request
//!   for machines has its own key, and the connector returns the same machines for the same key. If a controller
//!   is killed between the two, or an answer is lost, the next controller repeats the request under the same
//!   key: nothing is started twice.
//! - The connector's list is authoritative, whichever process requested a machine. Surplus machines are drained and
//!   terminated, and machines that never get a node are terminated after some time. Nothing is forgotten.
//! - A machine with a node is terminated only after the node has left, or after a time limit.

mod plan;
mod shown;
mod state;
mod stock;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    shown::{MachineNow, Standing},
    state::{State, Trouble},
};
use crate::connector::{Key, Machine, MachineId, MachineState, Offer, Refusal, Why};

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSeen {
    /// Its name.
    pub node: String,
    /// The machine that it runs on, according to its label.
    pub machine: Option<MachineId>,
    /// The offer of that machine, according to its label.
    pub offer: Option<String>,
    /// Whether it was asked to leave.
    pub draining: bool,
    /// Whether it leads a job.
    pub leads: bool,
    /// Whether it has a task.
    pub working: bool,
    /// Its workers.
    pub workers: u32,
    /// Its zone, according to its label.
    pub zone: Option<String>,
}

/// The input of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The time, in milliseconds since 1970. It may jump.
    pub now_ms: u64,
    /// The number of machines wanted of each offer.
    pub wanted: &'a BTreeMap<String, u32>,
    /// The machines that leave first if some have to.
    pub leave: &'a [MachineId],
    /// The machines that the connector lists.
    pub machines: &'a [Machine],
    /// The machines that the connector [should list](Fleet::missed) but does not.
    pub missed: &'a [Machine],
    /// The nodes of the cluster.
    pub nodes: &'a [NodeSeen],
    /// Whether all members could be read. While one cannot, the machine of its node seems to have none, so no machine
    /// is terminated for lack of a node.
    pub knows_all_nodes: bool,
}

/// A step that the caller performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create machines.
    Create {
        /// The offer.
        offer: String,
        /// The number of machines.
        count: u32,
        /// The key of the request.
        key: Key,
    },
    /// Ask a node to leave, once.
    Drain {
        /// The node.
        node: String,
        /// Its machine.
        machine: MachineId,
    },
    /// Terminate machines.
    Terminate {
        /// The machines.
        machines: Vec<MachineId>,
    },
}

/// The time limits of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The time from the start of a machine to the membership of its node. For offers with a long start time it is
    /// three times that instead.
    pub boot_ms: u64,
    /// The time for which a machine is kept after its node was lost.
    pub lonely_ms: u64,
    /// The time from the request to leave until a node has left.
    pub drain_ms: u64,
    /// The time from the creation of a machine until it is listed. For offers with a long start time it is three
    /// times that instead.
    pub listed_ms: u64,
    /// The time after which an unanswered request that is no longer wanted is dropped.
    pub request_ms: u64,
    /// The maximum number of machines in a request.
    pub request_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot_ms: 600_000,
            lonely_ms: 120_000,
            drain_ms: 180_000,
            listed_ms: 120_000,
            request_ms: 600_000,
            request_max: u32::MAX,
        }
    }
}

/// The number of unanswered tries after which the offer is paused.
const UNANSWERED_MAX: u32 = 3;

/// The machines that a controller has requested.
#[derive(Debug, Clone)]
pub struct Fleet {
    offers: Vec<Offer>,
    limits: Limits,
    state: State,
    /// Machines with a node as of the last plan; empty in the first plan.
    joined: BTreeMap<MachineId, Machine>,
    has_planned: bool,
    /// Nodes that this controller has asked to leave. A second request would make them leave at once.
    asked: BTreeSet<String>,
    /// Machines whose failure was counted.
    failed: BTreeSet<MachineId>,
    /// Offers with a failure since the last plan: simultaneous failures count as one.
    failing: BTreeSet<String>,
    /// Messages for users about the last plan.
    notes: Vec<String>,
}

impl Fleet {
    /// Creates a fleet with these offers that continues from a state.
    pub fn new(offers: Vec<Offer>, limits: Limits, state: State) -> Self {
        Self {
            offers,
            limits,
            state,
            joined: BTreeMap::new(),
            has_planned: false,
            asked: BTreeSet::new(),
            failed: BTreeSet::new(),
            failing: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the state that the caller writes before it performs the actions of a plan.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the messages for users about the last plan, once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the machines that existed before and have a member, but are not listed by the connector, not even as
    /// gone: either the list is incomplete, or their nodes will be lost soon. `knew` reports whether an earlier
    /// controller knew a machine.
    pub fn missed(
        &self,
        machines: &[Machine],
        nodes: &[NodeSeen],
        knew: impl Fn(&MachineId) -> bool,
    ) -> Vec<Machine> {
        let listed: BTreeSet<&MachineId> = machines.iter().map(|machine| &machine.id).collect();
        let mut missed = BTreeMap::new();
        for node in nodes {
            let Some(id) = node.machine.as_ref().filter(|id| !listed.contains(id)) else { continue };
            let machine = self.joined.get(id).cloned().or_else(|| {
                let offer = node.offer.clone().filter(|offer| knew(id) && self.offer(offer).is_some())?;
                Some(Machine {
                    id: id.clone(),
                    offer,
                    state: MachineState::Running,
                    key: None,
                    created_ms: None,
                })
            });
            missed.extend(machine.map(|machine| (id, machine)));
        }
        missed.into_values().collect()
    }

    /// Extends the time limits after a jump of the clock.
    pub fn leapt(&mut self, by_ms: u64) {
        self.state.postpone(by_ms);
    }

    /// Records a failure to get machines of an offer.
    fn record_failure(&mut self, offer: &str, now_ms: u64, why: &str) {
        if self.failing.insert(offer.to_owned()) {
            self.state.record_failure(offer, now_ms, why);
        }
    }

    fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }

    /// Handles the answer to a request for machines. After an error with an unknown outcome the request is repeated.
    pub fn created(&mut self, now_ms: u64, key: &Key, answer: &Result<Vec<MachineId>, Refusal>) {
        let Some(request) = self.state.requests.get_mut(key) else { return };
        match answer {
            Ok(machines) => {
                request.answered_ms = Some(now_ms);
                request.named = machines.iter().cloned().collect();
            }
            Err(Refusal { why: Why::Unknown, message }) => {
                // Another offer may succeed in the meantime.
                if request.tries >= UNANSWERED_MAX {
                    let offer = request.offer.clone();
                    self.record_failure(&offer, now_ms, message);
                }
            }
            Err(refusal) => {
                let offer = request.offer.clone();
                if request.tries > 1 {
                    // An earlier call may have succeeded, and its machines may not be listed yet.
                    request.answered_ms = Some(now_ms);
                } else {
                    self.state.requests.remove(key);
                }
                self.record_failure(&offer, now_ms, &refusal.message);
            }
        }
    }

    /// Records that a request to leave did not reach ZooKeeper.
    pub fn not_asked(&mut self, node: &str) {
        self.asked.remove(node);
    }

    /// Records that a termination may have failed: it is repeated in the next round.
    pub fn not_ended(&mut self, machines: &[MachineId]) {
        for id in machines {
            if let Some(state::Phase::Ending { told_ms, .. }) = self.state.machines.get_mut(id) {
                *told_ms = 0;
            }
        }
    }
}
