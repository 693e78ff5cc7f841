//! The command line of a program that solves problems from a file, or from its own arguments.

use std::{marker::PhantomData, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use taskwork_cli::{Failure, Kinds, Prepared, Program};

use super::{
    DisplaySolution,
    search::{SearchArguments, prepare},
};
use crate::{
    check::{Mistake, check},
    parse::{FILE_BYTES_MAX, ReadError, text_of},
    search::SearchTask,
    solver::Solver,
};

/// A problem that is created from its own arguments. The whole program, with `solve`, `node` and `submit`,
/// is then one call of [`main`]. A problem that is read from a file implements [`ParseProblem`] instead.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be created from the command line",
    note = "implement `ParseProblem` to read it from a file, or `BuildProblem` to create it from arguments; and \
            `DisplaySolution`, with `Clone`, to show its solutions"
)]
pub trait BuildProblem: DisplaySolution {
    /// The name of the program. See [`Program::NAME`].
    const NAME: &'static str;
    /// Its version. See [`Program::VERSION`].
    const VERSION: &'static str;
    /// A one-line description.
    const ABOUT: &'static str;
    /// The arguments that define the problem; those of the search are added to them.
    type Arguments: Args;

    /// Creates the problem from its arguments.
    ///
    /// # Errors
    /// Fails if the arguments, or the files that they name, are invalid.
    fn from_arguments(arguments: Self::Arguments) -> Result<Self, Failure>;

    /// Returns a solution to start with, and its cost, if one is cheap to find.
    fn start(&self) -> Option<(Self::Cost, Self::Solution)> {
        None
    }
}

/// A problem that is read from a file. The whole program, with `solve`, `node` and `submit`, is then one call
/// of [`main`].
pub trait ParseProblem: DisplaySolution {
    /// The name of the program. See [`Program::NAME`].
    const NAME: &'static str;
    /// Its version. See [`Program::VERSION`].
    const VERSION: &'static str;
    /// A one-line description.
    const ABOUT: &'static str;
    /// The maximum size of a file, in bytes.
    const FILE_BYTES_MAX: u64 = FILE_BYTES_MAX;

    /// Reads the problem from the text of a file; [`Words`](crate::parse::Words) helps. `file` is its name in
    /// messages.
    ///
    /// # Errors
    /// Fails if the text is invalid.
    fn read(file: &str, text: &str) -> Result<Self, ReadError>;

    /// Returns a solution to start with, and its cost, if one is cheap to find.
    fn start(&self) -> Option<(Self::Cost, Self::Solution)> {
        None
    }
}

/// The arguments of a program for a problem from a file.
#[derive(Debug, Args)]
pub struct FileArguments {
    /// The instance.
    file: PathBuf,
}

impl<P: ParseProblem> BuildProblem for P {
    const NAME: &'static str = <P as ParseProblem>::NAME;
    const VERSION: &'static str = <P as ParseProblem>::VERSION;
    const ABOUT: &'static str = <P as ParseProblem>::ABOUT;
    type Arguments = FileArguments;

    fn from_arguments(FileArguments { file }: FileArguments) -> Result<Self, Failure> {
        let text = text_of(&file, P::FILE_BYTES_MAX).map_err(Failure::usage)?;
        P::read(&file.display().to_string(), &text).map_err(Failure::usage)
    }

    fn start(&self) -> Option<(P::Cost, P::Solution)> {
        <P as ParseProblem>::start(self)
    }
}

/// All arguments of a program that solves a problem.
#[derive(Debug, Args)]
#[group(skip)]
struct AllArguments<A: Args> {
    #[command(flatten)]
    problem: A,
    #[command(flatten)]
    search: SearchArguments,
}

struct Solves<P>(PhantomData<P>);

impl<P: BuildProblem> Program for Solves<P> {
    const NAME: &'static str = P::NAME;
    const VERSION: &'static str = P::VERSION;
    const ABOUT: &'static str = P::ABOUT;
    type Arguments = AllArguments<P::Arguments>;
    type More = Checking<P::Arguments>;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<P>>(P::NAME);
    }

    fn prepare(AllArguments { problem, search }: Self::Arguments) -> Result<Prepared, Failure> {
        let problem = P::from_arguments(problem)?;
        let start = search.has_heuristics().then(|| problem.start()).flatten();
        let mut solver = Solver::new(problem);
        if let Some((cost, solution)) = start {
            solver = solver.start(cost, solution);
        }
        prepare(P::NAME, solver, &search)
    }

    fn more(Checking::Check(arguments): Self::More) -> Result<ExitCode, Failure> {
        checked(check(&P::from_arguments(arguments)?))
    }
}

/// The command that looks for mistakes.
#[derive(Debug, Subcommand)]
pub enum Checking<A: Args> {
    /// Look for mistakes in the program at this instance, by random walks through its tree: bounds that are none, state
    /// that is lost when it is sent, splits that lose something. Small instances show the most.
    Check(A),
}

/// Completes the command `check`: prints that no mistake was found.
///
/// # Errors
/// Fails with the mistake.
pub fn checked(found: Result<(), Mistake>) -> Result<ExitCode, Failure> {
    found.map_err(Failure::failed)?;
    taskwork_cli::print("no mistake was found on random walks through the tree\n");
    Ok(ExitCode::SUCCESS)
}

/// Runs the command line of a program for a problem from a file, or from arguments.
pub fn main<P: BuildProblem>() -> ExitCode {
    taskwork_cli::main::<Solves<P>>()
}
