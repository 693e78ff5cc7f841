//! What machines have cost, and what they will.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MachineSeen, Observation, OfferSeen};

/// Milliseconds of an hour.
pub(super) const HOUR_MS: f64 = 3_600_000.0;

/// A price from here on is a mistake, and not known.
const PRICE_MAX: f64 = 1e12;

/// How a machine is billed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Tariff {
    price_per_hour: f64,
    quantum_ms: u64,
    minimum_ms: u64,
}

impl Tariff {
    /// Returns how machines of an offer are billed; `None` if the price is not known.
    pub(super) fn of(offer: &OfferSeen) -> Option<Self> {
        let price_per_hour = offer.price_per_hour.filter(|price| (0.0..PRICE_MAX).contains(price))?;
        Some(Self { price_per_hour, quantum_ms: offer.quantum_ms.max(1), minimum_ms: offer.minimum_ms })
    }

    /// Returns the time that is billed for a machine that is used for a time.
    pub(super) fn billed_ms(&self, used_ms: u64) -> u64 {
        used_ms.div_ceil(self.quantum_ms).saturating_mul(self.quantum_ms).max(self.minimum_ms)
    }

    /// Returns the bill for a machine that is used for a time.
    pub(super) fn bill(&self, used_ms: u64) -> f64 {
        self.price_per_hour * self.billed_ms(used_ms) as f64 / HOUR_MS
    }
}

/// Since when a machine is billed.
pub(super) fn billed_since_ms(machine: &MachineSeen) -> u64 {
    machine.billed_since_ms.unwrap_or(machine.requested_ms)
}

/// What was spent since the controller first ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spending {
    /// The machines that are there.
    open: BTreeMap<String, Account>,
    /// What those have cost that are gone.
    closed: f64,
    /// Whether a machine without a known price was ever there.
    is_partial: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Account {
    tariff: Option<Tariff>,
    since_ms: u64,
    until_ms: u64,
}

impl Account {
    fn bill(&self) -> f64 {
        self.tariff.map_or(0.0, |tariff| tariff.bill(self.until_ms.saturating_sub(self.since_ms)))
    }
}

impl Spending {
    /// Takes note of the machines that are there. One that is not there any more is taken to have gone only now: a
    /// budget must not be exceeded by what nobody saw.
    pub(super) fn saw(&mut self, seen: &Observation) {
        let offers: BTreeMap<&str, &OfferSeen> =
            seen.offers.iter().map(|offer| (&*offer.name, offer)).collect();
        let mut open = BTreeMap::new();
        for machine in &seen.machines {
            let since_ms = billed_since_ms(machine);
            let before = self.open.remove(&machine.id);
            // The price is that of the time when the machine was first seen.
            let tariff = before
                .and_then(|account| account.tariff)
                .or_else(|| offers.get(&*machine.offer).and_then(|offer| Tariff::of(offer)));
            self.is_partial |= tariff.is_none();
            let until_ms = before.map_or(0, |account| account.until_ms).max(seen.at_ms);
            open.insert(machine.id.clone(), Account { tariff, since_ms, until_ms });
        }
        let gone = self
            .open
            .values()
            .map(|account| Account { until_ms: account.until_ms.max(seen.at_ms), ..*account });
        self.closed += gone.map(|account| account.bill()).sum::<f64>();
        self.open = open;
    }

    /// Returns what was spent as far as it is known, the time included that is paid ahead.
    pub(super) fn known(&self) -> f64 {
        self.closed + self.open.values().map(Account::bill).sum::<f64>()
    }

    /// Returns what was spent; `None` if a price is not known.
    pub(super) fn total(&self) -> Option<f64> {
        (!self.is_partial).then(|| self.known())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at_ms: u64, ids: &[(&str, u64)], price: Option<f64>) -> Observation {
        let machine = |&(id, since): &(&str, u64)| MachineSeen {
            id: id.into(),
            offer: "a".into(),
            requested_ms: since,
            ..MachineSeen::default()
        };
        let offer = OfferSeen {
            name: "a".into(),
            price_per_hour: price,
            quantum_ms: 3_600_000,
            ..OfferSeen::default()
        };
        let machines = ids.iter().map(machine).collect();
        Observation { at_ms, machines, offers: vec![offer], ..Observation::default() }
    }

    #[test]
    fn pays_whole_quanta_once() {
        let mut spending = Spending::default();
        spending.saw(&seen(1, &[("m", 0), ("n", 0)], Some(2.0)));
        assert!((spending.known() - 4.0).abs() < 1e-9);
        spending.saw(&seen(3_600_000, &[("m", 0), ("n", 0)], Some(2.0)));
        assert!((spending.known() - 4.0).abs() < 1e-9, "the hour is not over");
        spending.saw(&seen(3_600_000, &[("m", 0)], Some(2.0)));
        spending.saw(&seen(3_600_001, &[("m", 0)], Some(2.0)));
        assert!((spending.known() - 6.0).abs() < 1e-9, "one more hour of the one that is there");
        spending.saw(&seen(7_200_000, &[], Some(2.0)));
        assert!((spending.total().unwrap() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn says_when_a_price_is_not_known() {
        let mut spending = Spending::default();
        spending.saw(&seen(1, &[("m", 0)], None));
        assert_eq!(spending.total(), None);
        let mut spending = Spending::default();
        spending.saw(&seen(1, &[("m", 0)], Some(f64::NAN)));
        assert_eq!(spending.total(), None);
    }

    #[test]
    fn knows_the_least_bill() {
        let offer = OfferSeen { price_per_hour: Some(60.0), minimum_ms: 60_000, ..OfferSeen::default() };
        let tariff = Tariff::of(&offer).unwrap();
        assert!((tariff.bill(1_500) - 1.0).abs() < 1e-9);
        assert!((tariff.bill(60_500) - 61.0 / 60.0).abs() < 1e-9);
    }
}
