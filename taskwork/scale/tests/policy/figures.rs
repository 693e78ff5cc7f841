//! Common scenarios and statistics.

use std::{env, ops::Range};

use taskwork_scale::policy::{Goals, OfferSeen};

use crate::{
    cloud::Kind,
    trees::{Shape, Tree},
    world::World,
};

/// The maximum number of machines.
pub(crate) const MAX: u32 = 128;
/// The price of an hour of delay.
pub(crate) const DELAY_PRICE: f64 = 5.0;
/// The price of an hour of a worker.
const WORKER_PRICE: f64 = 0.1;

/// Whether this is the long run, which asserts all bounds.
pub(crate) fn is_long() -> bool {
    env::var_os("TASKWORK_LONG").is_some_and(|value| value == "1")
}

/// The seeds of a scenario.
pub(crate) fn seeds(few: u64) -> Range<u64> {
    let told = env::var("TASKWORK_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    0..told.unwrap_or(if is_long() { 200 } else { few })
}

/// Machines of 16 workers, billed by the second, with a median start time of 40 s.
pub(crate) fn machines() -> Kind {
    let offer = OfferSeen {
        name: "node".to_owned(),
        workers: 16,
        price_per_hour: Some(16.0 * WORKER_PRICE),
        quantum_ms: 1_000,
        minimum_ms: 60_000,
        max: MAX,
        start_ms: 40_000,
        ..OfferSeen::default()
    };
    Kind { offer, losses_per_hour: 0.0, notice_ms: 0, quota: u32::MAX }
}

/// The same machines, billed by the hour.
pub(crate) fn hourly() -> Kind {
    let mut kind = machines();
    (kind.offer.quantum_ms, kind.offer.minimum_ms) = (3_600_000, 0);
    kind
}

/// A tree of a shape, searched on machines.
pub(crate) fn world(shape: Shape, seed: u64, kind: Kind) -> World {
    World { tree: Tree::new(shape, seed), kinds: vec![kind], seed, budget: None }
}

/// Only the maximum number of machines.
pub(crate) fn goals() -> Goals {
    Goals { max: MAX, ..Goals::default() }
}

/// Sorted measurements.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    pub(crate) fn add(&mut self, figure: f64) {
        let place = self.0.partition_point(|other| *other < figure);
        self.0.insert(place, figure);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The quantile of a share.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }

    /// The share of the figures that are at least this large.
    pub(crate) fn share_from(&self, least: f64) -> f64 {
        self.0.iter().filter(|figure| **figure >= least).count() as f64 / self.0.len() as f64
    }

    pub(crate) fn summary(&self) -> String {
        let at = |share| self.quantile(share);
        format!(
            "least {:.2}, median {:.2}, 95 % {:.2}, most {:.2} of {}",
            at(0.0),
            at(0.5),
            at(0.95),
            at(1.0),
            self.count()
        )
    }
}
