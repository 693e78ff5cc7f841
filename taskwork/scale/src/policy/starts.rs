//! Start times of machines, learnt from observations.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MachineState, Observation, OfferSeen, normal::Z90};

/// The weight of the start time in the connector's file, in observed starts.
const SAID_WEIGHT: f64 = 3.0;
/// The spread of the logarithm of the time.
const SIGMA: f64 = 0.6;
/// The number of starts after which older ones are forgotten.
const REMEMBERED: f64 = 50.0;

/// Means of the logarithms of the times, by offer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Starts {
    known: BTreeMap<String, Known>,
    /// The starting machines. A machine that has worked is not added again while it is listed: a lost node that comes
    /// back is not a start.
    starting: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Known {
    count: f64,
    mean: f64,
}

impl Starts {
    /// Updates the starting machines, and learns from those that have joined. `new` has the ids of machines that were
    /// not listed before. Working machines of the first observation are skipped, since their start is unknown.
    pub(super) fn observe(&mut self, seen: &Observation, new: &BTreeSet<String>, is_first: bool) {
        let mut starting = BTreeSet::new();
        for machine in &seen.machines {
            let is_new = new.contains(&machine.id);
            let starts = self.starting.contains(&machine.id);
            if machine.state != MachineState::Working {
                if (is_new || starts) && machine.state == MachineState::Starting {
                    starting.insert(machine.id.clone());
                }
                continue;
            }
            let Some(joined_ms) = machine.joined_ms else { continue };
            if !starts && (!is_new || is_first) {
                continue;
            }
            let took_ms = joined_ms.saturating_sub(machine.requested_ms).max(1) as f64;
            let known = self.known.entry(machine.offer.clone()).or_default();
            known.count = (known.count + 1.0).min(REMEMBERED);
            known.mean += (took_ms.ln() - known.mean) / known.count;
        }
        self.starting = starting;
        self.known.retain(|name, _| seen.offers.iter().any(|offer| offer.name == *name));
    }

    /// Returns the median time from the request to the first work, in seconds.
    pub(super) fn median_s(&self, offer: &OfferSeen) -> f64 {
        let said = (offer.start_ms.max(1) as f64).ln();
        let known = self.known.get(&offer.name).copied().unwrap_or_default();
        let mean = (known.mean * known.count + said * SAID_WEIGHT) / (known.count + SAID_WEIGHT);
        mean.exp() / 1000.0
    }

    /// Returns the quantile of 90 % of that time, in seconds.
    pub(super) fn late_s(&self, offer: &OfferSeen) -> f64 {
        self.median_s(offer) * (SIGMA * Z90).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MachineSeen;

    #[test]
    fn start_time_follows_file_until_machines_have_started() {
        let offer = OfferSeen { name: "a".into(), start_ms: 60_000, ..OfferSeen::default() };
        let machine = |number: u64| MachineSeen {
            id: format!("m{number}"),
            offer: "a".into(),
            state: MachineState::Working,
            requested_ms: 1_000,
            joined_ms: Some(11_000),
            ..MachineSeen::default()
        };
        let mut starts = Starts::default();
        assert!((starts.median_s(&offer) - 60.0).abs() < 1e-6);
        let mut seen = Observation { offers: vec![offer.clone()], ..Observation::default() };
        for number in 0..30 {
            seen.machines.push(machine(number));
            starts.observe(&seen, &BTreeSet::from([format!("m{number}")]), false);
        }
        assert!((10.0..14.0).contains(&starts.median_s(&offer)), "{}", starts.median_s(&offer));
        assert!(starts.late_s(&offer) > 1.5 * starts.median_s(&offer));
        let known = starts.clone();
        starts.observe(&seen, &BTreeSet::new(), false);
        assert_eq!(starts, known, "each start counts once");
    }

    #[test]
    fn rejoined_node_is_not_a_start() {
        let offer = OfferSeen { name: "a".into(), start_ms: 60_000, ..OfferSeen::default() };
        let ids: Vec<String> = (0..50).map(|number| format!("m{number}")).collect();
        let at = |state: MachineState, joined_ms: u64| {
            let machine = |id: &String| MachineSeen {
                id: id.clone(),
                offer: "a".into(),
                state,
                joined_ms: Some(joined_ms).filter(|_| state == MachineState::Working),
                ..MachineSeen::default()
            };
            let machines = ids.iter().map(machine).collect();
            Observation { machines, offers: vec![offer.clone()], ..Observation::default() }
        };
        let mut starts = Starts::default();
        starts.observe(&at(MachineState::Starting, 0), &ids.iter().cloned().collect(), true);
        starts.observe(&at(MachineState::Working, 60_000), &BTreeSet::new(), false);
        let before = starts.median_s(&offer);
        // ZooKeeper was unavailable until all sessions had expired.
        starts.observe(&at(MachineState::Starting, 0), &BTreeSet::new(), false);
        starts.observe(&at(MachineState::Working, 36_000_000), &BTreeSet::new(), false);
        assert!((starts.median_s(&offer) - before).abs() < 1e-9, "{before} {}", starts.median_s(&offer));
        // A new controller finds them working.
        let mut starts = Starts::default();
        starts.observe(&at(MachineState::Working, 36_000_000), &ids.iter().cloned().collect(), true);
        assert!((starts.median_s(&offer) - 60.0).abs() < 1e-6, "{}", starts.median_s(&offer));
    }
}
