//! `tsp solve` and `tsp submit`: what they are asked, the search that answers it, and what is said of the answer.

use std::{fs, path::PathBuf, time::Instant};

use bnb_framework::{Best, Figures, Problem, Progress, SearchTask, Solved, Solver, Tree as _, sequential};
use clap::ValueEnum;
use indicatif::{HumanCount, HumanDuration};
use taskwork::cli::{Failure, Kinds, Prepared, Shown};

use super::report::{Report, Search};
use crate::{
    instance::{City, Instance},
    one_tree::OneTreeProblem,
    path::PathProblem,
    read::{read_instance, write_tour},
    start,
};

/// What `tsp solve` and `tsp submit` are asked.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The instance: TSPLIB (TYPE TSP), or CSV with lines of name,x,y or name,lat,lon.
    file: PathBuf,
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
    #[arg(long)]
    sequential: bool,
    /// Write the tour to this file, in TSPLIB format, when it is found.
    #[arg(long, value_name = "TOUR")]
    output: Option<PathBuf>,
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

/// Every type of task that the searches are made of.
pub(super) fn kinds(kinds: &mut Kinds) {
    kinds
        .add::<SearchTask<OneTreeProblem>>("one-tree")
        .add::<SearchTask<PathProblem<16, 1>>>("path-16")
        .add::<SearchTask<PathProblem<32, 1>>>("path-32")
        .add::<SearchTask<PathProblem<64, 1>>>("path-64")
        .add::<SearchTask<PathProblem<256, 4>>>("path-256");
}

/// With fewer cities there is one tour at most: nothing to decide.
const CITIES_OF_CHOICE: usize = 4;

/// The search in the tree that the arguments ask for.
pub(super) fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
    let instance = read_instance(&arguments.file).map_err(Failure::usage)?;
    let cities = instance.len();
    let paths = arguments.no_pruning || arguments.bound == Bound::Mst || cities < CITIES_OF_CHOICE;
    if !paths {
        let problem = OneTreeProblem::new(instance.clone());
        let root_bound = problem.clone();
        let asked = Asked { arguments, instance };
        return asked.prepare("one-tree", problem, move |best| root_bound.root_bound(best));
    }
    let asked = Asked { arguments, instance };
    match cities {
        0..=16 => asked.prepare_paths::<16, 1>("path-16"),
        17..=32 => asked.prepare_paths::<32, 1>("path-32"),
        33..=64 => asked.prepare_paths::<64, 1>("path-64"),
        65..=256 => asked.prepare_paths::<256, 4>("path-256"),
        _ => Err(Failure::usage(format!(
            "{} has {cities} cities; --bound mst and --no-pruning take at most 256 (and are hopeless long before)",
            asked.arguments.file.display()
        ))),
    }
}

/// What is asked, of which instance.
struct Asked {
    arguments: Arguments,
    instance: Instance,
}

impl Asked {
    fn prepare_paths<const N: usize, const W: usize>(self, kind: &'static str) -> Result<Prepared, Failure> {
        let problem = PathProblem::<N, W>::new(self.instance.clone());
        let root = problem.clone();
        self.prepare(kind, problem, move |best| root.bound(&mut root.root(), best).unwrap_or(0))
    }

    /// The search for the best solution of a problem. `root_bound` gives a length that no tour is shorter than: what is left
    /// to say if the search is stopped.
    fn prepare<P: Problem<Cost = u64, Solution = Vec<City>>>(
        self,
        kind: &'static str,
        problem: P,
        root_bound: impl FnOnce(Option<u64>) -> u64 + Send + 'static,
    ) -> Result<Prepared, Failure> {
        let heuristic = self.arguments.start == Start::Heuristic;
        let start = heuristic.then(|| start::tour(&self.instance));
        if self.arguments.sequential {
            let search = search_sequentially(&problem, !self.arguments.no_pruning, start);
            return Ok(Prepared::at_once(self.shown(search, Figures::default())?));
        }
        let mut solver = Solver::new(problem).pruning(!self.arguments.no_pruning);
        if let Some((length, tour)) = start {
            solver = solver.start(length, tour);
        }
        Ok(Prepared::watched(kind, solver.job(), line::<P>, move |report| {
            let solved = Solved::of(&report);
            let figures = solved.figures;
            self.shown(search(solved, root_bound), figures)
        }))
    }

    /// Writes the tour if that is wanted, and says what was found.
    fn shown(&self, search: Search, figures: Figures) -> Result<Shown, Failure> {
        if let (Some(file), Some(tour)) = (&self.arguments.output, &search.tour) {
            fs::write(file, write_tour(&self.instance, tour)).map_err(|error| {
                Failure::usage(format!("{}: the file cannot be written: {error}", file.display()))
            })?;
        }
        let complete = search.proven;
        let report = Report { instance: &self.instance, search, figures };
        Ok(Shown { text: report.text(), json: report.json(), complete })
    }
}

/// What a search has found.
fn search<P: Problem<Cost = u64, Solution = Vec<City>>>(
    solved: Solved<P>,
    root_bound: impl FnOnce(Option<u64>) -> u64,
) -> Search {
    let (length, tour) = solved.best.map(|best| (best.cost, best.solution)).unzip();
    let bound = length.filter(|_| solved.proven).unwrap_or_else(|| root_bound(length));
    Search {
        length,
        tour,
        proven: solved.proven,
        // A bound beyond the best tour says that there is no better one.
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
    let start = start.map(|(cost, solution)| Best { cost, solution });
    let found = sequential::solve(problem, pruning, start);
    let seconds = started.elapsed().as_secs_f64();
    let (length, tour) = found.best.map(|best| (best.cost, best.solution)).unzip();
    Search {
        length,
        tour,
        proven: true,
        bound: length.unwrap_or_default(),
        states: found.states,
        pruned: found.pruned,
        seconds,
    }
}

/// How the search gets on, in a line.
fn line<P: Problem<Cost = u64>>(progress: &taskwork::Progress) -> String {
    let progress = Progress::<P>::of(progress);
    let rate = progress.states as f64 / progress.elapsed.as_secs_f64().max(1e-3);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = HumanCount(rate as u64);
    let best = progress.best.map_or_else(|| "none".to_owned(), |best| best.to_string());
    format!(
        "{} states, {rate}/s; {} tasks, {} steals; best tour {best}; {}",
        HumanCount(progress.states),
        HumanCount(progress.figures.tasks),
        HumanCount(progress.figures.steals),
        HumanDuration(progress.elapsed),
    )
}
