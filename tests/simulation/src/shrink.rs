//! Shrinking: finds a smaller plan that still fails.

use std::collections::BTreeSet;

use crate::{
    plan::{Plan, Without},
    run,
};

/// The parts that can be left out of a seed's plan so that it still fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// The indices of the faults that are not needed.
    pub without_faults: BTreeSet<usize>,
    /// Whether random faults are not needed.
    pub without_rates: bool,
    /// The remaining plan, as text.
    pub plan: String,
}

/// Leaves out one part after another, as long as the seed still fails.
pub fn shrink(seed: u64, nodes: Option<usize>) -> Shrunk {
    let plan = Plan::new(seed, nodes);
    let fails = |without: &Without| !run::run(&plan.clone().without(without), false).violations.is_empty();
    let mut without = Without::default();
    let rateless = Without { rates: true, ..without.clone() };
    if fails(&rateless) {
        without = rateless;
    }
    // Half of the faults at first, then smaller and smaller parts.
    let mut size = plan.faults.len().div_ceil(2);
    while size > 0 {
        for first in (0..plan.faults.len()).step_by(size) {
            let mut fewer = without.clone();
            fewer.faults.extend(first..(first + size).min(plan.faults.len()));
            if fewer != without && fails(&fewer) {
                without = fewer;
            }
        }
        size /= 2;
    }
    let plan = plan.without(&without).to_string();
    Shrunk { without_faults: without.faults, without_rates: without.rates, plan }
}
