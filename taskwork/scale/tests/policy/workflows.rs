//! Workflows for simulations: calls with durations and dependencies.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::chance::normal;

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The number of its task: calls of a task have similar durations.
    pub(crate) task: usize,
    pub(crate) took_s: f64,
    /// The calls that it waits for, which come before it.
    pub(crate) after: Vec<usize>,
}

/// The calls of a program, known from its start.
#[derive(Debug, Clone)]
pub(crate) struct Workflow {
    pub(crate) calls: Vec<Call>,
    /// The calls that wait for each call.
    pub(crate) readers: Vec<Vec<usize>>,
}

impl Workflow {
    fn of(calls: Vec<Call>) -> Self {
        let mut readers = vec![Vec::new(); calls.len()];
        for (number, call) in calls.iter().enumerate() {
            call.after.iter().for_each(|before| readers[*before].push(number));
        }
        Self { calls, readers }
    }

    /// The gene detection of E. Tejedor's thesis (2013, table 6.1): 3,068 calls of 12.62 s on average, from 2.42 to 45.49 s,
    /// and a tree of 3,067 merges of 0.2 s.
    pub(crate) fn genes(seed: u64) -> Self {
        const CALLS: usize = 3_068;
        let mut chance = SmallRng::seed_from_u64(seed);
        let mut lengths: Vec<f64> = (0..CALLS).map(|_| (0.55 * normal(&mut chance)).exp()).collect();
        // The mean after truncation is that of the table.
        for _ in 0..20 {
            let factor = 12.62 * CALLS as f64 / lengths.iter().sum::<f64>();
            for length in &mut lengths {
                *length = (*length * factor).clamp(2.42, 45.49);
            }
        }
        let mut calls: Vec<Call> =
            lengths.into_iter().map(|took_s| Call { task: 0, took_s, after: Vec::new() }).collect();
        let mut latest: Vec<usize> = (0..CALLS).collect();
        let mut next = 1;
        while next < CALLS {
            for result in (0..CALLS - next).step_by(2 * next) {
                calls.push(Call { task: 1, took_s: 0.2, after: vec![latest[result], latest[result + next]] });
                latest[result] = calls.len() - 1;
            }
            next *= 2;
        }
        Self::of(calls)
    }

    /// A random workflow: phases of up to 1,000 calls of one task each, whose calls read some results of the phase before.
    pub(crate) fn random(seed: u64) -> Self {
        let mut chance = SmallRng::seed_from_u64(seed ^ 0xf10);
        let mut calls = Vec::new();
        let mut before = 0..0;
        for task in 0..chance.random_range(2..7) {
            let mean_s: f64 = 2.0 * 60_f64.powf(chance.random());
            let spread = chance.random_range(0.1..0.8);
            let width = 1_000_f64.powf(chance.random::<f64>()).ceil() as usize;
            let reads = if chance.random_bool(0.3) { before.len() } else { chance.random_range(1..4) };
            let start = calls.len();
            for _ in 0..width {
                let after = match before.len() {
                    0 => Vec::new(),
                    most if reads >= most => before.clone().collect(),
                    _ => (0..reads).map(|_| chance.random_range(before.clone())).collect(),
                };
                let took_s = mean_s * (spread * normal(&mut chance) - spread * spread / 2.0).exp();
                calls.push(Call { task, took_s, after });
            }
            before = start..calls.len();
        }
        Self::of(calls)
    }

    /// Returns the time of the longest chain that starts with each call, with these durations.
    pub(crate) fn chains(&self, took_s: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut chains = vec![0.0; self.calls.len()];
        for number in (0..self.calls.len()).rev() {
            let after = self.readers[number].iter().map(|reader| chains[*reader]).fold(0.0, f64::max);
            chains[number] = after + took_s(number);
        }
        chains
    }
}

#[test]
fn genes_have_the_statistics_of_the_thesis() {
    let genes = Workflow::genes(1);
    let of = |task| genes.calls.iter().filter(move |call| call.task == task).map(|call| call.took_s);
    assert_eq!((of(0).count(), of(1).count()), (3_068, 3_067));
    assert!((of(0).sum::<f64>() / 3_068.0 - 12.62).abs() < 0.05);
    assert!(of(0).fold(f64::INFINITY, f64::min) >= 2.42 && of(0).fold(0.0, f64::max) <= 45.49);
    let roots = genes.readers.iter().filter(|readers| readers.is_empty()).count();
    assert_eq!(roots, 1, "the last merge has all results");
}
