//! The command line of a program: `solve` runs it here, `submit` on the nodes of a cluster, `node` is one of them.

mod looking;

use std::{marker::PhantomData, process::ExitCode};

use clap::Args;
pub use taskwork_cli::{Failure, Shown};
use taskwork_cli::{Kinds, NoMore, Prepared};

use self::looking::Looking;
use crate::{Main, Program, Workflow, WorkflowError};

/// A program with a command line.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use dataflow_framework::{Program, TaskDef, cli::{Command, Failure, Shown}, task, tasks};
///
/// #[task]
/// fn square(number: u64) -> u64 {
///     number * number
/// }
///
/// struct Square;
///
/// impl Program for Square {
///     type Arguments = u64;
///     type Output = u64;
///
///     fn tasks() -> Vec<&'static TaskDef> {
///         tasks![square].to_vec()
///     }
///
///     fn run(number: &u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
///         Ok(*square(*number).get()?)
///     }
/// }
///
/// #[derive(clap::Args)]
/// struct Options {
///     /// The number.
///     number: u64,
/// }
///
/// impl Command for Square {
///     const NAME: &'static str = "square";
///     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
///     const ABOUT: &'static str = "Squares a number";
///     type Options = Options;
///
///     fn arguments(options: Options) -> Result<u64, Failure> {
///         Ok(options.number)
///     }
///
///     fn show(square: u64) -> Shown {
///         Shown::done(format!("{square}"), square)
///     }
/// }
///
/// // fn main() -> std::process::ExitCode { dataflow_framework::cli::main::<Square>() }
/// # for more in [&["--nodes", "2"][..], &["--sequential"]] {
/// #     let code = dataflow_framework::cli::run::<Square>(["square", "solve", "12", "--quiet"].iter().chain(more));
/// #     assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
/// # }
/// ```
pub trait Command: Program {
    /// The name of its command. See [`taskwork_cli::Program::NAME`].
    const NAME: &'static str;
    /// Its version, which must change whenever its tasks or their data change.
    const VERSION: &'static str;
    /// A description in one line.
    const ABOUT: &'static str;
    /// The options of `solve` and `submit` besides those that every program has.
    type Options: Args;

    /// Returns the arguments of the program.
    ///
    /// # Errors
    /// If something is wrong with the options, or the files that they name.
    fn arguments(options: Self::Options) -> Result<Self::Arguments, Failure>;

    /// Presents what the program has returned.
    fn show(output: Self::Output) -> Shown;
}

/// Runs the command line of a program.
pub fn main<P: Command>() -> ExitCode {
    taskwork_cli::main::<CommandLine<P>>()
}

/// Does the same with these arguments, the first of which is the name of the command.
pub fn run<P: Command>(
    arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> ExitCode {
    taskwork_cli::run::<CommandLine<P>>(arguments)
}

/// The command line of a program.
struct CommandLine<P>(PhantomData<fn() -> P>);

/// The options of a program, and those of every workflow.
#[derive(Debug, Args)]
#[group(skip)]
struct Options<O: Args> {
    /// Run each task at once where the program calls it, here and without threads; the result is the same
    #[arg(long)]
    sequential: bool,
    /// Run each task twice on the same data, and compare what it writes: to find tasks that are no functions of what
    /// they read
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    looking: Looking,
    #[command(flatten)]
    own: O,
}

impl<P: Command> taskwork_cli::Program for CommandLine<P> {
    const NAME: &'static str = P::NAME;
    const VERSION: &'static str = P::VERSION;
    const ABOUT: &'static str = P::ABOUT;
    type Arguments = Options<P::Options>;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Main<P>>("main");
    }

    fn prepare(Options { sequential, check, looking, own }: Self::Arguments) -> Result<Prepared, Failure> {
        let arguments = P::arguments(own)?;
        if sequential {
            looking.refuse_sequential()?;
            let workflow = Workflow::new(P::tasks()).map(Workflow::sequential);
            let workflow = workflow.map(|workflow| if check { workflow.checked() } else { workflow });
            let output: Result<_, WorkflowError> =
                workflow.and_then(|workflow| workflow.run(|| P::run(&arguments)));
            return Ok(Prepared::at_once(P::show(output.map_err(Failure::failed)?)));
        }
        let job = Main::<P>::observed_job(arguments, check, looking.observe());
        let line = looking.line();
        Ok(Prepared::watched("main", job, line, move |report| {
            let observation = Main::<P>::observed(&report).unwrap_or_default();
            // Also if the program has failed: then they are most of interest.
            looking.write(&observation)?;
            let mut shown = P::show(Main::<P>::returned(&report).map_err(Failure::failed)?);
            looking.add(&observation, &mut shown);
            Ok(shown)
        }))
    }
}
