//! The results of the example programs in a limited time on two workers: which published instances they
//! prove, the bounds of the others, and the time until solutions are good. The programs may be of another
//! build.
//!
//! Times are those of whole processes, including the time before the search.

mod solve;
mod table;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use taskwork_tests::{data, published};

use self::solve::Programs;
pub use self::table::{heading, line, summary};

/// The settings to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The time for each instance, in seconds.
    pub limit_s: u64,
    /// The folder of the programs; by default that of this program.
    pub programs: Option<PathBuf>,
    /// Only instances whose name contains this.
    pub only: Option<String>,
}

/// The result for an instance.
#[derive(Debug, Clone, Serialize)]
pub struct Reached {
    /// Its name.
    pub instance: String,
    /// The program.
    pub program: String,
    /// The published optimum.
    pub optimum: u64,
    /// Whether the program has proven its answer within the limit.
    pub proven: bool,
    /// The time until it has ended, in seconds.
    pub seconds: f64,
    /// The cost of its best solution.
    pub best: Option<f64>,
    /// The bound that it has proven.
    pub bound: Option<f64>,
    /// The distance between both after [`GAP_AFTER_S`], as a share of the best.
    pub gap_after: Option<f64>,
    /// The time until it had a solution within 1 % of the optimum, in seconds; `None` if not within the limit.
    pub near_s: Option<f64>,
}

/// The time after which the gap is measured, in seconds.
pub const GAP_AFTER_S: u64 = 10;

/// Solves each instance, and passes each result to `report` as soon as it is known.
///
/// # Errors
/// If the instances or the programs are missing, or a result that is reported as proven is wrong.
pub fn run(plan: &Plan, mut report: impl FnMut(&Reached)) -> Result<Vec<Reached>> {
    let folder = data::folder().context("no published instances")?;
    let programs = Programs::of(plan.programs.as_deref());
    let mut all = Vec::new();
    for case in published::all_indexed(&folder)? {
        let name = solve::name(&case);
        if plan.only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let reached = programs.reach(&case, plan.limit_s).with_context(|| format!("{name} failed"))?;
        report(&reached);
        all.push(reached);
    }
    ensure!(!all.is_empty(), "no instance has such a name");
    Ok(all)
}
