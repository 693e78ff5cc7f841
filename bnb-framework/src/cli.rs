//! The command line of a program that solves problems: everything that can be chosen of a search as options, and what is said of its end.
//!
//! For a problem that is read from a file there is nothing to write but [`FromFile`]. Otherwise a program's arguments take
//! [`SearchArguments`] in by `#[command(flatten)]`; its problem says by [`Shows`] how a solution looks; and [`prepare`] makes a job of
//! both for [`taskwork_cli`]. The examples beside this crate do the one or the other.

use std::{
    fmt::Write as _,
    marker::PhantomData,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use indicatif::{HumanCount, HumanDuration};
use serde_json::{Value, json};
use taskwork::Figures;
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown};

use crate::{
    enumerate::{Enumerate, EnumerationTask},
    incumbent::Best,
    options::{Collect, Options, Replicable, Split, Strategy, Tolerance},
    problem::Problem,
    search::SearchTask,
    sequential,
    solver::{End, Progress, Solved, Solver},
    words::{ReadError, text_of},
};

/// A problem whose solutions can be shown. It must say what a solution [costs](Problem::cost_of): what is shown was checked.
pub trait Shows: Problem + Clone {
    /// What its cost is called: `length`, `profit`. One word, a key in JSON too.
    const COST: &'static str;
    /// What a solution is called: `tour`, `items`. Likewise.
    const SOLUTION: &'static str;

    /// A solution as people like to read it, and as JSON. By default as it is.
    fn show(&self, solution: &Self::Solution) -> (String, Value) {
        (format!("{solution:?}"), json!(solution))
    }

    /// A cost, likewise.
    fn show_cost(&self, cost: Self::Cost) -> (String, Value) {
        (format!("{cost:?}"), json!(cost))
    }

    /// A cost as a user gives it: what [`show_cost`](Self::show_cost) shows. By default as it is in JSON.
    fn read_cost(&self, text: &str) -> Option<Self::Cost> {
        serde_json::from_str(text).ok()
    }

    /// How much of the cost is a difference of 1 as it is shown.
    fn unit(&self) -> f64 {
        1.0
    }
}

/// A problem that is read from a file. Then the whole program, with `solve`, `node` and `submit`, is one call of [`main`].
pub trait FromFile: Shows {
    /// The name of the program. See [`Program::NAME`].
    const NAME: &'static str;
    /// Its version. See [`Program::VERSION`].
    const VERSION: &'static str;
    /// What it does, in one line.
    const ABOUT: &'static str;

    /// Reads the problem from the text of a file; [`Words`](crate::words::Words) helps. `file` is what to call it.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(file: &str, text: &str) -> Result<Self, ReadError>;

    /// A solution to begin with, and its cost, if one is easily had.
    fn start(&self) -> Option<(Self::Cost, Self::Solution)> {
        None
    }
}

/// What a program for a problem from a file is asked.
#[derive(Debug, Args)]
pub struct FileArguments {
    /// The instance.
    file: PathBuf,
    #[command(flatten)]
    search: SearchArguments,
}

/// The program for a problem from a file.
struct Solves<P>(PhantomData<P>);

impl<P: FromFile> Program for Solves<P> {
    const NAME: &'static str = P::NAME;
    const VERSION: &'static str = P::VERSION;
    const ABOUT: &'static str = P::ABOUT;
    type Arguments = FileArguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<P>>(P::NAME);
    }

    fn prepare(FileArguments { file, search }: FileArguments, _: Place) -> Result<Prepared, Failure> {
        let text = text_of(&file).map_err(Failure::usage)?;
        let problem = P::read(&file.display().to_string(), &text).map_err(Failure::usage)?;
        let start = problem.start();
        let mut solver = Solver::new(problem);
        if let Some((cost, solution)) = start {
            solver = solver.start(cost, solution);
        }
        prepare(P::NAME, solver, &search)
    }
}

/// Runs the command line of a program for a problem from a file.
pub fn main<P: FromFile>() -> ExitCode {
    taskwork_cli::main::<Solves<P>>()
}

/// How a problem is to be searched.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct SearchArguments {
    /// In which order open states are visited.
    #[arg(help_heading = "Search", long, value_enum, default_value = "depth-first")]
    strategy: Order,
    /// How many open states a task keeps at most, in another order than depth first; beyond, it goes on depth first.
    #[arg(help_heading = "Search", long, value_name = "STATES", default_value_t = Strategy::OPEN_MAX)]
    open_max: usize,
    /// What is split off when somebody is hungry.
    #[arg(help_heading = "Search", long, value_enum, default_value = "half")]
    split: SplitOff,
    /// Visit the same states and find the same solution however many workers and nodes there are. Takes longer.
    #[arg(help_heading = "Search", long, conflicts_with_all = ["best", "within", "within_relative", "no_pruning"])]
    replicable: bool,
    /// Only decide whether there is a solution as good as this.
    #[arg(help_heading = "Search", long, value_name = "COST", allow_hyphen_values = true)]
    target: Option<String>,
    /// Look only for solutions that are better than this.
    #[arg(help_heading = "Search", long, value_name = "COST", allow_hyphen_values = true)]
    cutoff: Option<String>,
    /// Take a solution for good enough that is no further than this from the optimum, in units of the cost.
    #[arg(help_heading = "Search", long, value_name = "COST", default_value = "0", value_parser = not_negative)]
    gap: f64,
    /// The same as a share of the cost: 0.01 is one per cent.
    #[arg(help_heading = "Search", long, value_name = "SHARE", default_value = "0", value_parser = not_negative)]
    relative_gap: f64,
    /// Stop after so many seconds, with the best solution, and what is proven of it.
    #[arg(help_heading = "Search", long, value_name = "SECONDS", value_parser = seconds)]
    time_limit: Option<Duration>,
    /// Stop after about so many states, likewise.
    #[arg(help_heading = "Search", long, value_name = "STATES", value_parser = clap::value_parser!(u64).range(1..))]
    state_limit: Option<u64>,
    /// Collect the so many best solutions.
    #[arg(help_heading = "Search", long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    best: Option<u32>,
    /// Collect the solutions that are no further than this from the optimum, in units of the cost; at most --best, or 1000.
    #[arg(help_heading = "Search", long, value_name = "COST", value_parser = not_negative)]
    within: Option<f64>,
    /// The same as a share of the cost.
    #[arg(help_heading = "Search", long, value_name = "SHARE", value_parser = not_negative)]
    within_relative: Option<f64>,
    /// Visit every state, whatever its bound.
    #[arg(help_heading = "Search", long, conflicts_with_all = [
        "target", "cutoff", "gap", "relative_gap", "best", "within", "within_relative",
    ])]
    no_pruning: bool,
    /// Search without the runtime, by the plain sequential reference: to compare with.
    #[arg(help_heading = "Search", long, conflicts_with_all = [
        "strategy", "split", "replicable", "target", "cutoff", "gap", "relative_gap", "time_limit", "state_limit", "best", "within",
        "within_relative",
    ])]
    sequential: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(clippy::enum_variant_names, reason = "that is what they are called")]
enum Order {
    /// In the order of the children.
    DepthFirst,
    /// Depth first, of the children those with the best bounds first.
    BestChildFirst,
    /// The best bound first, wherever it is.
    BestFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitOff {
    /// Half of the shallowest level.
    Half,
    /// The shallowest state.
    Shallowest,
    /// What the problem itself says.
    Own,
}

/// How many solutions within a distance of the optimum are collected unless something else is said.
const COLLECT_MAX: usize = 1000;

impl SearchArguments {
    /// Whether the sequential reference was asked for.
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Whether everything is to be visited.
    pub fn is_without_pruning(&self) -> bool {
        self.no_pruning
    }

    /// Chooses what was asked for. `read` reads a cost, and `unit` is how much of it a difference of 1 is.
    ///
    /// # Errors
    /// If a cost is none.
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
                SplitOff::Shallowest => Split::Shallowest,
                SplitOff::Own => Split::Own,
            })
            .tolerance(Tolerance { absolute: self.gap * unit, relative: self.relative_gap });
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
            if !P::EVERY_SOLUTION {
                return Err(Failure::usage(
                    "--best, --within and --within-relative are for searches that come by every solution; this one \
                     stops short at the best below a state",
                ));
            }
            solver = solver.collect(collect);
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

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=1e9).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds".to_owned())
}

/// Makes a job of a search.
///
/// # Errors
/// What is wrong with the arguments.
pub fn prepare<P: Shows>(
    kind: &'static str,
    solver: Solver<P>,
    arguments: &SearchArguments,
) -> Result<Prepared, Failure> {
    if arguments.sequential {
        let problem = solver.problem().clone();
        let started = Instant::now();
        let found = sequential::solve(&problem, !arguments.no_pruning, solver.started_from());
        let solved = found.solved(started.elapsed());
        return Ok(Prepared::at_once(shown(&problem, &solved, &Options::default())?));
    }
    let (reader, unit) = (solver.problem().clone(), solver.problem().unit());
    let solver = arguments.apply(solver, |text| reader.read_cost(text), unit)?;
    let (problem, options) = (solver.problem().clone(), solver.options().clone());
    Ok(Prepared::watched(kind, solver.job(), line::<P>, move |report| {
        shown(&problem, &Solved::of(&report, &options), &options)
    }))
}

/// How a search gets on, in a line.
pub fn line<P: Problem>(progress: &taskwork::Progress) -> String {
    let progress = Progress::<P>::of(progress);
    let rate = progress.states as f64 / progress.elapsed.as_secs_f64().max(1e-3);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = HumanCount(rate as u64);
    let mut best =
        progress.best.map_or_else(|| "nothing found yet".to_owned(), |best| format!("best {best:?}"));
    if let Some(bound) = progress.bound {
        let gap = progress.gap.map_or_else(String::new, |gap| format!(" (gap {:.2} %)", 100.0 * gap));
        let _ = write!(best, ", bound {bound}{gap}");
    }
    let share =
        progress.share.map_or_else(String::new, |share| format!(", about {:.1} % done", 100.0 * share));
    format!(
        "{best}{share}; {} states, {rate}/s; {} tasks, {} steals; {}",
        HumanCount(progress.states),
        HumanCount(progress.figures.tasks),
        HumanCount(progress.figures.steals),
        HumanDuration(progress.elapsed),
    )
}

/// Checks what was found, and says it.
///
/// # Errors
/// If a solution is none, or costs something else.
pub fn shown<P: Shows>(
    problem: &P,
    solved: &Solved<P>,
    options: &Options<P::Cost>,
) -> Result<Shown, Failure> {
    for one in solved.best.iter().chain(&solved.collected) {
        check(problem, one)?;
    }
    Ok(Shown {
        text: text(problem, solved, options),
        json: as_json(problem, solved),
        complete: solved.is_complete(),
    })
}

fn check<P: Shows>(problem: &P, one: &Best<P::Cost, P::Solution>) -> Result<(), Failure> {
    let cost = problem.cost_of(&one.solution);
    if cost == Some(one.cost) {
        return Ok(());
    }
    let (name, said) = (P::COST, one.cost);
    let really = cost.map_or_else(|| "no solution".to_owned(), |cost| format!("of {name} {cost:?}"));
    Err(Failure::failed(format!(
        "{:?} was found with {name} {said:?}, but is {really}: a mistake in the program",
        one.solution
    )))
}

fn text<P: Shows>(problem: &P, solved: &Solved<P>, options: &Options<P::Cost>) -> String {
    let mut text = String::new();
    let width =
        [P::COST, P::SOLUTION, "solutions", "states"].map(str::len).into_iter().max().unwrap_or(0) + 2;
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:width$}{value}");
    };
    match &solved.best {
        Some(best) => {
            row(P::COST, &format!("{}, {}", problem.show_cost(best.cost).0, quality(problem, solved)));
            row(P::SOLUTION, &problem.show(&best.solution).0);
        }
        None => row(P::SOLUTION, &nothing(problem, solved, options)),
    }
    if options.collect.is_some() {
        let all = if solved.collected_all { "" } else { "; there may be more" };
        row("solutions", &format!("{} collected{all}", solved.collected.len()));
        for one in &solved.collected {
            row("", &format!("{}: {}", problem.show_cost(one.cost).0, problem.show(&one.solution).0));
        }
    }
    let seconds = solved.elapsed.as_secs_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = (solved.states as f64 / seconds.max(1e-6)) as u64;
    row(
        "states",
        &format!(
            "{} visited, {} pruned; {seconds:.3} s, {}/s",
            HumanCount(solved.states),
            HumanCount(solved.pruned),
            HumanCount(rate)
        ),
    );
    text
}

/// How good the best solution is known to be.
fn quality<P: Shows>(problem: &P, solved: &Solved<P>) -> String {
    let bound = solved.bound.map(|bound| {
        let gap = solved.gap().map_or_else(String::new, |gap| format!(", a gap of {:.2} %", 100.0 * gap));
        format!("nothing is better than {}{gap}", problem.show_cost(bound).0)
    });
    let bound = bound.unwrap_or_else(|| "nothing is proven".to_owned());
    let best = solved.best.as_ref().map(|best| best.cost);
    match solved.end {
        End::Proven if solved.bound == best => "proven: nothing is better".to_owned(),
        End::Proven => format!("good enough: {bound}"),
        End::Target => "which meets the target".to_owned(),
        End::StateLimit => format!("best so far, at the limit of states: {bound}"),
        End::TimeLimit => format!("best so far, at the limit of time: {bound}"),
        End::Stopped => "best so far: the search was stopped".to_owned(),
    }
}

/// What to say if there is no solution.
fn nothing<P: Shows>(problem: &P, solved: &Solved<P>, options: &Options<P::Cost>) -> String {
    let sought = match (options.target, options.cutoff) {
        (Some(target), _) => format!(" as good as {}", problem.show_cost(target).0),
        (None, Some(cutoff)) => format!(" better than {}", problem.show_cost(cutoff).0),
        (None, None) => String::new(),
    };
    match solved.end {
        End::Proven | End::Target => format!("there is none{sought}: proven"),
        End::StateLimit => format!("none{sought} was found within the limit of states"),
        End::TimeLimit => format!("none{sought} was found within the limit of time"),
        End::Stopped => format!("none{sought} was found until the search was stopped"),
    }
}

fn as_json<P: Shows>(problem: &P, solved: &Solved<P>) -> Value {
    let one = |one: &Best<P::Cost, P::Solution>| {
        let mut object = serde_json::Map::new();
        object.insert(P::COST.to_owned(), problem.show_cost(one.cost).1);
        object.insert(P::SOLUTION.to_owned(), problem.show(&one.solution).1);
        object
    };
    let none = || [P::COST, P::SOLUTION].map(|name| (name.to_owned(), Value::Null)).into_iter().collect();
    let mut object = solved.best.as_ref().map_or_else(none, one);
    let more = json!({
        "proven": solved.proven,
        "end": solved.end.to_string(),
        "bound": solved.bound.map(|bound| problem.show_cost(bound).1),
        "gap": solved.gap(),
        "collected": solved.collected.iter().map(one).collect::<Vec<_>>(),
        "collected_all": solved.collected_all,
        "states": solved.states,
        "pruned": solved.pruned,
        "seconds": solved.elapsed.as_secs_f64(),
        "figures": solved.figures,
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

/// How a tree is to be visited whose states are counted.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct CountArguments {
    /// Visit the tree without the runtime, by the plain sequential reference: to compare with.
    #[arg(long)]
    sequential: bool,
}

/// Makes a job of the visit of a whole tree. `show` says what was counted, for people and as a JSON object.
pub fn prepare_count<E: Enumerate>(
    kind: &'static str,
    tree: E,
    arguments: &CountArguments,
    show: impl Fn(&E::Output) -> (String, Value) + Send + 'static,
) -> Prepared {
    let shown = move |output: &E::Output, finished: bool, elapsed: Duration, figures: Figures| {
        let (text, mut json) = show(output);
        if let Some(object) = json.as_object_mut() {
            object.insert("finished".to_owned(), json!(finished));
            object.insert("seconds".to_owned(), json!(elapsed.as_secs_f64()));
            object.insert("figures".to_owned(), json!(figures));
        }
        let stopped = if finished { "" } else { " so far: the visit was stopped" };
        Shown { text: format!("{text}{stopped}"), json, complete: finished }
    };
    if arguments.sequential {
        let started = Instant::now();
        let output = sequential::enumerate(&tree);
        return Prepared::at_once(shown(&output, true, started.elapsed(), Figures::default()));
    }
    Prepared::new(kind, EnumerationTask::job(tree), move |report| {
        Ok(shown(&report.output, report.finished, report.elapsed, report.figures))
    })
}
