//! The shares of a run's jobs of the workers of a cluster, in virtual time.

use std::{collections::BTreeMap, fmt};

use crate::{invariants::Facts, workload::Truth};

/// The weights of the jobs in plans of the kind [`Weights`](crate::plan::Kind::Weights).
pub(crate) const WEIGHTS: [u32; 3] = [1, 2, 5];

/// The time after the first slice of the last job from which slices count, in milliseconds: tasks must reach
/// the nodes.
const SPREAD_MS: u64 = 500;
/// The part of a job's states, in thousandths, after which slices no longer count: it runs out of tasks.
const PLENTY: u64 = 500;
/// The minimum number of slices from which shares are computed.
const SLICES_MIN: u64 = 200;
/// The maximum difference between a share and its weight's share in a run without faults: in some of them,
/// nodes soon run short of tasks.
const TOLERANCE: f64 = 0.1;

/// The slices of each job, by weight, while all jobs have tasks for all nodes.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    slices: BTreeMap<u32, u64>,
    /// The time when the last job started.
    all_begun_ms: Option<u64>,
    is_over: bool,
}

impl Observed {
    /// Records a slice of the job with this number.
    pub(crate) fn note(&mut self, facts: &Facts, now: u64, job: u64) {
        let Some((its, record)) = facts.numbered(job) else { return };
        let weight = record.share.weight.get();
        if self.is_over || !WEIGHTS.contains(&weight) {
            return;
        }
        let counted = self.slices.entry(weight).or_default();
        if self.all_begun_ms.is_some_and(|at| now >= at + SPREAD_MS) {
            *counted += 1;
        }
        if self.slices.len() == WEIGHTS.len() {
            self.all_begun_ms.get_or_insert(now);
        }
        let Truth::Done(whole) = its.truth else { return };
        self.is_over = its.visited() as u64 * 1000 >= whole.states * PLENTY;
    }

    /// Returns the share of each weight, in the order of [`WEIGHTS`], if there are enough slices.
    pub(crate) fn shares(&self) -> Option<[f64; 3]> {
        let all: u64 = self.slices.values().sum();
        let share = |weight| self.slices.get(&weight).map_or(0.0, |slices| *slices as f64 / all as f64);
        (all >= SLICES_MIN).then(|| WEIGHTS.map(share))
    }

    /// Returns the problem with the shares in a run without faults, if any.
    pub(crate) fn unfair(&self) -> Option<String> {
        let Some(shares) = self.shares() else {
            return Some("too little work was done to measure shares".to_owned());
        };
        let all: u32 = WEIGHTS.iter().sum();
        let is_off =
            |(share, weight): (f64, u32)| (share - f64::from(weight) / f64::from(all)).abs() > TOLERANCE;
        let is_unfair = shares.into_iter().zip(WEIGHTS).any(is_off);
        is_unfair.then(|| format!("jobs of the weights {WEIGHTS:?} had the shares {shares:.3?}"))
    }
}

/// The shares of many runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SharesSeen {
    /// The number of runs with enough work while all jobs had tasks.
    pub runs: u64,
    sum: [f64; 3],
    least: [f64; 3],
    most: [f64; 3],
}

impl SharesSeen {
    pub(crate) fn add(&mut self, shares: [f64; 3]) {
        for (place, share) in shares.into_iter().enumerate() {
            self.sum[place] += share;
            self.least[place] = if self.runs == 0 { share } else { self.least[place].min(share) };
            self.most[place] = self.most[place].max(share);
        }
        self.runs += 1;
    }

    /// Returns the mean share of each weight, in the order of the weights.
    pub fn mean(&self) -> [f64; 3] {
        self.sum.map(|sum| sum / self.runs.max(1) as f64)
    }
}

impl fmt::Display for SharesSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shares over {} runs:", self.runs)?;
        for (place, mean) in self.mean().into_iter().enumerate() {
            let (least, most) = (self.least[place], self.most[place]);
            write!(f, " weight {} has {mean:.3} ({least:.3} to {most:.3});", WEIGHTS[place])?;
        }
        Ok(())
    }
}
