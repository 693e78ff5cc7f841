//! `tsp solve` and `tsp submit`: their arguments, the search, and the output of its result.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bnb_framework::{
    Best, End, Figures, Problem, Progress, Solved, Solver, Tree as _,
    cli::{SearchArguments, prepare_solver},
    lowlevel::SearchTask,
    picture::{Improvements, Picture},
    sequential,
};
use clap::ValueEnum;
use taskwork_cli::{Failure, Kinds, Prepared, Shown, check_outputs, write_output};

use super::{
    note_coarse,
    report::{Report, Search},
};
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
    /// The instance: TSPLIB (TYPE TSP or ATSP), or CSV with lines of name,x,y or name,lat,lon, separated by
    /// commas, semicolons or tabs.
    file: PathBuf,
    /// The lower bound on the tours through a state. [default: one-tree; if distances depend on the direction,
    /// assignment where that is nearly as long as the start tour]
    #[arg(long, value_enum)]
    bound: Option<Bound>,
    /// The tour to start with.
    #[arg(long, value_enum, default_value = "heuristic")]
    start: Start,
    /// Write the tour to this file, in TSPLIB format, when it is found. Its folder must exist.
    #[arg(long, value_name = "TOUR")]
    output: Option<PathBuf>,
    /// Draw the best tour as a map into this file, as SVG, and beside it the improvements over time. Its folder must
    /// exist.
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArguments,
}

/// The lower bound on the tours through a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Bound {
    /// Held and Karp's one-trees with subgradient steps; branches on edges. If distances depend on the
    /// direction, each city is doubled.
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
    /// Nearest neighbour, then 2-opt and Or-opt (3-opt if distances depend on the direction).
    Heuristic,
    /// None: the search finds the first tour.
    None,
}

/// Registers all types of task that the searches consist of.
pub(super) fn kinds(kinds: &mut Kinds) {
    kinds
        .add::<SearchTask<OneTreeProblem>>("one-tree")
        .add::<SearchTask<DirectedProblem>>("assignment")
        .add::<SearchTask<PathProblem<64, 1>>>("path-64")
        .add::<SearchTask<PathProblem<256, 4>>>("path-256");
}

/// The minimum number of cities with more than one tour.
pub(super) const CITIES_OF_CHOICE: usize = 4;

/// The maximum number of cities for one-trees of directed distances, which take four times the memory; and the
/// maximum for choosing them by default.
pub(super) const DOUBLED_CITIES_MAX: usize = 2_000;
const ONE_TREE_CITIES_MAX: usize = 500;
/// The distance from the start tour beyond which assignments are too weak, as a share of its length.
const FAR: f64 = 0.01;

/// The maximum number of cities of a search by paths.
const PATH_CITIES_MAX: usize = 256;

/// The time after the limit when even the start tour is left as it is.
const START_OVERTIME: Duration = Duration::from_millis(500);
/// The maximum time for a bound that is computed after the search.
const ROOT_BOUND_TIME_MAX: Duration = Duration::from_millis(200);

/// Returns whether to stop, a given time from now; never without one.
fn after(time: Option<Duration>) -> impl Fn() -> bool {
    let until = time.map(|time| Instant::now() + time);
    move || until.is_some_and(|until| Instant::now() >= until)
}

/// Prepares the search in the tree that the arguments request.
pub(super) fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
    let began = Instant::now();
    let outputs = [("--output", arguments.output.as_deref()), ("--plot", arguments.plot.as_deref())];
    check_outputs(&[&arguments.file], &outputs)?;
    let instance = read_instance(&arguments.file).map_err(Failure::usage)?;
    note_coarse(&arguments.file, &instance);
    let (file, cities) = (arguments.file.display(), instance.len());
    if arguments.plot.is_some() && instance.map.is_none() {
        return Err(Failure::usage(format!(
            "{file}: --plot draws a map, and it is not known where the cities are: distances without coordinates need a \
             DISPLAY_DATA_SECTION with two coordinates for each city"
        )));
    }
    let everything = arguments.search.is_without_pruning();
    let stops = after(arguments.search.time_limit().map(|limit| limit + START_OVERTIME));
    match arguments.bound {
        _ if everything => {}
        Some(Bound::Mst) if instance.is_directed() => {
            return Err(Failure::usage(format!(
                "{file}: its distances depend on the direction, so --bound mst is none: --bound one-tree and \
                 --bound assignment are"
            )));
        }
        Some(Bound::OneTree) if instance.is_directed() && cities > DOUBLED_CITIES_MAX => {
            return Err(Failure::usage(format!(
                "{file} has {cities} cities; --bound one-tree takes at most {DOUBLED_CITIES_MAX} if distances \
                 depend on the direction: use --bound assignment"
            )));
        }
        Some(Bound::Assignment) => return prepare_directed(arguments, instance, began, &stops),
        Some(Bound::OneTree) if instance.is_directed() && cities >= CITIES_OF_CHOICE => {
            let problem = OneTreeProblem::new(instance.clone());
            let start = DirectedProblem::new(instance.clone()).start(&stops);
            return prepare_one_trees(Asked { arguments, instance, start, began }, problem);
        }
        None if instance.is_directed() => return prepare_directed(arguments, instance, began, &stops),
        Some(Bound::OneTree) | None if cities >= CITIES_OF_CHOICE => {
            let problem = OneTreeProblem::new(instance.clone());
            let asked = Asked { arguments, start: problem.start(&stops), instance, began };
            return prepare_one_trees(asked, problem);
        }
        Some(_) | None => {}
    }
    // Check before computing the start tour.
    if cities > PATH_CITIES_MAX {
        return Err(Failure::usage(format!(
            "{file} has {cities} cities; --bound mst and --no-pruning take at most {PATH_CITIES_MAX} (and are \
             hopeless long before)"
        )));
    }
    let asked = Asked { start: start::tour_until(&instance, &stops), arguments, instance, began };
    match cities {
        0..=64 => asked.prepare_paths::<64, 1>("path-64"),
        _ => asked.prepare_paths::<PATH_CITIES_MAX, 4>("path-256"),
    }
}

/// Prepares the search by one-trees, for at least four cities.
fn prepare_one_trees(asked: Asked, problem: OneTreeProblem) -> Result<Prepared, Failure> {
    let root = problem.clone();
    let root_bound = move |best| {
        let stops = after(Some(ROOT_BOUND_TIME_MAX));
        root.root_bound(best, stops)
    };
    asked.prepare("one-tree", problem, root_bound)
}

/// Prepares the search by assignments; or by one-trees, unless a bound was requested, if there are not too
/// many cities and the first assignment is far from the start tour. Assignments are quicker, but often weaker.
fn prepare_directed(
    arguments: Arguments,
    instance: Instance,
    began: Instant,
    stops: &dyn Fn() -> bool,
) -> Result<Prepared, Failure> {
    let problem = DirectedProblem::new(instance.clone());
    let start = problem.start(stops);
    let takes_one_trees = (CITIES_OF_CHOICE..=ONE_TREE_CITIES_MAX).contains(&instance.len());
    if arguments.bound.is_none() && takes_one_trees {
        let length = start.0 as f64;
        let far = length - problem.root_bound(Some(start.0)) as f64;
        if far > FAR * length {
            let problem = OneTreeProblem::new(instance.clone());
            return prepare_one_trees(Asked { arguments, instance, start, began }, problem);
        }
    }
    let root = problem.clone();
    let asked = Asked { arguments, instance, start, began };
    asked.prepare("assignment", problem, move |best| root.root_bound(best))
}

/// The height of the chart next to the tour, in pixels.
const CHART_HEIGHT: f64 = 320.0;

/// A request: the arguments and the instance.
struct Asked {
    arguments: Arguments,
    instance: Instance,
    /// The heuristic tour, and its length.
    start: (u64, Vec<City>),
    /// When the program started to read the instance.
    began: Instant,
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
            let mut figures = Figures::default();
            figures.worked = search.states;
            return Ok(Prepared::at_once(self.shown(search, &figures, &Improvements::default())?));
        }
        let mut solver = arguments.apply(Solver::new(problem), |length| length.parse().ok(), 1.0)?;
        if let Some(limit) = arguments.time_limit() {
            // The instance and the start tour have taken their part.
            solver = solver.time_limit(limit.saturating_sub(self.began.elapsed()));
        }
        if let Some((length, tour)) = start {
            solver = solver.start(length, tour);
        }
        let options = solver.options().clone();
        let seen = Arc::new(Mutex::new(Improvements::default()));
        let (plots, notes) = (self.arguments.plot.is_some(), Arc::clone(&seen));
        let prepared = prepare_solver(kind, solver, move |report| {
            let solved = Solved::from_report(&report, &options);
            let figures = solved.figures;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(best) = &solved.best {
                seen.note(solved.elapsed, best.cost as f64);
            }
            self.shown(search(solved, root_bound), &figures, &seen)
        })?;
        if !plots {
            return Ok(prepared);
        }
        Ok(prepared.observed_by(move |progress| {
            let progress = Progress::<P>::from_progress(progress);
            if let Some(best) = progress.best {
                let mut seen = notes.lock().unwrap_or_else(PoisonError::into_inner);
                seen.note(progress.elapsed, best as f64);
            }
        }))
    }

    /// Draws the tour, with the observed progress of the search.
    fn plot(&self, file: &Path, search: &Search, seen: &Improvements) -> Result<(), Failure> {
        let Some(picture) = search.tour.as_ref().and_then(|tour| self.instance.picture(tour)) else {
            return Ok(());
        };
        let end = Duration::try_from_secs_f64(search.seconds).unwrap_or_default();
        let chart = (!seen.steps().is_empty()).then(|| seen.picture("length", end, CHART_HEIGHT));
        let picture = chart.iter().fold(picture, Picture::beside);
        write_output(file, &picture.svg())
    }

    /// Writes the tour to files if requested, and formats the result.
    fn shown(&self, search: Search, figures: &Figures, seen: &Improvements) -> Result<Shown, Failure> {
        if let Some(file) = &self.arguments.plot {
            self.plot(file, &search, seen)?;
        }
        if let (Some(file), Some(tour)) = (&self.arguments.output, &search.tour) {
            write_output(file, &write_tour(&self.instance, tour))?;
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
        Ok(Shown::new(report.text(), report.json(), complete).with_columns(report.log_values()))
    }
}

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
