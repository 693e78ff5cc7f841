//! The order in which machines leave.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    MachineSeen, MachineState, Observation, OfferSeen,
    ahead::{Ahead, serves},
    spending::used_ms,
};

/// Returns the ids of the machines that are not leaving yet, the first victim first.
///
/// The order is: machines with a preemption notice; machines that have not joined; the most expensive for each
/// worker; those whose paid time ends soonest; the newest. The last machine of each zone leaves only after these, the last
/// one that satisfies a demand of unfinished work later, and the leader of the cluster last.
pub fn victims(seen: &Observation) -> Vec<String> {
    ordered(seen).into_iter().map(|machine| machine.id.clone()).collect()
}

/// Like [`victims`], as machines.
pub(super) fn ordered(seen: &Observation) -> Vec<&MachineSeen> {
    let offers: BTreeMap<&str, &OfferSeen> = seen.offers.iter().map(|offer| (&*offer.name, offer)).collect();
    let mut machines: Vec<&MachineSeen> =
        seen.machines.iter().filter(|machine| machine.state != MachineState::Leaving).collect();
    machines.sort_by_cached_key(|machine| {
        let offer = offers.get(&*machine.offer).copied();
        let price = Reverse(millionths(offer.and_then(price_of_worker)));
        // Minutes, since shorter differences are irrelevant if machines are billed by the second.
        let left_min = offer.map_or(0, |offer| paid_left_ms(machine, offer, seen.at_ms) / 60_000);
        let works = machine.state == MachineState::Working;
        (!machine.noticed, works, price, left_min, Reverse(machine.requested_ms), machine.id.clone())
    });
    // In reverse: the last victim of each zone, and for each demand, stays.
    let mut zones = BTreeSet::new();
    let ahead = Ahead::of(seen);
    let mut demands: Vec<_> = ahead.iter().flat_map(Ahead::demands).collect();
    let mut rank: Vec<u8> = machines
        .iter()
        .rev()
        .map(|machine| {
            if machine.noticed || machine.state != MachineState::Working {
                return if machine.leader && !machine.noticed { LEADS } else { 0 };
            }
            let is_last = machine.zone.as_ref().is_some_and(|zone| zones.insert(zone));
            let unserved = demands.len();
            if let Some(offer) = offers.get(&*machine.offer) {
                demands.retain(|demand| !serves(offer, demand));
            }
            match (machine.leader, demands.len() < unserved) {
                (true, _) => LEADS,
                (false, true) => SERVES,
                (false, false) => u8::from(is_last),
            }
        })
        .collect();
    rank.reverse();
    let mut ranked: Vec<_> = rank.into_iter().zip(machines).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, machine)| machine).collect()
}

/// The ranks of machines that leave late: the only one for a demand, and the leader.
const SERVES: u8 = 2;
const LEADS: u8 = 3;

fn price_of_worker(offer: &OfferSeen) -> Option<f64> {
    Some(offer.price_per_hour? / f64::from(offer.workers.max(1)))
}

/// The price as an integer that can be ordered; 0 if unknown.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is below 0")]
fn millionths(price: Option<f64>) -> u64 {
    (price.unwrap_or(0.0) * 1e6).round() as u64
}

/// The remaining time for which a machine is paid.
pub(super) fn paid_left_ms(machine: &MachineSeen, offer: &OfferSeen, at_ms: u64) -> u64 {
    let Some(used_ms) = used_ms(machine, at_ms) else { return 0 };
    let quantum_ms = offer.quantum_ms.max(1);
    let billed_ms = used_ms.div_ceil(quantum_ms).saturating_mul(quantum_ms).max(offer.minimum_ms);
    billed_ms - used_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: &str, offer: &str, requested_ms: u64) -> MachineSeen {
        MachineSeen {
            id: id.into(),
            offer: offer.into(),
            state: MachineState::Working,
            requested_ms,
            ..MachineSeen::default()
        }
    }

    fn seen(machines: Vec<MachineSeen>) -> Observation {
        let offer = |name: &str, workers, price, quantum_ms| OfferSeen {
            name: name.into(),
            workers,
            price_per_hour: Some(price),
            quantum_ms,
            ..OfferSeen::default()
        };
        let offers = vec![offer("small", 2, 0.4, 1_000), offer("large", 16, 1.6, 3_600_000)];
        Observation { at_ms: 3_500_000, machines, offers, ..Observation::default() }
    }

    #[test]
    fn most_expensive_machine_leaves_first_and_leader_last() {
        let mut noticed = machine("noticed", "large", 0);
        noticed.noticed = true;
        let mut leader = machine("leader", "small", 3_400_000);
        leader.leader = true;
        let mut leaving = machine("leaving", "small", 0);
        leaving.state = MachineState::Leaving;
        let ends_soon = machine("ends-soon", "large", 0);
        let starting = MachineSeen { state: MachineState::Starting, ..machine("starting", "small", 0) };
        let seen = seen(vec![
            leader,
            starting,
            leaving,
            machine("paid-long", "large", 3_000_000),
            ends_soon,
            machine("old", "small", 1_000),
            machine("new", "small", 3_000_000),
            noticed,
        ]);
        assert_eq!(victims(&seen), ["noticed", "starting", "new", "old", "ends-soon", "paid-long", "leader"]);
    }

    #[test]
    fn last_machine_of_zone_leaves_late() {
        let of =
            |id: &str, zone: &str, at| MachineSeen { zone: Some(zone.into()), ..machine(id, "small", at) };
        let seen = seen(vec![of("a1", "a", 10), of("a2", "a", 20), of("b1", "b", 30), of("b2", "b", 40)]);
        assert_eq!(victims(&seen), ["b2", "a2", "b1", "a1"]);
    }
}
