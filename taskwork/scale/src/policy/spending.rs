//! Past and future costs of machines.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MachineSeen, Observation, OfferSeen, Place};

/// Milliseconds of an hour.
pub(super) const HOUR_MS: f64 = 3_600_000.0;

/// A price of this or more is an error, and counts as unknown.
const PRICE_MAX: f64 = 1e12;

/// The terms on which a machine is billed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Tariff {
    price_per_hour: f64,
    quantum_ms: u64,
    minimum_ms: u64,
}

impl Tariff {
    /// Returns the tariff of an offer; `None` if the price is unknown.
    pub(super) fn of(offer: &OfferSeen) -> Option<Self> {
        let price_per_hour = offer.price_per_hour.filter(|price| (0.0..PRICE_MAX).contains(price))?;
        Some(Self { price_per_hour, quantum_ms: offer.quantum_ms.max(1), minimum_ms: offer.minimum_ms })
    }

    /// Returns the billed time for a time of use.
    pub(super) fn billed_ms(&self, used_ms: u64) -> u64 {
        used_ms.div_ceil(self.quantum_ms).saturating_mul(self.quantum_ms).max(self.minimum_ms)
    }

    pub(super) fn bill(&self, used_ms: u64) -> f64 {
        self.price_per_hour * self.billed_ms(used_ms) as f64 / HOUR_MS
    }

    /// Returns the additional bill if a machine is used for some more time. `used_ms` is `None` for a machine that is
    /// not billed yet.
    pub(super) fn further(&self, used_ms: Option<u64>, more_ms: u64) -> f64 {
        match used_ms {
            None => self.bill(more_ms),
            Some(used_ms) => self.bill(used_ms.saturating_add(more_ms)) - self.bill(used_ms),
        }
    }
}

/// Returns the time for which a machine has been billed; `None` if it is not billed yet.
pub(super) fn used_ms(machine: &MachineSeen, at_ms: u64) -> Option<u64> {
    let since_ms = match (machine.billed_since_ms, machine.place) {
        (Some(since_ms), _) => since_ms,
        (None, Place::There) => machine.requested_ms,
        (None, Place::Queued | Place::Asked) => return None,
    };
    Some(at_ms.saturating_sub(since_ms))
}

/// The spending since counting started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spending {
    /// The machines that exist or were requested.
    open: BTreeMap<String, Account>,
    /// Their tariffs without duplicates: there may be thousands of accounts.
    tariffs: Vec<Tariff>,
    /// The time of the last observation.
    until_ms: u64,
    /// The cost of the machines that are gone.
    closed: f64,
    /// Whether there was ever a machine without a known price.
    is_partial: bool,
    /// The time at which counting started, and the spending before.
    began_ms: Option<u64>,
    before: f64,
    /// Whether counting restarts with the next observation.
    begins_anew: bool,
}

/// The billing data of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<u64>, Option<usize>)", into = "(u64, Option<u64>, Option<usize>)")]
struct Account {
    /// The time of the request, or of the first observation.
    asked_ms: u64,
    /// The time from which it is billed; `None` if it does not exist yet.
    since_ms: Option<u64>,
    /// The index of its tariff; `None` if the price is unknown.
    tariff: Option<usize>,
}

impl From<(u64, Option<u64>, Option<usize>)> for Account {
    fn from((asked_ms, since_ms, tariff): (u64, Option<u64>, Option<usize>)) -> Self {
        Self { asked_ms, since_ms, tariff }
    }
}

impl From<Account> for (u64, Option<u64>, Option<usize>) {
    fn from(account: Account) -> Self {
        (account.asked_ms, account.since_ms, account.tariff)
    }
}

/// A stored time that is further ahead than this comes from a wrong clock, in milliseconds.
pub(crate) const AHEAD_MAX_MS: u64 = 60_000;

impl Account {
    /// Updates an account from an observation. A machine that did not exist at the last observation may have been
    /// billed since any time between the two.
    fn of(machine: &MachineSeen, before: Option<Self>, looked_ms: u64, at_ms: u64) -> Self {
        let told_ms = machine.billed_since_ms.unwrap_or(machine.requested_ms);
        let asked_ms =
            before.map_or(machine.requested_ms, |before| before.asked_ms.min(machine.requested_ms));
        let since_ms = match (before, machine.place) {
            (Some(Self { since_ms: Some(since_ms), asked_ms, .. }), _) => {
                // The connector may report only now that the machine existed before. Otherwise the observed time
                // counts: a queued job is listed with the time of its submission.
                Some(if told_ms < asked_ms { since_ms.min(told_ms) } else { since_ms })
            }
            (_, Place::Queued | Place::Asked) => None,
            (Some(before), Place::There) => Some(looked_ms.max(before.asked_ms).min(at_ms)),
            (None, Place::There) => Some(told_ms.min(at_ms)),
        };
        // A time in the future comes from a wrong clock.
        Self { asked_ms, since_ms: since_ms.map(|since_ms| since_ms.min(at_ms)), tariff: None }
    }
}

impl Spending {
    /// Updates the accounts, and returns the new machines. A machine that is no longer listed counts until now:
    /// unobserved time must not exceed a budget.
    pub(super) fn observe(&mut self, seen: &Observation) -> BTreeSet<String> {
        let offers: BTreeMap<&str, &OfferSeen> =
            seen.offers.iter().map(|offer| (&*offer.name, offer)).collect();
        let looked_ms = self.until_ms;
        let is_ahead = looked_ms > seen.at_ms.saturating_add(AHEAD_MAX_MS);
        self.until_ms = if is_ahead { seen.at_ms } else { looked_ms.max(seen.at_ms) };
        let (mut open, mut new) = (BTreeMap::new(), BTreeSet::new());
        for machine in &seen.machines {
            let before = self.open.remove(&machine.id);
            if before.is_none() {
                new.insert(machine.id.clone());
            }
            // The price is that of the first observation.
            let tariff = before.and_then(|account| account.tariff).or_else(|| {
                let tariff = offers.get(&*machine.offer).and_then(|offer| Tariff::of(offer))?;
                Some(self.place(tariff))
            });
            self.is_partial |= tariff.is_none();
            let account = Account::of(machine, before, looked_ms, seen.at_ms);
            open.insert(machine.id.clone(), Account { tariff, ..account });
        }
        self.closed += self.open.values().map(|account| self.bill(account)).sum::<f64>();
        self.open = open;
        if self.open.is_empty() {
            self.tariffs.clear();
        }
        if self.began_ms.is_none() || self.begins_anew {
            self.begins_anew = false;
            (self.began_ms, self.before) = (Some(seen.at_ms), 0.0);
            self.before = if looked_ms == 0 { 0.0 } else { self.known() };
            self.is_partial = self.open.values().any(|account| account.tariff.is_none());
        }
        new
    }

    /// Returns the index of a tariff, and adds a new one.
    fn place(&mut self, tariff: Tariff) -> usize {
        self.tariffs.iter().position(|known| *known == tariff).unwrap_or_else(|| {
            self.tariffs.push(tariff);
            self.tariffs.len() - 1
        })
    }

    fn bill(&self, account: &Account) -> f64 {
        let tariff = account.tariff.and_then(|place| self.tariffs.get(place));
        let used_ms = account.since_ms.map(|since_ms| self.until_ms.saturating_sub(since_ms));
        tariff.zip(used_ms).map_or(0.0, |(tariff, used_ms)| tariff.bill(used_ms))
    }

    /// Restarts counting with the next observation.
    pub(super) fn restart(&mut self) {
        self.begins_anew = true;
    }

    pub(super) fn knows(&self, machine: &str) -> bool {
        self.open.contains_key(machine)
    }

    pub(super) fn began_ms(&self) -> Option<u64> {
        self.began_ms
    }

    /// Returns the last observation with the best known times of the machines: a connector may report them sometimes
    /// or never.
    pub(super) fn settled(&self, seen: &Observation) -> Observation {
        let mut settled = seen.clone();
        for machine in &mut settled.machines {
            let Some(account) = self.open.get(&machine.id) else { continue };
            (machine.requested_ms, machine.billed_since_ms) = (account.asked_ms, account.since_ms);
        }
        settled
    }

    /// Returns the known part of the spending, including time that is paid in advance.
    pub(super) fn known(&self) -> f64 {
        let all = self.closed + self.open.values().map(|account| self.bill(account)).sum::<f64>();
        (all - self.before).max(0.0)
    }

    /// Returns the spending; `None` if a price is unknown.
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
    fn spending_counts_begun_quanta_once() {
        let mut spending = Spending::default();
        spending.observe(&seen(1, &[("m", 0), ("n", 0)], Some(2.0)));
        assert!((spending.known() - 4.0).abs() < 1e-9);
        spending.observe(&seen(3_600_000, &[("m", 0), ("n", 0)], Some(2.0)));
        assert!((spending.known() - 4.0).abs() < 1e-9, "the hour is not over");
        spending.observe(&seen(3_600_000, &[("m", 0)], Some(2.0)));
        spending.observe(&seen(3_600_001, &[("m", 0)], Some(2.0)));
        assert!((spending.known() - 6.0).abs() < 1e-9, "one more hour of the one that is there");
        spending.observe(&seen(7_200_000, &[], Some(2.0)));
        assert!((spending.total().unwrap() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn spending_without_price_is_unknown() {
        let mut spending = Spending::default();
        spending.observe(&seen(1, &[("m", 0)], None));
        assert_eq!(spending.total(), None);
        let mut spending = Spending::default();
        spending.observe(&seen(1, &[("m", 0)], Some(f64::NAN)));
        assert_eq!(spending.total(), None);
    }

    #[test]
    fn bill_has_minimum() {
        let offer = OfferSeen { price_per_hour: Some(60.0), minimum_ms: 60_000, ..OfferSeen::default() };
        let tariff = Tariff::of(&offer).unwrap();
        assert!((tariff.bill(1_500) - 1.0).abs() < 1e-9);
        assert!((tariff.bill(60_500) - 61.0 / 60.0).abs() < 1e-9);
    }

    /// An observation from a connector that reports no times: the machine always seems to be requested now.
    fn untimed(at_ms: u64, state: Place) -> Observation {
        let mut seen = seen(at_ms, &[("m", at_ms)], Some(1.0));
        seen.machines[0].place = state;
        seen.offers[0].quantum_ms = 1_000;
        seen
    }

    #[test]
    fn spending_without_reported_times_counts_from_first_observation() {
        let hour = 3_600_000;
        let mut spending = Spending::default();
        for at_ms in [hour, 2 * hour, 11 * hour] {
            spending.observe(&untimed(at_ms, Place::There));
        }
        assert!((spending.known() - 10.0).abs() < 1e-9, "{}", spending.known());
        let settled = spending.settled(&untimed(11 * hour, Place::There));
        assert_eq!(
            (settled.machines[0].requested_ms, settled.machines[0].billed_since_ms),
            (hour, Some(hour))
        );
        spending.observe(&seen(11 * hour, &[], Some(1.0)));
        assert!((spending.known() - 10.0).abs() < 1e-9, "{}", spending.known());
        // The connector reports later that the machine existed before.
        let mut spending = Spending::default();
        spending.observe(&untimed(3 * hour, Place::There));
        let mut told = untimed(4 * hour, Place::There);
        (told.machines[0].requested_ms, told.machines[0].billed_since_ms) = (hour, Some(hour));
        spending.observe(&told);
        assert!((spending.known() - 3.0).abs() < 1e-9, "{}", spending.known());
    }

    #[test]
    fn queued_machine_costs_nothing() {
        let hour = 3_600_000;
        let mut spending = Spending::default();
        // A job waits for five hours, listed with the time of its submission.
        for at_ms in [hour, 6 * hour - 5_000] {
            let mut queued = untimed(at_ms, Place::Queued);
            (queued.machines[0].requested_ms, queued.machines[0].billed_since_ms) = (hour, Some(hour));
            spending.observe(&queued);
            assert!(spending.known() < 1e-9, "{}", spending.known());
        }
        for at_ms in [6 * hour, 7 * hour - 5_000] {
            let mut runs = untimed(at_ms, Place::There);
            (runs.machines[0].requested_ms, runs.machines[0].billed_since_ms) = (hour, Some(hour));
            spending.observe(&runs);
        }
        assert!((spending.known() - 1.0).abs() < 1e-9, "{}", spending.known());
        // A request that is cancelled, or whose machines have ids by now.
        let mut spending = Spending::default();
        spending.observe(&untimed(hour, Place::Asked));
        spending.observe(&seen(2 * hour, &[], Some(1.0)));
        assert!(spending.known() < 1e-9, "{}", spending.known());
    }

    #[test]
    fn restarted_spending_excludes_earlier_costs() {
        let hour = 3_600_000;
        let mut spending = Spending::default();
        spending.observe(&untimed(hour, Place::There));
        spending.observe(&untimed(2 * hour, Place::There));
        spending.restart();
        // Spending in a time without observations belongs to the time before.
        spending.observe(&seen(50 * hour, &[], Some(1.0)));
        assert_eq!((spending.known(), spending.began_ms()), (0.0, Some(50 * hour)));
        spending.observe(&untimed(51 * hour, Place::There));
        spending.observe(&untimed(52 * hour, Place::There));
        assert!((spending.known() - 1.0).abs() < 1e-9, "{}", spending.known());
    }

    #[test]
    fn wrong_clock_is_not_billed_permanently() {
        let hour = 3_600_000;
        let mut spending = Spending::default();
        spending.observe(&untimed(hour, Place::There));
        spending.observe(&untimed(25 * hour, Place::There));
        spending.observe(&untimed(2 * hour, Place::There));
        assert!((spending.known() - 1.0).abs() < 1e-9, "{}", spending.known());
    }
}
