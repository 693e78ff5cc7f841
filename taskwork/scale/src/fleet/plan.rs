//! One round: compares the wanted machines with the present ones, and returns actions.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Action, Fleet, Round,
    state::{Phase, Request},
    stock::Stock,
};
use crate::connector::{Key, Machine, MachineId, MachineState};

/// The time after which the termination of a machine that still exists is repeated.
const TOLD_AGAIN_MS: u64 = 30_000;
/// The maximum time of a start, in expected start times.
pub(super) const STARTS_WITHIN: u64 = 3;

impl Fleet {
    /// Compares the wanted machines with the present ones. The caller writes the resulting [state](Self::state), and
    /// then performs the actions in this order.
    pub fn plan(&mut self, round: &Round<'_>) -> Vec<Action> {
        let stock = self.take_stock(round);
        let asked = self.balance(round, &stock);
        self.end_overdue(round, &stock);
        let mut actions = self.terminations(&stock, round.now_ms);
        actions.extend(self.drains(round));
        actions.extend(asked.into_iter().filter_map(|key| {
            let request = self.state.requests.get_mut(&key)?;
            (request.tries, request.last_ms) = (request.tries.saturating_add(1), round.now_ms);
            Some(Action::Create { offer: request.offer.clone(), count: request.count, key })
        }));
        actions
    }

    /// Compares the numbers of each offer. Surplus machines get their phase. Returns the keys of new and repeated
    /// requests.
    fn balance(&mut self, round: &Round<'_>, stock: &Stock<'_>) -> Vec<Key> {
        let mut asked = Vec::new();
        let listed = stock.alive.values().map(|machine| machine.offer.as_str());
        let names: BTreeSet<String> =
            self.offers.iter().map(|offer| offer.name.as_str()).chain(listed).map(str::to_owned).collect();
        for name in names {
            let staying = self.staying(&name, stock);
            // An offer that was removed from the connector's file is no longer wanted.
            let max = self.offer(&name).map_or(0, |offer| offer.max);
            let target = round.wanted.get(&name).copied().unwrap_or(0).min(max);
            let listed = u32::try_from(staying.len()).unwrap_or(u32::MAX);
            // Unlisted machines are not replaced, and no other machine leaves because of them: either they exist, or
            // their nodes will be lost soon.
            let there = listed.saturating_add(self.staying_missed(&name, stock));
            if there >= target {
                self.release_surplus(round, stock, staying, listed.saturating_sub(target));
                continue;
            }
            let requests = self.state.requests.iter().filter(|(_, request)| request.offer == name);
            let mut outstanding = 0_u32;
            for (key, request) in requests {
                let its = stock.listed.get(key).copied().unwrap_or(0);
                outstanding = outstanding.saturating_add(request.outstanding(its));
                asked.extend(request.is_due(round.now_ms).then(|| key.clone()));
            }
            // Leaving machines count as long as they exist.
            let all = stock.alive.values().filter(|machine| machine.offer == name).count();
            let room = max.saturating_sub(u32::try_from(all).unwrap_or(u32::MAX)).saturating_sub(outstanding);
            let count = target.saturating_sub(there).saturating_sub(outstanding).min(room);
            if !self.state.is_blocked(&name, round.now_ms) {
                asked.extend(self.requests(&name, count, round.now_ms));
            }
        }
        asked
    }

    /// Makes requests for a number of machines, each within the connector's limit.
    fn requests(&mut self, offer: &str, mut count: u32, now_ms: u64) -> Vec<Key> {
        let mut keys = Vec::new();
        while count > 0 {
            let some = count.min(self.limits.request_max.max(1));
            let Some(key) = self.request(offer, some, now_ms) else { break };
            keys.push(key);
            count -= some;
        }
        keys
    }

    /// Makes a request with a new key.
    fn request(&mut self, offer: &str, count: u32, now_ms: u64) -> Option<Key> {
        let key = self.state.new_key()?;
        let request = Request {
            offer: offer.to_owned(),
            count,
            asked_ms: now_ms,
            answered_ms: None,
            named: BTreeSet::new(),
            tries: 0,
            last_ms: now_ms,
        };
        self.state.requests.insert(key.clone(), request);
        Some(key)
    }

    /// Returns the listed machines of an offer that do not leave.
    fn staying<'a>(&self, offer: &str, stock: &Stock<'a>) -> Vec<&'a Machine> {
        let mut staying = self.all_staying(offer, stock);
        staying.retain(|machine| !stock.missed.contains(&machine.id));
        staying
    }

    /// Returns the number of unlisted machines of an offer that do not leave.
    fn staying_missed(&self, offer: &str, stock: &Stock<'_>) -> u32 {
        let mut missed = self.all_staying(offer, stock);
        missed.retain(|machine| stock.missed.contains(&machine.id));
        u32::try_from(missed.len()).unwrap_or(u32::MAX)
    }

    fn all_staying<'a>(&self, offer: &str, stock: &Stock<'a>) -> Vec<&'a Machine> {
        let stays = |machine: &&Machine| {
            let leaves = matches!(
                self.state.machines.get(&machine.id),
                Some(Phase::Draining { .. } | Phase::Ending { .. })
            );
            machine.offer == offer
                && machine.state != MachineState::Ending
                && !leaves
                && !stock.leaves_anyway(&machine.id)
        };
        stock.alive.values().copied().filter(stays).collect()
    }

    fn release_surplus(
        &mut self,
        round: &Round<'_>,
        stock: &Stock<'_>,
        mut staying: Vec<&Machine>,
        mut count: u32,
    ) {
        if !round.knows_all_nodes {
            // Machines without a known node may have one. No other machine leaves in their place.
            let is_safe = |machine: &&Machine| !stock.nodes_on(&machine.id).is_empty();
            let unsafe_named =
                staying.iter().filter(|it| round.leave.contains(&it.id) && !is_safe(it)).count();
            count = count.saturating_sub(u32::try_from(unsafe_named).unwrap_or(u32::MAX));
            staying.retain(is_safe);
        }
        let mut zones: BTreeMap<&str, u32> = BTreeMap::new();
        let zone_of = |machine: &Machine| {
            stock.nodes_on(&machine.id).iter().find_map(|node| node.zone.as_deref()).unwrap_or_default()
        };
        for machine in &staying {
            *zones.entry(zone_of(machine)).or_default() += 1;
        }
        for _ in 0..count {
            let place = staying.iter().enumerate().min_by_key(|(_, machine)| {
                let nodes = stock.nodes_on(&machine.id);
                let is_last_of_zone = zones.len() > 1 && zones.get(zone_of(machine)) == Some(&1);
                let named = round.leave.iter().position(|id| *id == machine.id).unwrap_or(usize::MAX);
                (
                    named,
                    nodes.iter().any(|node| node.leads),
                    !nodes.is_empty(),
                    is_last_of_zone,
                    self.paid_for_ms(machine, round.now_ms),
                    Reverse(machine.created_ms),
                )
            });
            let Some((place, _)) = place else { break };
            let machine = staying.swap_remove(place);
            zones.entry(zone_of(machine)).and_modify(|count| *count -= 1);
            let nodes: BTreeSet<String> =
                stock.nodes_on(&machine.id).iter().map(|node| node.node.clone()).collect();
            let since_ms = round.now_ms;
            let phase = if nodes.is_empty() {
                Phase::Ending { since_ms, told_ms: 0 }
            } else {
                Phase::Draining { since_ms, nodes, again: false }
            };
            self.state.machines.insert(machine.id.clone(), phase);
        }
    }

    /// Returns the remaining time for which a machine is paid.
    fn paid_for_ms(&self, machine: &Machine, now_ms: u64) -> u64 {
        let quantum_ms =
            self.offer(&machine.offer).map_or(1, |offer| u64::from(offer.quantum_s.max(1))) * 1000;
        let used_ms = machine.created_ms.map_or(0, |at| now_ms.saturating_sub(at));
        quantum_ms - used_ms % quantum_ms
    }

    /// Terminates machines that have waited too long for a node, or for their nodes to leave.
    fn end_overdue(&mut self, round: &Round<'_>, stock: &Stock<'_>) {
        let now_ms = round.now_ms;
        let members: BTreeSet<&str> = round.nodes.iter().map(|node| node.node.as_str()).collect();
        let mut overdue: Vec<(MachineId, Option<String>)> = Vec::new();
        let mut never_joined = Vec::new();
        let mut come_back: Vec<(MachineId, BTreeSet<String>)> = Vec::new();
        for (id, phase) in &self.state.machines {
            let passed = |since: u64| now_ms.saturating_sub(since);
            match phase {
                // Its node may be the unreadable member.
                Phase::Lonely { .. } if !round.knows_all_nodes => {}
                Phase::Lonely { since_ms, had_node: false, offer } => {
                    let start_ms = self.offer(offer).map_or(0, |offer| u64::from(offer.start_s) * 1000);
                    if passed(*since_ms) > self.limits.boot_ms.max(STARTS_WITHIN * start_ms) {
                        let minutes = passed(*since_ms) / 60_000;
                        let why = format!(
                            "machine {id} has run for {minutes} minutes, and no node of it has joined"
                        );
                        never_joined.push((offer.clone(), why.clone()));
                        overdue.push((id.clone(), Some(why)));
                    }
                }
                Phase::Lonely { since_ms, .. } if passed(*since_ms) > self.limits.lonely_ms => {
                    overdue.push((id.clone(), Some(format!("the node of machine {id} is gone"))));
                }
                Phase::Draining { nodes, again, .. }
                    if nodes.iter().all(|node| !members.contains(node.as_str())) =>
                {
                    let others = stock.nodes_on(id);
                    if others.is_empty() || *again {
                        overdue.push((id.clone(), None));
                    } else {
                        come_back.push((id.clone(), others.iter().map(|node| node.node.clone()).collect()));
                    }
                }
                Phase::Draining { since_ms, .. } if passed(*since_ms) > self.limits.drain_ms => {
                    let seconds = passed(*since_ms) / 1000;
                    let why =
                        format!("the node of machine {id} has not left within {seconds} s of being asked to");
                    overdue.push((id.clone(), Some(why)));
                }
                _ => {}
            }
        }
        for (id, nodes) in come_back {
            self.state.machines.insert(id, Phase::Draining { since_ms: now_ms, nodes, again: true });
        }
        for (offer, why) in never_joined {
            self.record_failure(&offer, now_ms, &why);
        }
        for (id, why) in overdue.into_iter().filter(|(id, _)| stock.alive.contains_key(id)) {
            self.notes.extend(why.map(|why| format!("{why}; the machine is ended")));
            self.state.machines.insert(id, Phase::Ending { since_ms: now_ms, told_ms: 0 });
        }
    }

    fn terminations(&mut self, stock: &Stock<'_>, now_ms: u64) -> Vec<Action> {
        let mut machines = Vec::new();
        for (id, phase) in &mut self.state.machines {
            if let Phase::Ending { told_ms, .. } = phase
                && stock.alive.contains_key(id)
                && now_ms.saturating_sub(*told_ms) >= TOLD_AGAIN_MS
            {
                *told_ms = now_ms;
                machines.push(id.clone());
            }
        }
        if machines.is_empty() { Vec::new() } else { vec![Action::Terminate { machines }] }
    }

    fn drains(&mut self, round: &Round<'_>) -> Vec<Action> {
        let members: BTreeMap<&str, bool> =
            round.nodes.iter().map(|node| (node.node.as_str(), node.draining)).collect();
        let mut actions = Vec::new();
        for (machine, phase) in &mut self.state.machines {
            let Phase::Draining { nodes, since_ms, .. } = phase else { continue };
            for node in nodes.iter() {
                let is_to_be_asked = members.get(node.as_str()) == Some(&false);
                if is_to_be_asked && self.asked.insert(node.clone()) {
                    // An earlier request may not have reached it, so its time starts now.
                    *since_ms = round.now_ms;
                    actions.push(Action::Drain { node: node.clone(), machine: machine.clone() });
                }
            }
        }
        actions
    }
}
