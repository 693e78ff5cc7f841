//! `tsp solve` and `tsp submit`: their arguments, the search, and the output of its result.

use std::{fs, path::PathBuf, time::{Duration, Instant}};

use bnb_framework::{
    Best, End, Figures, Problem, SearchTask, Solved, Solver, Tree as _,
    cli::{SearchArguments, prepare_solver},
    sequential,
};
use clap::ValueEnum;
use taskwork_cli::{Failure, Kinds, Prepared, Shown};

use super::report::{Report, Search};
use crate::{
    directed::DirectedProblem,
    instance::{City, Instance},
    one_tree::OneTreeProblem,
    path::PathProblem,
    read::{read_instance, write_tour},
    start,
};

/// The arguments of `tsp solve` and `tsp submit`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The instance: TSPLIB (TYPE TSP or ATSP), or CSV with lines of name,x,y or name,lat,lon.
    file: PathBuf,
    /// The lower bound on the tours through a state. [default: one-tree, or assignment if distances depend on
    /// the direction]
    #[arg(long, value_enum)]
    bound: Option<Bound>,
    /// The tour to start with.
    #[arg(long, value_enum, default_value = "heuristic")]
    start: Start,
    /// Write the tour to this file, in TSPLIB format, when it is found.
    #[arg(long, value_name = "TOUR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArguments,
}

/// The lower bound on the tours through a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Bound {
    /// Held and Karp's one-trees with subgradient steps; branches on edges.
    OneTree,
    /// The path so far and a spanning tree of the unvisited cities; extends paths city by city. Always used
    /// with --no-pruning.
    Mst,
    /// Every city is assigned a successor, then subtours are connected; branches on arcs.
    Assignment,
}

/// The tour to start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Start {
    /// Nearest neighbour, then 2-opt and Or-opt.
    Heuristic,
    /// None: the search finds the first tour.
    None,
}

/// Registers all types of task that the searches consist of.
pub(super) fn kinds(kinds: &mut Kinds) {
    kinds
        .add::<SearchTask<OneTreeProblem>>("one-tree")
        .add::<SearchTask<DirectedProblem>>("assignment")
        .add::<SearchTask<PathProblem<16, 1>>>("path-16")
        .add::<SearchTask<PathProblem<32, 1>>>("path-32")
        .add::<SearchTask<PathProblem<64, 1>>>("path-64")
        .add::<SearchTask<PathProblem<256, 4>>>("path-256");
}

/// The minimum number of cities with more than one tour.
const CITIES_OF_CHOICE: usize = 4;

/// The maximum number of cities of a search by paths.
const PATH_CITIES_MAX: usize = 256;

/// The maximum time for the start tour.
const START_TIME_MAX: Duration = Duration::from_secs(1);
/// The maximum time for a bound that is computed after the search.
const ROOT_BOUND_TIME_MAX: Duration = Duration::from_millis(200);

/// Returns the time to spend on the start tour: a small share of the limit on the search, if there is one.
fn start_time(limit: Option<Duration>) -> Duration {
    limit.map_or(START_TIME_MAX, |limit| (limit / 20).min(START_TIME_MAX))
}

/// Returns whether to stop, a given time from now.
fn within(time: Duration) -> impl Fn() -> bool {
    let until = Instant::now() + time;
    move || Instant::now() >= until
}

/// Prepares the search in the tree that the arguments request.
pub(super) fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
    let instance = read_instance(&arguments.file).map_err(Failure::usage)?;
    let cities = instance.len();
    let everything = arguments.search.is_without_pruning();
    let bound = match arguments.bound {
        Some(bound @ Bound::Mst) if instance.is_directed() && !everything => {
            return Err(Failure::usage(format!(
                "{}: its distances depend on the direction, so --bound {} is none: --bound assignment is",
                arguments.file.display(),
                bound.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
            )));
        }
        Some(bound) => bound,
        None if instance.is_directed() => Bound::Assignment,
        None => Bound::OneTree,
    };
    let stops = within(start_time(arguments.search.time_limit()));
    match bound {
        _ if everything => {}
        Bound::Mst => {}
        Bound::OneTree if cities < CITIES_OF_CHOICE => {}
        Bound::OneTree => {
            let problem = OneTreeProblem::new(instance.clone());
            let root_bound = problem.clone();
            let start = start::tour_until(&instance, &stops);
            let asked = Asked { arguments, start, instance };
            let bound = move |best| {
                let stops = within(ROOT_BOUND_TIME_MAX);
                root_bound.root_bound(best, stops)
            };
            return asked.prepare("one-tree", problem, bound);
        }
        Bound::Assignment => {
            let problem = DirectedProblem::new(instance.clone());
            let root_bound = problem.clone();
            let asked = Asked { arguments, start: problem.start(&stops), instance };
            return asked.prepare("assignment", problem, move |best| root_bound.root_bound(best));
        }
    }
    if cities > PATH_CITIES_MAX {
        return Err(Failure::usage(format!(
            "{} has {cities} cities; --bound mst and --no-pruning take at most {PATH_CITIES_MAX} (and are \
             hopeless long before)",
            arguments.file.display()
        )));
    }
    let asked = Asked { start: start::tour_until(&instance, &stops), arguments, instance };
    match cities {
        0..=16 => asked.prepare_paths::<16, 1>("path-16"),
        17..=32 => asked.prepare_paths::<32, 1>("path-32"),
        33..=64 => asked.prepare_paths::<64, 1>("path-64"),
        _ => asked.prepare_paths::<PATH_CITIES_MAX, 4>("path-256"),
    }
}

/// A request: the arguments and the instance.
struct Asked {
    arguments: Arguments,
    instance: Instance,
    /// The heuristic tour, and its length.
    start: (u64, Vec<City>),
}

impl Asked {
    fn prepare_paths<const N: usize, const W: usize>(self, kind: &'static str) -> Result<Prepared, Failure> {
        let problem = PathProblem::<N, W>::new(self.instance.clone());
        let root = problem.clone();
        self.prepare(kind, problem, move |best| root.bound(&mut root.root(), best).unwrap_or(0))
    }

    /// Prepares the search for the best solution of a problem. `root_bound` returns a length that no tour is
    /// shorter than, which is reported if the search is stopped.
    fn prepare<P: Problem<Cost = u64, Solution = Vec<City>>>(
        self,
        kind: &'static str,
        problem: P,
        root_bound: impl FnOnce(Option<u64>) -> u64 + Send + 'static,
    ) -> Result<Prepared, Failure> {
        let heuristic = self.arguments.start == Start::Heuristic;
        let start = heuristic.then(|| self.start.clone());
        let arguments = &self.arguments.search;
        if arguments.is_sequential() {
            let search = search_sequentially(&problem, !arguments.is_without_pruning(), start);
            return Ok(Prepared::at_once(self.shown(search, &Figures::default())?));
        }
        let mut solver = arguments.apply(Solver::new(problem), |length| length.parse().ok(), 1.0)?;
        if let Some((length, tour)) = start {
            solver = solver.start(length, tour);
        }
        let options = solver.options().clone();
        Ok(prepare_solver(kind, solver, move |report| {
            let solved = Solved::from_report(&report, &options);
            let figures = solved.figures;
            self.shown(search(solved, root_bound), &figures)
        }))
    }

    /// Writes the tour to a file if requested, and formats the result.
    fn shown(&self, search: Search, figures: &Figures) -> Result<Shown, Failure> {
        if let (Some(file), Some(tour)) = (&self.arguments.output, &search.tour) {
            fs::write(file, write_tour(&self.instance, tour)).map_err(|error| {
                Failure::usage(format!("{}: the file cannot be written: {error}", file.display()))
            })?;
        }
        if let Some(tour) = &search.tour
            && self.instance.checked_length(tour) != search.length
        {
            return Err(Failure::failed(format!(
                "{tour:?} was found, but is no tour of that length: a mistake"
            )));
        }
        let complete = matches!(search.end, End::Proven | End::Target);
        let report = Report { instance: &self.instance, search, figures: *figures };
        Ok(Shown { text: report.text(), json: report.json(), complete })
    }
}

/// Converts the result of a search.
fn search<P: Problem<Cost = u64, Solution = Vec<City>>>(
    solved: Solved<P>,
    root_bound: impl FnOnce(Option<u64>) -> u64,
) -> Search {
    let collected = solved.collected.into_iter().map(|tour| (tour.cost, tour.solution)).collect();
    let (length, tour) = solved.best.map(|best| (best.cost, best.solution)).unzip();
    let bound = solved.bound.unwrap_or_else(|| root_bound(length));
    Search {
        length,
        tour,
        end: solved.end,
        collected,
        collected_all: solved.collected_all,
        // A bound beyond the best tour means that there is no better one.
        bound: length.map_or(bound, |length| bound.min(length)),
        states: solved.states,
        pruned: solved.pruned,
        seconds: solved.elapsed.as_secs_f64(),
    }
}

fn search_sequentially<P: Problem<Cost = u64, Solution = Vec<City>>>(
    problem: &P,
    pruning: bool,
    start: Option<(u64, Vec<City>)>,
) -> Search {
    let started = Instant::now();
    let start = start.map(|(cost, solution)| Best::new(cost, solution));
    let found = sequential::solve(problem, pruning, start);
    let seconds = started.elapsed().as_secs_f64();
    let (length, tour) = found.best.map(|best| (best.cost, best.solution)).unzip();
    Search {
        length,
        tour,
        end: End::Proven,
        collected: Vec::new(),
        collected_all: true,
        bound: length.unwrap_or_default(),
        states: found.states,
        pruned: found.pruned,
        seconds,
    }
}
