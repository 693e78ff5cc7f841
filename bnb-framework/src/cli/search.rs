//! The options of a search, and the job that is made from them and a problem.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use taskwork::Report;
use taskwork_cli::{Failure, Prepared, ProgressDisplay, Shown};

use super::{
    DisplaySolution,
    answer::shown,
    progress::{display, display_of},
};
use crate::{
    options::{Collect, Options, Replicable, Split, Strategy, Tolerance},
    problem::Problem,
    search::SearchTask,
    sequential,
    solver::{Solved, Solver},
};

/// The options of a search.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct SearchArguments {
    /// The order in which open states are visited.
    #[arg(help_heading = "Search", long, value_enum, default_value = "depth-first")]
    strategy: Order,
    /// The maximum number of open states that a task keeps, in an order other than depth first; beyond that,
    /// it searches depth first.
    #[arg(help_heading = "Search", long, value_name = "STATES", default_value_t = Strategy::OPEN_MAX)]
    open_max: usize,
    /// The part that is split off when workers are hungry.
    #[arg(help_heading = "Search", long, value_enum, default_value = "in-order")]
    split: SplitOff,
    /// The share of the time for the problem's heuristics, if it has any, at first and while they find better
    /// solutions. Workers without a task run them, too. With 0 they are not used, and the search starts without a
    /// solution.
    #[arg(help_heading = "Search", long, value_name = "SHARE", default_value_t = Options::<u64>::HEURISTICS, value_parser = share)]
    heuristics: f64,
    /// Visit the same states and find the same solution however many workers and nodes there are, depth first. Takes
    /// longer.
    #[arg(help_heading = "Search", long, conflicts_with_all = [
        "strategy", "split", "best", "within", "within_relative", "no_pruning",
    ])]
    replicable: bool,
    /// Only decide whether there is a solution as good as this.
    #[arg(help_heading = "Search", long, value_name = "COST", allow_hyphen_values = true)]
    target: Option<String>,
    /// Search only for solutions that are better than this.
    #[arg(help_heading = "Search", long, value_name = "COST", allow_hyphen_values = true)]
    cutoff: Option<String>,
    /// Accept a solution that is no further than this from the optimum, in units of the cost.
    #[arg(help_heading = "Search", long, value_name = "COST", default_value = "0", value_parser = not_negative)]
    gap: f64,
    /// The same as a share of the cost: 0.01 is one per cent.
    #[arg(help_heading = "Search", long, value_name = "SHARE", default_value = "0", value_parser = not_negative)]
    relative_gap: f64,
    /// Stop after this many seconds, with the best solution and the bound proven so far. With --state,
    /// the same command continues from there.
    #[arg(help_heading = "Search", long, value_name = "SECONDS", value_parser = seconds)]
    time_limit: Option<Duration>,
    /// Stop after about this many states, with the best solution and the bound proven so far. This completes the
    /// search: with --state, the same command gives the same answer again.
    #[arg(help_heading = "Search", long, value_name = "STATES", value_parser = clap::value_parser!(u64).range(1..))]
    state_limit: Option<u64>,
    /// Collect this many of the best solutions.
    #[arg(help_heading = "Search", long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    best: Option<u32>,
    /// Collect the solutions that are no further than this from the optimum, in units of the cost; at most
    /// --best, or 1000.
    #[arg(help_heading = "Search", long, value_name = "COST", value_parser = not_negative)]
    within: Option<f64>,
    /// The same as a share of the cost.
    #[arg(help_heading = "Search", long, value_name = "SHARE", value_parser = not_negative)]
    within_relative: Option<f64>,
    /// Visit every state, regardless of its bound.
    #[arg(help_heading = "Search", long, conflicts_with_all = [
        "target", "cutoff", "gap", "relative_gap", "best", "within", "within_relative",
    ])]
    no_pruning: bool,
    /// Search without the runtime, by the plain sequential reference, for comparison.
    #[arg(help_heading = "Search", long, conflicts_with_all = [
        "strategy", "split", "replicable", "target", "cutoff", "gap", "relative_gap", "time_limit", "state_limit", "best", "within",
        "within_relative",
    ])]
    sequential: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "that is what they are called")]
enum Order {
    /// In the order of the children.
    DepthFirst,
    /// Depth first, the children with the best bounds first.
    BestChildFirst,
    /// The best bound first, wherever it is.
    BestFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitOff {
    /// The next states in the order of the sequential search, in small pieces.
    InOrder,
    /// Half of the shallowest level.
    Half,
    /// The next state of the shallowest level.
    Next,
    /// The next state of the shallowest level and half of that level, in turn.
    Alternating,
    /// The next state of the shallowest level; the task that deviates least from the order of the children
    /// starts first.
    Discrepancy,
}

/// The default maximum number of solutions collected within a distance of the optimum.
const COLLECT_MAX: usize = 1000;

impl SearchArguments {
    /// Returns whether the sequential reference was requested.
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Returns the time limit, if there is one.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Returns whether heuristics are enabled, including the initial solution.
    pub fn has_heuristics(&self) -> bool {
        self.heuristics > 0.0
    }

    /// Returns whether every state is visited.
    pub fn is_without_pruning(&self) -> bool {
        self.no_pruning
    }

    /// Applies the options to a solver. `read` parses a cost, and `unit` is the cost that a displayed
    /// difference of 1 stands for.
    ///
    /// # Errors
    /// Fails if a cost is invalid.
    pub fn apply<P: Problem>(
        &self,
        mut solver: Solver<P>,
        read: impl Fn(&str) -> Option<P::Cost>,
        unit: f64,
    ) -> Result<Solver<P>, Failure> {
        let cost = |option: &str, text: &str| {
            let wrong =
                || Failure::usage(format!("{option}: found {text:?}; expected a cost of this problem"));
            read(text).ok_or_else(wrong)
        };
        let open_max = self.open_max;
        solver = solver
            .pruning(!self.no_pruning)
            .strategy(match self.strategy {
                Order::DepthFirst => Strategy::DepthFirst,
                Order::BestChildFirst => Strategy::BestChildFirst { open_max },
                Order::BestFirst => Strategy::BestFirst { open_max },
            })
            .split(match self.split {
                SplitOff::Half => Split::Half,
                SplitOff::InOrder => Split::InOrder,
                SplitOff::Next => Split::Next,
                SplitOff::Alternating => Split::Alternating,
                SplitOff::Discrepancy => Split::Discrepancy,
            })
            .tolerance(Tolerance { absolute: self.gap * unit, relative: self.relative_gap });
        solver = solver.heuristics(self.heuristics);
        if self.replicable {
            solver = solver.replicable(Replicable::default());
        }
        if let Some(target) = &self.target {
            solver = solver.target(cost("--target", target)?);
        }
        if let Some(cutoff) = &self.cutoff {
            solver = solver.cutoff(cost("--cutoff", cutoff)?);
        }
        if let Some(limit) = self.time_limit {
            solver = solver.time_limit(limit);
        }
        if let Some(states) = self.state_limit {
            solver = solver.state_limit(states);
        }
        if let Some(collect) = self.collect(unit) {
            let solver_of_all = solver.with_every_solution().ok_or_else(|| {
                Failure::usage(
                    "--best, --within and --within-relative are for searches that come by every solution; \
                     this one stops short at the best below a state",
                )
            })?;
            solver = solver_of_all.collect(collect);
        }
        Ok(solver)
    }

    fn collect(&self, unit: f64) -> Option<Collect> {
        let near = self.within.is_some() || self.within_relative.is_some();
        let within = near.then(|| Tolerance {
            absolute: unit * self.within.unwrap_or(0.0),
            relative: self.within_relative.unwrap_or(0.0),
        });
        let at_most = self.best.map(|best| usize::try_from(best).unwrap_or(usize::MAX));
        let at_most = at_most.or(near.then_some(COLLECT_MAX))?;
        Some(Collect { at_most, within })
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number, 0 or more".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 1".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=1e9).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds".to_owned())
}

/// Makes a job of a search.
///
/// # Errors
/// Fails if the arguments are invalid.
pub fn prepare<P: DisplaySolution>(
    kind: &'static str,
    solver: Solver<P>,
    arguments: &SearchArguments,
) -> Result<Prepared, Failure> {
    if arguments.sequential {
        let problem = solver.problem().clone();
        let started = Instant::now();
        let found = sequential::try_solve(&problem, !arguments.no_pruning, solver.started_from());
        let found = found.map_err(Failure::failed)?;
        let solved = found.solved(started.elapsed());
        return Ok(Prepared::at_once(shown(&problem, &solved, &Options::default())?));
    }
    let (reader, unit) = (solver.problem().clone(), solver.problem().unit());
    let solver = arguments.apply(solver, |text| reader.read_cost(text), unit)?;
    let (problem, options) = (solver.problem().clone(), solver.options().clone());
    let display = display_of(problem.clone());
    prepare_told(kind, solver, display, move |report| {
        shown(&problem, &Solved::from_report(&report, &options), &options)
    })
}

/// Makes the job of a search with a custom presentation. `show` presents the report.
///
/// A [time limit](Solver::time_limit) completes the search, unless its state is kept (`solve --state`):
/// then it only suspends the search.
///
/// # Errors
/// As for [`Solver::job`].
pub fn prepare_solver<P: Problem>(
    kind: &'static str,
    solver: Solver<P>,
    show: impl FnOnce(Report<SearchTask<P>>) -> Result<Shown, Failure> + Send + 'static,
) -> Result<Prepared, Failure> {
    prepare_told(kind, solver, display::<P>(), show)
}

fn prepare_told<P: Problem>(
    kind: &'static str,
    solver: Solver<P>,
    display: ProgressDisplay,
    show: impl FnOnce(Report<SearchTask<P>>) -> Result<Shown, Failure> + Send + 'static,
) -> Result<Prepared, Failure> {
    let solver = solver.checked()?;
    let Some(limit_ms) = solver.options().time_limit_ms else {
        return Ok(Prepared::watched(kind, solver.into_parts().0, display, show));
    };
    let limit = Duration::from_millis(limit_ms);
    let job = move |limit: Option<Duration>| {
        let solver = if limit.is_some() { solver } else { solver.without_time_limit() };
        solver.into_parts().0
    };
    Ok(Prepared::limited(kind, limit, job, display, show))
}
