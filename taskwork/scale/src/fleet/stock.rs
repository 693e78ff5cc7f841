//! Inventory: changes of requests and machines since the last round.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fleet, NodeSeen, Round, plan::STARTS_WITHIN, state::Phase};
use crate::connector::{Key, Machine, MachineId, MachineState};

/// The age up to which the end of a machine counts as a failure of its offer, and not as a loss.
const FAILS_WITHIN_MS: u64 = 60_000;
/// The number of failed machines that are remembered, so that each is counted once.
const FAILED_MAX: usize = 10_000;

/// Indexes of the machines and nodes of a round.
pub(super) struct Stock<'a> {
    /// The machines that are not over, including unlisted ones.
    pub(super) alive: BTreeMap<&'a MachineId, &'a Machine>,
    /// The unlisted machines.
    pub(super) missed: BTreeSet<&'a MachineId>,
    pub(super) nodes: BTreeMap<&'a MachineId, Vec<&'a NodeSeen>>,
    /// The number of listed machines of each request, including those that are over.
    pub(super) listed: BTreeMap<Key, u32>,
}

impl<'a> Stock<'a> {
    pub(super) fn of(fleet: &Fleet, round: &Round<'a>) -> Self {
        let alive = round.machines.iter().chain(round.missed).filter(|machine| !machine.state.is_over());
        let missed = round.missed.iter().map(|machine| &machine.id).collect();
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
            let count = round.machines.iter().chain(round.missed).filter(is_its).count();
            listed.insert(key.clone(), u32::try_from(count).unwrap_or(u32::MAX));
        }
        Self { alive: alive.map(|machine| (&machine.id, machine)).collect(), missed, nodes, listed }
    }

    pub(super) fn nodes_on(&self, machine: &MachineId) -> &[&'a NodeSeen] {
        self.nodes.get(machine).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the nodes of a machine leave for another reason than a request of this controller.
    pub(super) fn leaves_anyway(&self, machine: &MachineId) -> bool {
        let nodes = self.nodes_on(machine);
        !nodes.is_empty() && nodes.iter().all(|node| node.draining)
    }
}

impl Fleet {
    /// Updates the state from a round.
    pub(super) fn take_stock<'a>(&mut self, round: &Round<'a>) -> Stock<'a> {
        self.failing.clear();
        self.state.clamp_to_now(round.now_ms);
        let stock = Stock::of(self, round);
        self.note_failed(round);
        self.note_vanished(&stock, round.now_ms);
        self.note_alive(&stock, round.now_ms);
        self.close_requests(round, &stock);
        self.has_planned = true;
        let members: BTreeSet<&str> = round.nodes.iter().map(|node| node.node.as_str()).collect();
        self.asked.retain(|node| members.contains(node.as_str()));
        stock
    }

    /// Counts machines that failed to start.
    fn note_failed(&mut self, round: &Round<'_>) {
        if self.failed.len() > FAILED_MAX {
            self.failed.clear();
        }
        for machine in round.machines {
            let MachineState::Failed(why) = &machine.state else { continue };
            let is_recent =
                machine.created_ms.is_none_or(|at| round.now_ms.saturating_sub(at) < self.limits.boot_ms);
            let had_node = self.joined.contains_key(&machine.id);
            if is_recent && !had_node && self.failed.insert(machine.id.clone()) {
                // A machine that had failed before the first round may have worked.
                if self.has_planned {
                    self.record_failure(&machine.offer, round.now_ms, why);
                }
                self.state.machines.remove(&machine.id);
            }
        }
    }

    /// Removes machines that are gone.
    fn note_vanished(&mut self, stock: &Stock<'_>, now_ms: u64) {
        let gone: Vec<MachineId> =
            self.state.machines.keys().filter(|id| !stock.alive.contains_key(id)).cloned().collect();
        for id in gone {
            let phase = self.state.machines.remove(&id);
            let Some(Phase::Lonely { since_ms, had_node: false, offer }) = phase else { continue };
            if now_ms.saturating_sub(since_ms) < FAILS_WITHIN_MS && !self.failed.contains(&id) {
                self.record_failure(
                    &offer,
                    now_ms,
                    &format!("machine {id} was gone before its node had joined"),
                );
            }
        }
        self.joined.retain(|id, _| stock.alive.contains_key(id));
    }

    /// Updates which machines have a node.
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
                // The time to boot starts once. It does not restart if the machine waits again, such as a pod whose
                // program crashes repeatedly.
                None if !has_node && machine.state == MachineState::Running => {
                    let (offer, had_node) = (machine.offer.clone(), self.joined.contains_key(id));
                    let phase = Phase::Lonely { since_ms: now_ms, had_node, offer };
                    self.state.machines.insert(id.clone(), phase);
                }
                Some(_) | None => {}
            }
            if has_node && !self.joined.contains_key(id) {
                self.joined.insert(id.clone(), (*machine).clone());
                // A machine from before this controller's start does not show that the offer is available now.
                if self.has_planned {
                    self.state.troubles.remove(&machine.offer);
                }
            }
        }
    }

    /// Closes requests whose machines all exist, or will not appear any more.
    fn close_requests(&mut self, round: &Round<'_>, stock: &Stock<'_>) {
        let (limits, now_ms) = (self.limits, round.now_ms);
        self.note_misnamed(round, stock);
        let starts: BTreeMap<&str, u64> =
            self.offers.iter().map(|offer| (&*offer.name, u64::from(offer.start_s) * 1000)).collect();
        self.state.requests.retain(|key, request| {
            let outstanding = request.outstanding(stock.listed.get(key).copied().unwrap_or(0));
            let waited = |since: u64, most: u64| now_ms.saturating_sub(since) > most;
            let start_ms = starts.get(&*request.offer).copied().unwrap_or(0);
            let listed_ms = limits.listed_ms.max(STARTS_WITHIN * start_ms);
            match request.answered_ms {
                Some(at) => outstanding > 0 && !waited(at, listed_ms),
                // All machines exist, whatever the answer was.
                None => outstanding > 0 && !waited(request.last_ms, limits.request_ms),
            }
        });
    }

    /// Counts a failure if the machines of a request are listed under another offer. They are surplus there, and
    /// replacements would be requested endlessly without a pause.
    fn note_misnamed(&mut self, round: &Round<'_>, stock: &Stock<'_>) {
        let mut misnamed = Vec::new();
        for (key, request) in &self.state.requests {
            let is_whole = request.outstanding(stock.listed.get(key).copied().unwrap_or(0)) == 0;
            let is_its =
                |machine: &&Machine| machine.key.as_ref() == Some(key) || request.named.contains(&machine.id);
            let of = |machine: &&Machine| machine.offer != request.offer;
            let other = round.machines.iter().filter(is_its).find(of);
            if let Some(other) = other.filter(|_| is_whole) {
                let why = format!(
                    "the connector lists machine {} as {:?}, which was asked for as {:?}: it must list machines by the \
                     names of offers",
                    other.id, other.offer, request.offer
                );
                misnamed.push((request.offer.clone(), why));
            }
        }
        for (offer, why) in misnamed {
            self.record_failure(&offer, round.now_ms, &why);
            self.notes.push(why);
        }
    }
}
