//! A fleet: the machines that a controller has asked for, from the request to the end.
//!
//! ```text
//!   requested ─▶ booting ─▶ joined ─▶ working ─▶ draining ─▶ ending ─▶ gone
//!       │           └────────── never joins ─────────────────▲
//!       └── refused: a pause for this offer
//! ```
//!
//! Three lists are compared every few seconds: the machines that are wanted, those that the connector lists, and
//! the members of the cluster, each of which names its machine. What follows is a list of [actions](Action). A
//! [`Fleet`] does no I/O and has no clock, and whatever happens it is repeatable:
//!
//! - The [state](Fleet::state) that a plan leads to is written **before** its actions are performed. Each request
//!   for machines has a key of its own, and the connector takes the same key for the same machines. A controller
//!   that is killed between the two, or whose answer was lost, is followed by one that asks again under the same
//!   key: nothing is started twice.
//! - The connector's list is the truth. Whatever it lists counts, whoever asked for it: what is more than wanted is
//!   drained and ended, and what never gets a node is ended after some time. Nothing is forgotten.
//! - A machine with a node is ended only after the node has left, or after a time in which it has not.

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
    /// The machine that it says it runs on, if any, and of which offer.
    pub machine: Option<MachineId>,
    /// The offer of that machine, as it says.
    pub offer: Option<String>,
    /// Whether it was asked to leave.
    pub draining: bool,
    /// Whether it leads a job.
    pub leads: bool,
    /// Whether it has a task.
    pub working: bool,
    /// Its workers.
    pub workers: u32,
    /// The zone that it says it is in.
    pub zone: Option<String>,
}

/// What is so at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The time, in milliseconds since 1970. It may leap.
    pub now_ms: u64,
    /// The number of machines that are wanted of each offer.
    pub wanted: &'a BTreeMap<String, u32>,
    /// The machines that are to leave first, if some are to.
    pub leave: &'a [MachineId],
    /// The machines that the connector lists.
    pub machines: &'a [Machine],
    /// The [machines that it should list](Fleet::missed), and does not.
    pub missed: &'a [Machine],
    /// The nodes of the cluster.
    pub nodes: &'a [NodeSeen],
    /// Whether all members could be read. While one cannot, the machine on which it runs seems to have no node, so none
    /// is ended for that.
    pub knows_all_nodes: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The connector is to create machines.
    Create {
        /// Of which offer.
        offer: String,
        /// How many.
        count: u32,
        /// Under which key.
        key: Key,
    },
    /// A node is to be asked to leave, once.
    Drain {
        /// Which node.
        node: String,
        /// On which machine it runs.
        machine: MachineId,
    },
    /// The connector is to end machines.
    Terminate {
        /// Which ones.
        machines: Vec<MachineId>,
    },
}

/// How long a fleet waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest time from the start of a machine to the membership of its node. An offer whose machines are
    /// known to take long has three times that instead.
    pub boot_ms: u64,
    /// The longest time that a machine stays whose node is no longer a member.
    pub lonely_ms: u64,
    /// The longest time from the request to leave until a node has left.
    pub drain_ms: u64,
    /// The longest time after which a machine that was created is listed. An offer whose machines are known to take
    /// long has three times that instead.
    pub listed_ms: u64,
    /// The time after which a request that was never answered, and is not wanted any more, is given up.
    pub request_ms: u64,
    /// The most machines that one request asks for.
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

/// The number of tries without an answer from which on the offer is avoided.
const UNANSWERED_MAX: u32 = 3;

/// The machines that a controller has asked for.
#[derive(Debug, Clone)]
pub struct Fleet {
    offers: Vec<Offer>,
    limits: Limits,
    state: State,
    /// Machines with a node, as of the last plan, of which there is none in the first one.
    joined: BTreeMap<MachineId, Machine>,
    has_planned: bool,
    /// Nodes that this controller has asked to leave: a second request would make them leave at once.
    asked: BTreeSet<String>,
    /// Machines whose failure was noted.
    failed: BTreeSet<MachineId>,
    /// Offers of which something has failed since the last plan: what fails together is one failure.
    failing: BTreeSet<String>,
    /// What there is to say to people about the last plan.
    notes: Vec<String>,
}

impl Fleet {
    /// Creates a fleet of machines of these offers, which goes on from a state.
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

    /// Returns what is to be written before the actions of a plan are performed.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns what there is to say about the last plan that people should know, and says it once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the machines that were there, whose nodes are members, and that the connector does not list any more, not
    /// even as gone: what it says is incomplete, or their nodes will soon be missed, too. It is told of a machine whether
    /// an earlier controller knew it.
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

    /// Notes that the clock has leapt ahead: nobody has waited for that time.
    pub fn leapt(&mut self, by_ms: u64) {
        self.state.leapt(by_ms);
    }

    /// Notes that machines of an offer could not be had.
    fn fails(&mut self, offer: &str, now_ms: u64, why: &str) {
        if self.failing.insert(offer.to_owned()) {
            self.state.fails(offer, now_ms, why);
        }
    }

    fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }

    /// Notes the answer to a request for machines. A refusal that leaves open whether it was done is no answer: the
    /// request is repeated.
    pub fn created(&mut self, now_ms: u64, key: &Key, answer: &Result<Vec<MachineId>, Refusal>) {
        let Some(request) = self.state.requests.get_mut(key) else { return };
        match answer {
            Ok(machines) => {
                request.answered_ms = Some(now_ms);
                request.named = machines.iter().cloned().collect();
            }
            Err(Refusal { why: Why::Unknown, message }) => {
                // The next offer may do better meanwhile.
                if request.tries >= UNANSWERED_MAX {
                    let offer = request.offer.clone();
                    self.fails(&offer, now_ms, message);
                }
            }
            Err(refusal) => {
                let offer = request.offer.clone();
                if request.tries > 1 {
                    // An earlier call may have done it, and its machines may not be listed yet.
                    request.answered_ms = Some(now_ms);
                } else {
                    self.state.requests.remove(key);
                }
                self.fails(&offer, now_ms, &refusal.message);
            }
        }
    }

    /// Notes that a node was not asked to leave after all: the request did not reach ZooKeeper.
    pub fn not_asked(&mut self, node: &str) {
        self.asked.remove(node);
    }

    /// Notes that it is not known whether machines were ended: the connector is told again at the next round.
    pub fn not_ended(&mut self, machines: &[MachineId]) {
        for id in machines {
            if let Some(state::Phase::Ending { told_ms, .. }) = self.state.machines.get_mut(id) {
                *told_ms = 0;
            }
        }
    }
}
