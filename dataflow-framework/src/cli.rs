//! The command line of a program: `solve` runs it on this machine, `submit` on the nodes of a cluster, and
//! `node` is one of these nodes.
//!
//! The attribute [`program`](crate::program) makes a function a program. It lists the tasks that are called:
//!
//! ```
//! use dataflow_framework::{Data, Failure, program, task};
//!
//! #[task]
//! fn square(number: u64) -> u64 {
//!     number * number
//! }
//!
//! /// Adds up squares.
//! #[program(square)]
//! fn sum_of_squares(
//!     /// The last number.
//!     last: u64,
//!     /// The first number.
//!     #[arg(default = 1)]
//!     first: u64,
//! ) -> Result<u64, Failure> {
//!     let squares: Vec<Data<u64>> = (first..=last).map(square).collect();
//!     squares.iter().map(|square| Ok(*square.get()?)).sum()
//! }
//! # use dataflow_framework::cli;
//! # for more in [&["--nodes", "2"][..], &["--sequential", "--first", "3"]] {
//! #     let code = cli::run::<sum_of_squares>(["squares", "solve", "12", "--quiet"].iter().chain(more));
//! #     assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
//! # }
//! ```
//!
//! The attribute adds a type of the function's name, which implements [`Program`] and [`Command`], and the function
//! `main`. The function itself stays, and can be called, such as in [`Workflow::run`](crate::Workflow::run).
//!
//! - The parameters are the arguments of `solve` and `submit`, with their comments as help. The attributes `#[arg(…)]` and
//!   `#[command(…)]` are those of `clap`, and `#[arg(default = 1)]` makes an option with a default. The node of the program
//!   receives clones of them, so their types implement `Clone`, `Serialize` and `Deserialize`.
//! - The function returns an output, or a `Result` with an error type that converts to `Box<dyn Error + Send + Sync>`. The
//!   output implements `Debug`, which prints it (except for texts, which are printed as they are), `Serialize`, which
//!   prints it for `--json`, and `Deserialize`.
//! - The command has the name of the function, the first paragraph of its comment, and the version of the package.
//! - A module has one program, because it has one `main`.
//!
//! A listed function that is not a task does not compile:
//!
//! ```compile_fail
//! use dataflow_framework::program;
//!
//! fn square(number: u64) -> u64 {
//!     number * number
//! }
//!
//! #[program(square)] // error: `square` is listed as a task of the program, but is not a task
//! fn of_three() -> u64 {
//!     square(3)
//! }
//! ```
//!
//! [`Command`] is for programs that need more.

mod looking;

use std::{ffi::OsString, fmt::Debug, marker::PhantomData, path::PathBuf, process::ExitCode};

use clap::{ArgMatches, Args, FromArgMatches as _, Subcommand};
use serde::Serialize;
pub use taskwork_cli::{Failure, NoMore, Shown, is_same_file, print};
use taskwork_cli::{Kinds, Prepared};

use self::looking::{Looking, log_values};
use crate::{Main, Program, RunOptions, Settings, Workflow, file::remove_work_dir, serve_isolated};

/// A program with a command line, in the form for cases that the attribute [`program`](crate::program) does not cover:
/// arguments that are read from files, or an output with its own presentation.
///
/// # Examples
/// ```
/// use std::{error::Error, fs, path::PathBuf};
/// use dataflow_framework::{Program, TaskDef, cli::{Command, Failure, Shown}, task, tasks};
///
/// #[task]
/// fn count(line: String) -> usize {
///     line.split_whitespace().count()
/// }
///
/// struct Words;
///
/// impl Program for Words {
///     type Arguments = String;
///     type Output = usize;
///
///     fn tasks() -> Vec<&'static TaskDef> {
///         tasks![count].to_vec()
///     }
///
///     fn run(text: &String) -> Result<usize, Box<dyn Error + Send + Sync>> {
///         let counts: Vec<_> = text.lines().map(|line| count(line.to_owned())).collect();
///         counts.iter().map(|count| Ok(*count.get()?)).sum()
///     }
/// }
///
/// #[derive(clap::Args)]
/// struct Options {
///     /// The text.
///     file: PathBuf,
/// }
///
/// impl Command for Words {
///     const NAME: &'static str = "words";
///     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
///     const ABOUT: &'static str = "Counts the words of a text";
///     type Options = Options;
///
///     fn arguments(options: Options) -> Result<String, Failure> {
///         fs::read_to_string(&options.file).map_err(|error| Failure::usage(format!("{}: {error}", options.file.display())))
///     }
///
///     fn show(words: usize) -> Shown {
///         Shown::done(format!("{words} words"), words)
///     }
/// }
///
/// // fn main() -> std::process::ExitCode { dataflow_framework::cli::main::<Words>() }
/// # let code = dataflow_framework::cli::run::<Words>(["words", "solve", "Cargo.toml", "--quiet"]);
/// # assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
/// ```
pub trait Command: Program {
    /// The name of the command. See [`taskwork_cli::Program::NAME`].
    const NAME: &'static str;
    /// The version, which must change whenever the tasks or their data change.
    const VERSION: &'static str;
    /// A one-line description.
    const ABOUT: &'static str;
    /// The options of `solve` and `submit` in addition to those of every program.
    type Options: Args;

    /// Returns the arguments of the program.
    ///
    /// # Errors
    /// Fails if an option, or a file that it names, is invalid.
    fn arguments(options: Self::Options) -> Result<Self::Arguments, Failure>;

    /// Presents the output of the program.
    fn show(output: Self::Output) -> Shown;
}

/// Commands of a program in addition to `solve`, `submit` and `node`. See [`main_with`].
pub trait More: Subcommand + 'static {
    /// Runs a command.
    ///
    /// # Errors
    /// Any error of the command.
    fn run(self) -> Result<ExitCode, Failure>;
}

impl More for NoMore {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {}
    }
}

/// Runs the command line of a program; or an isolated call, if the process was started for one
/// ([`Options::isolated`](crate::Options::isolated)).
pub fn main<P: Command>() -> ExitCode {
    main_with::<P, NoMore>(std::env::args_os())
}

/// Runs the command line of a program with more commands, like [`main`], with these arguments; the first one is the name
/// of the command.
pub fn main_with<P: Command, M: More>(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    serve_isolated(P::tasks());
    let code = taskwork_cli::run::<CommandLine<P, M>>(arguments);
    remove_work_dir();
    code
}

/// Runs the command line of a program, like [`main`], with these arguments; the first one is the name of the command.
pub fn run<P: Command>(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    taskwork_cli::run::<CommandLine<P, NoMore>>(arguments)
}

/// Presents the output of a program that [`program`](crate::program) has made.
#[doc(hidden)]
pub fn shown<O: Debug + Serialize>(output: &O) -> Shown {
    let json = serde_json::to_value(output).unwrap_or_else(|_| format!("{output:?}").into());
    let text = match &json {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        _ => format!("{output:?}"),
    };
    // Commands add fields, such as the id of the job.
    let json = if json.is_object() { json } else { serde_json::json!({ "output": json }) };
    Shown::done(text, json)
}

struct CommandLine<P, M>(PhantomData<fn() -> (P, M)>);

/// The options of a program, and those of every workflow.
#[derive(Debug, Args)]
#[group(skip)]
struct Options<O: Args> {
    /// Run each task immediately where the program calls it, without threads; the result is the same
    #[arg(long)]
    sequential: bool,
    /// Run each task twice on the same data and compare the outputs: finds tasks whose output does not depend
    /// on their inputs only
    #[arg(long)]
    check: bool,
    /// Change an option of all calls of a task, such as align.retry=5 or "align.timeout=2 min"; may be repeated. The
    /// names are those of the attribute `task`
    #[arg(long, value_name = "TASK.OPTION=VALUE")]
    task_option: Vec<String>,
    #[command(flatten)]
    looking: Looking,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    own: O,
}

// The options of every node of a workflow, also those of `solve`. A documentation comment would replace the description
// of the command.
#[derive(Debug, Args)]
#[group(skip)]
struct NodeOptions {
    /// The maximum memory for the data of a job on each node, such as 4GiB; data beyond it is moved to files.
    /// Default: half of the memory of the machine, shared by the nodes of the process. Not with submit: the nodes have their
    /// own
    #[arg(long, value_name = "SIZE", env = "DATAFLOW_STORE", value_parser = store)]
    store: Option<u64>,
    /// The directory for files of the node. Default: the system's directory for temporary files. Not with submit
    #[arg(long, value_name = "DIR", env = "DATAFLOW_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Let programs that run on this node publish files only into this folder and below it. Default: wherever
    /// the user of the node may write. Not with submit
    #[arg(long, value_name = "DIR")]
    publish_to: Option<PathBuf>,
    /// Keep the outputs of cached tasks in this folder, or in this folder of a store such as `s3://BUCKET/cache`, and take them
    /// from there instead of running the calls. Not with submit: the nodes have their own
    #[arg(long, value_name = "DIR|URI", env = "DATAFLOW_CACHE")]
    cache: Option<String>,
    /// Use only entries of the cache that this build of the program has written
    #[arg(long, requires = "cache")]
    cache_strict: bool,
}

fn store(text: &str) -> Result<u64, String> {
    crate::size::parse(text)
}

impl NodeOptions {
    fn apply(self) -> Result<(), Failure> {
        let Self { store, work_dir, publish_to, cache, cache_strict } = self;
        let cache = Settings { cache, has_strict_cache: cache_strict, ..Settings::default() };
        cache.apply().map_err(|error| Failure::usage(format!("--cache: {error}")))?;
        // Only that folder can be wrong: the others were parsed, or are created when they are needed.
        Settings { store_bytes: store, work_dir, publish_dir: publish_to, ..Settings::default() }
            .apply()
            .map_err(|error| Failure::usage(format!("--publish-to {error}")))
    }
}

impl<P: Command, M: More> taskwork_cli::Program for CommandLine<P, M> {
    const NAME: &'static str = P::NAME;
    const VERSION: &'static str = P::VERSION;
    const ABOUT: &'static str = P::ABOUT;
    type Arguments = Options<P::Options>;
    type More = M;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Main<P>>("main");
    }

    fn add_to_node(node: clap::Command) -> clap::Command {
        NodeOptions::augment_args(node)
    }

    fn before_node(options: &ArgMatches) -> Result<(), Failure> {
        NodeOptions::from_arg_matches(options).map_err(Failure::usage)?.apply()
    }

    fn more(command: M) -> Result<ExitCode, Failure> {
        command.run()
    }

    fn prepare(
        Options { sequential, check, task_option, looking, node, own }: Self::Arguments,
    ) -> Result<Prepared, Failure> {
        node.apply()?;
        looking.check()?;
        let arguments = P::arguments(own)?;
        let tasks = Workflow::new(P::tasks_of(&arguments)).map_err(Failure::failed)?;
        let workflow = tasks.task_options(&task_option);
        let workflow =
            workflow.map_err(|error| Failure::usage(format!("--task-option {error}")))?.sequential();
        if sequential {
            looking.refuse_sequential()?;
            let workflow = if check { workflow.checked() } else { workflow };
            let output = workflow.run(|| P::run(&arguments));
            return Ok(Prepared::at_once(P::show(output.map_err(Failure::failed)?)));
        }
        let options = RunOptions::default().checked(check).observe(looking.observe());
        let job = Main::<P>::job_with(arguments, options.task_options(task_option));
        let display = looking.display();
        Ok(Prepared::watched("main", job, display, move |report| {
            let observation = Main::<P>::observed(&report).unwrap_or_default();
            // Also after a failure, when the observation is most useful.
            looking.write(&observation)?;
            if report.suspended {
                let text = "the program was stopped before it completed".to_owned();
                return Ok(Shown::new(text, serde_json::json!({}), false));
            }
            let mut shown = P::show(Main::<P>::returned(&report).map_err(Failure::failed)?);
            looking.add(&observation, &mut shown);
            Ok(shown.with_columns(log_values(&observation.summary)))
        }))
    }
}
