//! Taking stock: what has become of requests and machines since the last round.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fleet, NodeSeen, Round, state::Phase};
use crate::connector::{Key, Machine, MachineId, MachineState};

/// The time after its start within which the end of a machine is a failure of its offer, and not a loss.
const FAILS_WITHIN_MS: u64 = 60_000;
/// The number of failed machines that are remembered, so that each is counted once.
const FAILED_MAX: usize = 10_000;

/// What is there, by what it is looked up by.
pub(super) struct Stock<'a> {
    /// The machines that are not over.
    pub(super) alive: BTreeMap<&'a MachineId, &'a Machine>,
    /// The nodes of each machine.
    pub(super) nodes: BTreeMap<&'a MachineId, Vec<&'a NodeSeen>>,
    /// How many machines of each request are listed, also those that are over.
    pub(super) listed: BTreeMap<Key, u32>,
}

impl<'a> Stock<'a> {
    pub(super) fn of(fleet: &Fleet, round: &Round<'a>) -> Self {
        let alive = round.machines.iter().filter(|machine| !machine.state.is_over());
        let mut nodes: BTreeMap<&MachineId, Vec<&NodeSeen>> = BTreeMap::new();
        for node in round.nodes {
            if let Some(machine) = &node.machine {
                nodes.entry(machine).or_default().push(node);
            }
        }
        let mut listed = BTreeMap::new();
        for (key, request) in &fleet.state.requests {
            let is_its =
                |machine: &&Machine| machine.key.as_ref() == Some(key) || request.named.contains(&machine.id);
            let count = round.machines.iter().filter(is_its).count();
            listed.insert(key.clone(), u32::try_from(count).unwrap_or(u32::MAX));
        }
        Self { alive: alive.map(|machine| (&machine.id, machine)).collect(), nodes, listed }
    }

    /// Returns the nodes that run on a machine.
    pub(super) fn nodes_on(&self, machine: &MachineId) -> &[&'a NodeSeen] {
        self.nodes.get(machine).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the nodes of a machine leave, although this controller has not asked them to.
    pub(super) fn leaves_anyway(&self, machine: &MachineId) -> bool {
        let nodes = self.nodes_on(machine);
        !nodes.is_empty() && nodes.iter().all(|node| node.draining)
    }
}

impl Fleet {
    /// Brings the state up to what is so now.
    pub(super) fn take_stock<'a>(&mut self, round: &Round<'a>) -> Stock<'a> {
        let stock = Stock::of(self, round);
        self.note_failed(round);
        self.note_vanished(&stock, round.now_ms);
        self.note_alive(&stock, round.now_ms);
        self.close_requests(&stock, round.now_ms);
        let members: BTreeSet<&str> = round.nodes.iter().map(|node| node.node.as_str()).collect();
        self.asked.retain(|node| members.contains(node.as_str()));
        stock
    }

    /// Counts machines that could not be started.
    fn note_failed(&mut self, round: &Round<'_>) {
        if self.failed.len() > FAILED_MAX {
            self.failed.clear();
        }
        for machine in round.machines {
            let MachineState::Failed(why) = &machine.state else { continue };
            let is_recent =
                machine.created_ms.is_none_or(|at| round.now_ms.saturating_sub(at) < self.limits.boot_ms);
            let had_node = self.joined.contains(&machine.id);
            if is_recent && !had_node && self.failed.insert(machine.id.clone()) {
                self.state.fails(&machine.offer, round.now_ms, why);
                self.state.machines.remove(&machine.id);
            }
        }
    }

    /// Forgets machines that are gone.
    fn note_vanished(&mut self, stock: &Stock<'_>, now_ms: u64) {
        let gone: Vec<MachineId> =
            self.state.machines.keys().filter(|id| !stock.alive.contains_key(id)).cloned().collect();
        for id in gone {
            let phase = self.state.machines.remove(&id);
            let Some(Phase::Lonely { since_ms, had_node: false, offer }) = phase else { continue };
            if now_ms.saturating_sub(since_ms) < FAILS_WITHIN_MS && !self.failed.contains(&id) {
                self.state.fails(
                    &offer,
                    now_ms,
                    &format!("machine {id} was gone before its node had joined"),
                );
            }
        }
        self.joined.retain(|id| stock.alive.contains_key(id));
    }

    /// Notes which machines have a node.
    fn note_alive(&mut self, stock: &Stock<'_>, now_ms: u64) {
        for (&id, machine) in &stock.alive {
            let has_node = !stock.nodes_on(id).is_empty();
            match self.state.machines.get(id) {
                Some(Phase::Lonely { had_node, .. }) if has_node => {
                    if !had_node {
                        self.state.troubles.remove(&machine.offer);
                    }
                    self.state.machines.remove(id);
                }
                // Its time to boot begins when it is there.
                Some(Phase::Lonely { had_node: false, .. }) if machine.state == MachineState::Requested => {
                    self.state.machines.remove(id);
                }
                None if !has_node && machine.state == MachineState::Running => {
                    let (offer, had_node) = (machine.offer.clone(), self.joined.contains(id));
                    let phase = Phase::Lonely { since_ms: now_ms, had_node, offer };
                    self.state.machines.insert(id.clone(), phase);
                }
                Some(_) | None => {}
            }
            if has_node {
                self.joined.insert(id.clone());
            }
        }
    }

    /// Closes requests whose machines are all there, or will not come any more.
    fn close_requests(&mut self, stock: &Stock<'_>, now_ms: u64) {
        let limits = self.limits;
        self.state.requests.retain(|key, request| {
            let outstanding = request.outstanding(stock.listed.get(key).copied().unwrap_or(0));
            let waited = |since: u64, most: u64| now_ms.saturating_sub(since) > most;
            match request.answered_ms {
                Some(at) => outstanding > 0 && !waited(at, limits.listed_ms),
                // All of them are there, whatever the answer was.
                None => outstanding > 0 && !waited(request.last_ms, limits.request_ms),
            }
        });
    }
}
