//! The displayed costs of a cluster, and their changes.

use super::{super::tracked::Tracked, CostCount, Costs, CostsAbout, CostsDelta, Spent, spent::pay};

/// The maximum number of warnings.
const WARNINGS_MAX: usize = 20;
/// The interval at which changed sums are shown, in milliseconds: they are large.
const SHOWN_EVERY_MS: u64 = 10_000;

/// The displayed costs.
#[derive(Debug, Default)]
pub(super) struct Shown {
    at_ms: u64,
    /// The tick of the last change.
    changed: u64,
    about: CostsAbout,
    hours: Tracked<Spent>,
    labels: Tracked<Spent>,
}

impl CostCount {
    pub(super) fn show(&mut self, seq: u64, at_ms: u64) {
        let mut about = CostsAbout { since_ms: self.since_ms, ..CostsAbout::default() };
        for (name, node) in self.nodes.iter().filter(|(_, node)| node.member.is_some()) {
            about.nodes += 1;
            match &node.price {
                Ok(Some(price)) => pay(&mut about.an_hour, &price.currency, price.an_hour),
                Ok(None) => about.unpriced += 1,
                Err(wrong) => {
                    about.unpriced += 1;
                    if about.warnings.len() < WARNINGS_MAX {
                        about.warnings.push(format!("node {name}: {wrong}"));
                    }
                }
            }
        }
        let shown = &mut self.shown;
        about.total.clone_from(&shown.about.total);
        let is_due = at_ms.saturating_sub(shown.at_ms) >= SHOWN_EVERY_MS || shown.changed == 0;
        if about == shown.about && !is_due {
            return;
        }
        (shown.at_ms, shown.changed) = (at_ms, seq);
        about.total.clone_from(&self.total);
        shown.about = about;
        for (hour, spent) in &self.hours {
            shown.hours.set(seq, &hour_name(*hour), spent.clone());
        }
        let first = self.hours.first_key_value().map(|(hour, _)| hour_name(*hour)).unwrap_or_default();
        shown.hours.retain(seq, |hour| hour >= first.as_str());
        for (label, spent) in &self.labels.sums {
            shown.labels.set(seq, label, spent.clone());
        }
    }

    /// Returns the displayed costs.
    pub(in crate::view) fn shown(&self) -> Costs {
        let Shown { about, hours, labels, .. } = &self.shown;
        Costs { about: about.clone(), hours: hours.all(), labels: labels.all() }
    }

    /// Returns whether anything has changed after a tick.
    pub(in crate::view) fn has_changed(&self, tick: u64) -> bool {
        self.shown.changed > tick
    }

    /// Returns the changes after a tick; `None` if they are no longer known.
    pub(in crate::view) fn since(&self, tick: u64) -> Option<CostsDelta> {
        let Shown { about, hours, labels, .. } = &self.shown;
        Some(CostsDelta { about: about.clone(), hours: hours.since(tick)?, labels: labels.since(tick)? })
    }
}

/// Returns the name of an hour. Names sort like hours.
fn hour_name(hour: u64) -> String {
    format!("{hour:08}")
}
