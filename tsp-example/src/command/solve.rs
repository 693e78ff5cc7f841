//! `tsp solve`.

use std::{fs, path::PathBuf, time::Instant};

use bnb_framework::{Best, Figures, Problem, Solver, sequential};
use clap::ValueEnum;

use super::{
    CommandError, Ending, print,
    report::{Report, Search},
    watch,
};
use crate::{
    instance::{City, Instance},
    one_tree::OneTreeProblem,
    path::PathProblem,
    read::{read_instance, write_tour},
    start,
};

/// What `tsp solve` is asked.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    /// The instance: TSPLIB (TYPE TSP), or CSV with lines of name,x,y or name,lat,lon.
    file: PathBuf,
    /// Run so many nodes within this process, each with a pool of its own; they talk QUIC over the loopback interface.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Workers of each node; by default the processors are shared among the nodes.
    #[arg(long)]
    workers: Option<usize>,
    /// What a tour through a state costs at least.
    #[arg(long, value_enum, default_value = "one-tree")]
    bound: Bound,
    /// The tour to begin with.
    #[arg(long, value_enum, default_value = "heuristic")]
    start: Start,
    /// Visit every state: all paths from the first city, whatever the bound.
    #[arg(long)]
    no_pruning: bool,
    /// Search without the runtime, by the plain sequential reference: to compare with.
    #[arg(long, conflicts_with_all = ["nodes", "workers"])]
    sequential: bool,
    /// Write the tour to this file, in TSPLIB format.
    #[arg(long, value_name = "TOUR")]
    output: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// What a tour through a state costs at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Bound {
    /// Held and Karp's one-trees with subgradient steps: branches on edges.
    OneTree,
    /// The path so far and a spanning tree of the unvisited cities: extends paths city by city.
    Mst,
}

/// The tour to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Start {
    /// Nearest neighbour, then 2-opt and Or-opt.
    Heuristic,
    /// None: the first tour is found by the search.
    None,
}

pub(super) fn run(arguments: &Arguments) -> Result<Ending, CommandError> {
    let instance = read_instance(&arguments.file)?;
    let report = search(arguments, &instance)?;
    if let (Some(file), Some(tour)) = (&arguments.output, &report.search.tour) {
        fs::write(file, write_tour(&instance, tour))
            .map_err(|source| CommandError::Write { file: file.display().to_string(), source })?;
    }
    print(&if arguments.json { report.json() } else { report.text() });
    Ok(if report.search.proven { Ending::Done } else { Ending::NotProven })
}

/// Searches in the tree that the arguments ask for.
fn search<'a>(arguments: &Arguments, instance: &'a Instance) -> Result<Report<'a>, CommandError> {
    let cities = instance.len();
    let paths = arguments.no_pruning || arguments.bound == Bound::Mst || cities < CITIES_OF_CHOICE;
    if !paths {
        let one_trees = OneTreeProblem::new(instance.clone());
        return solve(arguments, instance, one_trees.clone(), |best| one_trees.root_bound(best));
    }
    match cities {
        0..=16 => solve_paths::<16>(arguments, instance),
        17..=32 => solve_paths::<32>(arguments, instance),
        33..=64 => solve_paths::<64>(arguments, instance),
        65..=256 => solve_paths::<256>(arguments, instance),
        _ => Err(CommandError::Usage(format!(
            "{} has {cities} cities; --bound mst and --no-pruning take at most 256 (and are hopeless long before)",
            arguments.file.display()
        ))),
    }
}

/// With fewer cities there is one tour at most: nothing to decide.
const CITIES_OF_CHOICE: usize = 4;

fn solve_paths<'a, const N: usize>(
    arguments: &Arguments,
    instance: &'a Instance,
) -> Result<Report<'a>, CommandError> {
    let problem = PathProblem::<N>::new(instance.clone());
    solve(arguments, instance, problem.clone(), |best| problem.bound(&mut problem.root(), best).unwrap_or(0))
}

/// Solves a problem. `root_bound` gives a length that no tour is shorter than: what is left to say if the search is
/// stopped.
fn solve<'a, P: Problem<Cost = u64, Solution = Vec<City>>>(
    arguments: &Arguments,
    instance: &'a Instance,
    problem: P,
    root_bound: impl FnOnce(Option<u64>) -> u64,
) -> Result<Report<'a>, CommandError> {
    let start = (arguments.start == Start::Heuristic).then(|| start::tour(instance));
    if arguments.sequential {
        return Ok(solve_sequentially(arguments, instance, &problem, start));
    }
    let mut solver = Solver::new(problem).nodes(arguments.nodes).pruning(!arguments.no_pruning);
    if let Some(workers) = arguments.workers {
        solver = solver.workers(workers);
    }
    if let Some((length, tour)) = start {
        solver = solver.start(length, tour);
    }
    watch::stop_on_interrupt(solver.stopper())?;
    let line = watch::line(arguments.quiet || arguments.json);
    let solved = watch::watched(solver, line.as_ref()).run()?;
    if let Some(line) = line {
        line.finish_and_clear();
    }
    let figures: Figures = solved.figures;
    let (length, tour) = solved.best.map(|best| (best.cost, best.solution)).unzip();
    let bound = length.filter(|_| solved.proven).unwrap_or_else(|| root_bound(length));
    // A bound beyond the best tour says that there is no better one.
    let bound = length.map_or(bound, |length| bound.min(length));
    Ok(Report {
        instance,
        search: Search {
            length,
            tour,
            proven: solved.proven,
            bound,
            states: solved.states,
            pruned: solved.pruned,
            seconds: solved.elapsed.as_secs_f64(),
        },
        figures,
    })
}

fn solve_sequentially<'a, P: Problem<Cost = u64, Solution = Vec<City>>>(
    arguments: &Arguments,
    instance: &'a Instance,
    problem: &P,
    start: Option<(u64, Vec<City>)>,
) -> Report<'a> {
    let started = Instant::now();
    let start = start.map(|(cost, solution)| Best { cost, solution });
    let found = sequential::solve(problem, !arguments.no_pruning, start);
    let seconds = started.elapsed().as_secs_f64();
    let (length, tour) = found.best.map(|best| (best.cost, best.solution)).unzip();
    let search = Search {
        length,
        tour,
        proven: true,
        bound: length.unwrap_or_default(),
        states: found.states,
        pruned: found.pruned,
        seconds,
    };
    Report { instance, search, figures: Figures::default() }
}
