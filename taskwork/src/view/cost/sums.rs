//! Sums of the costs of nodes, in total and by label.

use std::collections::BTreeMap;

use zk::Labels;

use super::{
    price::{self, Price},
    spent::{Spent, pay},
};

/// The maximum number of label names with separate costs.
const NAMES_MAX: usize = 16;
/// The maximum number of values of a label with separate costs.
pub(super) const VALUES_MAX: usize = 32;

/// Sums by label. Positions do not change.
#[derive(Debug, Default)]
pub(super) struct ByLabel {
    places: BTreeMap<String, BTreeMap<String, usize>>,
    pub(super) sums: Vec<(String, Spent)>,
}

/// A part of the time of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Membership, leaving or not.
    There {
        draining: bool,
    },
    Busy,
    Starting,
}

impl ByLabel {
    /// Returns the positions of the sums of labels; surplus values of a label share one.
    pub(super) fn places_of(&mut self, labels: &Labels) -> Vec<usize> {
        let counted = labels.iter().filter(|(name, _)| ![price::PRICE, price::CURRENCY].contains(name));
        counted.filter_map(|(name, value)| self.place(name, value)).collect()
    }

    fn place(&mut self, name: &str, value: &str) -> Option<usize> {
        if self.places.len() >= NAMES_MAX && !self.places.contains_key(name) {
            return None;
        }
        let values = self.places.entry(name.to_owned()).or_default();
        let value = if values.len() < VALUES_MAX || values.contains_key(value) { value } else { "…" };
        let place = *values.entry(value.to_owned()).or_insert(self.sums.len());
        if place == self.sums.len() {
            self.sums.push((format!("{name}={value}"), Spent::default()));
        }
        Some(place)
    }
}

impl Spent {
    pub(super) fn add(&mut self, ms: u64, part: Part, price: Option<&Price>) {
        let sum = match part {
            Part::Busy => &mut self.busy_ms,
            Part::Starting => &mut self.starting_ms,
            Part::There { draining } => {
                if draining {
                    self.draining_ms = self.draining_ms.saturating_add(ms);
                }
                match price {
                    Some(price) => pay(&mut self.money, &price.currency, price.of_ms(ms as f64)),
                    None => self.unpriced_ms = self.unpriced_ms.saturating_add(ms),
                }
                &mut self.node_ms
            }
        };
        *sum = sum.saturating_add(ms);
    }
}
