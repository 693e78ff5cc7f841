//! The command line of a program that counts: it visits all states of a tree made from arguments.

use std::{
    marker::PhantomData,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::{Value, json};
use taskwork::report::Figures;
use taskwork_cli::{Failure, Kinds, Prepared, Program, ProgressDisplay, Shown};

use super::program::{Checking, checked};
use crate::{
    check::check_tree,
    enumerate::{Enumerate, EnumerationTask, Enumerator},
    sequential,
};

/// A tree that is made from arguments and counted. The whole program, with `solve`, `node` and `submit`, is
/// then one call of [`main_counting`].
pub trait Counts: Enumerate {
    /// The name of the program. See [`Program::NAME`].
    const NAME: &'static str;
    /// Its version. See [`Program::VERSION`].
    const VERSION: &'static str;
    /// A one-line description.
    const ABOUT: &'static str;
    /// The arguments that define the tree.
    type Arguments: Args;

    /// Creates the tree from its arguments.
    ///
    /// # Errors
    /// Fails if the arguments are invalid.
    fn from_arguments(arguments: Self::Arguments) -> Result<Self, Failure>;

    /// Formats the output, as text and as a JSON object.
    fn show(counted: &Self::Output) -> (String, Value);
}

/// All arguments of a program that counts.
#[derive(Debug, Args)]
#[group(skip)]
struct AllArguments<A: Args> {
    #[command(flatten)]
    tree: A,
    #[command(flatten)]
    count: CountArguments,
}

struct Counting<E>(PhantomData<E>);

impl<E: Counts> Program for Counting<E> {
    const NAME: &'static str = E::NAME;
    const VERSION: &'static str = E::VERSION;
    const ABOUT: &'static str = E::ABOUT;
    type Arguments = AllArguments<E::Arguments>;
    type More = Checking<E::Arguments>;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<EnumerationTask<E>>(E::NAME);
    }

    fn prepare(AllArguments { tree, count }: Self::Arguments) -> Result<Prepared, Failure> {
        Ok(prepare_count(E::NAME, E::from_arguments(tree)?, &count, E::show))
    }

    fn more(Checking::Check(arguments): Self::More) -> Result<ExitCode, Failure> {
        checked(check_tree(&E::from_arguments(arguments)?))
    }
}

/// Runs the command line of a program that counts.
pub fn main_counting<E: Counts>() -> ExitCode {
    taskwork_cli::main::<Counting<E>>()
}

/// The options for visiting a tree.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct CountArguments {
    /// Visit the tree without the runtime, by the plain sequential reference, for comparison.
    #[arg(long)]
    sequential: bool,
}

/// Makes a job that visits a whole tree. `show` formats the output, as text and as a JSON object.
pub fn prepare_count<E: Enumerate>(
    kind: &'static str,
    tree: E,
    arguments: &CountArguments,
    show: impl Fn(&E::Output) -> (String, Value) + Send + 'static,
) -> Prepared {
    let shown = move |output: &E::Output, so_far: Option<&str>, elapsed: Duration, figures: Figures| {
        let finished = so_far.is_none();
        let (text, mut json) = show(output);
        if let Some(object) = json.as_object_mut() {
            object.insert("finished".to_owned(), json!(finished));
            object.insert("seconds".to_owned(), json!(elapsed.as_secs_f64()));
            object.insert("figures".to_owned(), json!(figures));
        }
        let so_far = so_far.map_or_else(String::new, |why| format!(" so far: the visit {why}"));
        Shown::new(format!("{text}{so_far}"), json, finished)
    };
    if arguments.sequential {
        let started = Instant::now();
        let output = sequential::enumerate(&tree);
        return Prepared::at_once(shown(&output, None, started.elapsed(), Figures::default()));
    }
    let display = ProgressDisplay::default().unit("states");
    Prepared::watched(kind, Enumerator::new(tree).job(), display, move |report| {
        let so_far = match (report.finished, report.suspended) {
            (true, _) => None,
            (false, true) => Some("is suspended"),
            (false, false) if !report.set_aside.is_empty() => Some("has gone on without some parts"),
            // Nodes commit the output of a task when it is completed.
            (false, false) => Some("was stopped; states of unfinished tasks are not counted"),
        };
        Ok(shown(&report.output, so_far, report.elapsed, report.figures))
    })
}
