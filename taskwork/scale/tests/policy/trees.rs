//! Search trees as the policy sees them: the work, the reported share and the number of workers that can be kept
//! busy, by the completed part.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::{chance::normal, recorded};

/// The shapes of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All subtrees of a level have the same size.
    Uniform,
    /// Very different subtrees: the share is that of a recorded run.
    Recorded,
    /// A long path with a subtree at each node: most of the share is completed early.
    Comb,
    /// A good solution is found late, and cuts off most of the rest.
    LateIncumbent,
    /// Takes seconds.
    Tiny,
    /// One node after another.
    Chain,
}

impl Shape {
    /// All shapes.
    pub(crate) const ALL: [Self; 6] =
        [Self::Uniform, Self::Recorded, Self::Comb, Self::LateIncumbent, Self::Tiny, Self::Chain];
    /// The shapes that keep a cluster busy for at least 20 minutes.
    pub(crate) const LONG: [Self; 5] =
        [Self::Uniform, Self::Recorded, Self::Comb, Self::LateIncumbent, Self::Chain];
}

/// A tree of known size.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// Its work, in seconds of a single worker.
    pub(crate) work: f64,
    /// The loss by contention, and by communication between pairs of workers.
    alpha: f64,
    beta: f64,
    /// The part of the loss that is idle time; the rest slows the workers down.
    idle_part: f64,
    /// The reported share after each thousandth of the work.
    shares: Vec<f64>,
    /// The number of workers that can be kept busy after each thousandth of the work.
    feeds: Vec<f64>,
}

const STEPS: usize = 1000;

impl Tree {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let mut chance = SmallRng::seed_from_u64(seed ^ 0x7ee5);
        let work = match shape {
            // 20 minutes to three hours with 500 workers.
            Shape::Uniform | Shape::Recorded | Shape::LateIncumbent => {
                500.0 * 1200.0 * 9_f64.powf(chance.random::<f64>())
            }
            Shape::Comb => 100.0 * 1200.0 * 9_f64.powf(chance.random::<f64>()),
            Shape::Tiny => 20.0 * 15_f64.powf(chance.random::<f64>()),
            Shape::Chain => 1200.0 * 6_f64.powf(chance.random::<f64>()),
        };
        let alpha = 1.5e-4 * normal(&mut chance).exp();
        let beta = 1e-7 * normal(&mut chance).exp();
        let idle_part = chance.random_range(0.4..1.0);
        let mut shares = shares(shape, &mut chance);
        // Small errors, which vanish at the end; the share never falls.
        let mut before: f64 = 0.0;
        for share in &mut shares {
            before = before.max(*share * (1.0 + 0.01 * (1.0 - *share) * normal(&mut chance))).min(1.0);
            *share = before;
        }
        let feeds = feeds(shape, work, &mut chance);
        Self { work, alpha, beta, idle_part, shares, feeds }
    }

    /// A uniform tree whose last task takes half an hour.
    pub(crate) fn with_a_long_last_task(seed: u64) -> Self {
        let mut tree = Self::new(Shape::Uniform, seed);
        tree.work = 600_000.0;
        for fed in tree.feeds.iter_mut().rev().take(4) {
            *fed = 1.0;
        }
        tree
    }

    /// The reported share after a part of the work.
    pub(crate) fn share(&self, part: f64) -> f64 {
        at(&self.shares, part)
    }

    /// The number of workers that can be kept busy after a part of the work.
    pub(crate) fn feeds(&self, part: f64) -> f64 {
        at(&self.feeds, part)
    }

    /// The useful workers and the busy workers of a number, after a part of the work.
    pub(crate) fn useful(&self, workers: f64, part: f64) -> (f64, f64) {
        let fed = workers.min(self.feeds(part));
        let lost = self.alpha * (fed - 1.0).max(0.0) + self.beta * fed * (fed - 1.0).max(0.0);
        (fed / (1.0 + lost), fed / (1.0 + lost * self.idle_part))
    }
}

fn at(values: &[f64], part: f64) -> f64 {
    let place = part.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let low = place.floor();
    let (one, two) = (values[low as usize], values[(low as usize + 1).min(values.len() - 1)]);
    one + (two - one) * (place - low)
}

fn shares(shape: Shape, chance: &mut SmallRng) -> Vec<f64> {
    let parts = (0..=STEPS).map(|step| step as f64 / STEPS as f64);
    match shape {
        Shape::Uniform | Shape::Tiny | Shape::Chain => parts.collect(),
        Shape::Recorded => {
            let runs = recorded::runs();
            let (_, run) = &runs[chance.random_range(0..runs.len())];
            parts.map(|part| at(run, part)).collect()
        }
        Shape::Comb => {
            let power = chance.random_range(0.4..0.8);
            parts.map(|part: f64| part.powf(power)).collect()
        }
        Shape::LateIncumbent => {
            let (found, before) = (chance.random_range(0.15..0.5), chance.random_range(0.1..0.5));
            parts.map(|part| if part < found { part * before } else { part }).collect()
        }
    }
}

fn feeds(shape: Shape, work: f64, chance: &mut SmallRng) -> Vec<f64> {
    let level = match shape {
        Shape::Comb => chance.random_range(40.0..200.0),
        Shape::Chain => 1.0,
        Shape::Tiny => 64.0,
        Shape::Recorded => 1_500.0,
        _ => 20_000.0,
    };
    let parts = (0..=STEPS).map(|step| step as f64 / STEPS as f64);
    parts
        .map(|part| {
            // There is one task at the start, and few at the end; both phases are short.
            let edge = (1.0 + part * work * 20.0).min(1.0 + (1.0 - part) * work);
            let wave = if shape == Shape::Recorded { 1.0 + 0.7 * (part * 40.0).sin() } else { 1.0 };
            (level * wave).min(edge).max(1.0)
        })
        .collect()
}
