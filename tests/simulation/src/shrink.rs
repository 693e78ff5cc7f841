//! Making a plan that fails smaller: what of it is enough to fail.

use std::collections::BTreeSet;

use crate::{
    plan::{Plan, Without},
    run,
};

/// What can be left out of a seed's plan so that it still fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// The places of the faults that are not needed.
    pub without_faults: BTreeSet<usize>,
    /// Whether nothing needs to go wrong by itself.
    pub without_rates: bool,
    /// What is left, in words.
    pub plan: String,
}

/// Leaves out, one after another, whatever is not needed for the seed to fail.
pub fn shrink(seed: u64, nodes: Option<usize>) -> Shrunk {
    let plan = Plan::new(seed, nodes);
    let fails = |without: &Without| !run::run(&plan.clone().without(without), false).violations.is_empty();
    let mut without = Without::default();
    let rateless = Without { rates: true, ..without.clone() };
    if fails(&rateless) {
        without = rateless;
    }
    // Half of them at first, then ever smaller parts.
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
