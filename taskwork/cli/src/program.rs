//! The description of a program, and its command line.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{
    ArgMatches, Args, Command, CommandFactory as _, FromArgMatches, Parser, Subcommand, error::ErrorKind,
};
use taskwork::node::Kinds;

#[cfg(feature = "health")]
use crate::health;
#[cfg(feature = "man")]
use crate::manual::Man;
use crate::{
    Failure, Prepared,
    failure::{lost_output, note_lost, print, tell},
    manual::{Completions, with_notes},
    naming, node, solve, submit, version,
};

/// A program on the runtime.
pub trait Program: 'static {
    /// The name of its command; nodes only accept jobs of this program. 1 to 60 letters, digits, dots, `-` or
    /// `_`.
    const NAME: &'static str;
    /// Its version: nodes only accept jobs of the same version. It must change whenever the encoding of tasks,
    /// shared data or outputs changes. Restricted like the name.
    const VERSION: &'static str;
    /// A one-line description of the program.
    const ABOUT: &'static str;
    /// The arguments of `solve` and `submit` in addition to the runtime's own options.
    type Arguments: Args;
    /// The program's own commands; [`NoMore`] if there are none.
    type More: Subcommand;

    /// Declares every type of task in the program's jobs.
    fn kinds(kinds: &mut Kinds);

    /// Creates a job from the arguments.
    ///
    /// # Errors
    /// If the arguments, or the files that they name, are invalid.
    fn prepare(arguments: Self::Arguments) -> Result<Prepared, Failure>;

    /// Adds options of the program to the command `node`.
    fn add_to_node(node: Command) -> Command {
        node
    }

    /// Handles the options that were [added](Self::add_to_node), before the node starts.
    ///
    /// # Errors
    /// If the options are invalid.
    fn before_node(_options: &ArgMatches) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs one of the program's own commands.
    ///
    /// # Errors
    /// Any error of the command.
    fn more(_command: Self::More) -> Result<ExitCode, Failure> {
        Ok(ExitCode::SUCCESS)
    }
}

/// Declares that there are no commands besides the runtime's own.
#[derive(Debug)]
pub enum NoMore {}

impl FromArgMatches for NoMore {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Err(clap::Error::new(ErrorKind::InvalidSubcommand))
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        match *self {}
    }
}

impl Subcommand for NoMore {
    fn augment_subcommands(command: Command) -> Command {
        command
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command
    }

    fn has_subcommand(_: &str) -> bool {
        false
    }
}

/// The name of the command that runs a node.
const NODE: &str = "node";
/// The name of the command that submits a job.
const SUBMIT: &str = "submit";

#[derive(Parser)]
struct CommandLine<A: Args, M: Subcommand> {
    #[command(subcommand)]
    command: Commands<A, M>,
}

#[derive(Subcommand)]
enum Commands<A: Args, M: Subcommand> {
    /// Solve it on this machine, on all its cores, without a server.
    ///
    /// Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU stop it with the best result so far; a second signal, or
    /// SIGQUIT, terminates the program at once. SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU stay ignored if they are ignored at
    /// the start (nohup).
    Solve(solve::Arguments<A>),
    /// Run a node of a cluster: it works on several jobs at a time, until it is asked to leave (SIGTERM,
    /// `taskwork drain`).
    ///
    /// Ctrl-C, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU make it leave as SIGTERM does; SIGQUIT terminates it at once.
    /// SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU stay ignored if they are ignored at the start (nohup).
    Node(node::Arguments),
    /// Submit it to a cluster.
    Submit(submit::Arguments<A>),
    /// Query the health of a node on this machine, for its supervisor: exit code 0 if it is healthy.
    #[cfg(feature = "health")]
    Health(health::Arguments),
    /// Print the completion script for a shell: bash, elvish, fish, powershell or zsh.
    Completions(Completions),
    /// Write the man pages of this command.
    #[cfg(feature = "man")]
    Man(Man),
    #[command(flatten)]
    More(M),
}

/// Runs the command line of this process.
pub fn main<P: Program>() -> ExitCode {
    run::<P>(std::env::args_os())
}

/// Returns a program's command with all its options.
fn command<P: Program>() -> Command {
    let command = CommandLine::<P::Arguments, P::More>::command();
    let command = command.name(P::NAME).version(P::VERSION).about(P::ABOUT);
    command.mut_subcommand(NODE, P::add_to_node)
}

/// Prints a usage error, the help or the version, and returns the exit code.
pub fn not_parsed(error: &clap::Error, name: &str, version: &str) -> ExitCode {
    if error.kind() == ErrorKind::DisplayVersion {
        print(&version::text(name, version));
        return ended(Ok(ExitCode::SUCCESS));
    }
    // Clap chooses the stream: help goes to standard output, errors to standard error.
    let printed = error.print();
    if !error.use_stderr() {
        note_lost(printed.and_then(|()| io::stdout().flush()));
    }
    ended(Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))))
}

/// Runs a command line; the first argument is the name of the program.
pub fn run<P: Program>(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let command = command::<P>();
    let parsed = with_notes(command.clone()).try_get_matches_from(arguments);
    let parsed = parsed.and_then(|matches| {
        let line = CommandLine::<P::Arguments, P::More>::from_arg_matches(&matches)?;
        Ok((line, matches))
    });
    let (parsed, matches) = match parsed {
        Ok((line, matches)) => (line.command, matches),
        Err(error) => return not_parsed(&error, P::NAME, P::VERSION),
    };
    let outcome = match parsed {
        Commands::Solve(solve::Arguments { program, options }) => {
            solve::run(options, P::NAME, P::VERSION, || P::prepare(program))
        }
        Commands::Node(arguments) => {
            let mut kinds = Kinds::default();
            P::kinds(&mut kinds);
            let more = matches.subcommand_matches(NODE).map_or(Ok(()), P::before_node);
            more.and_then(|()| node::run(&arguments, kinds, P::NAME, P::VERSION))
        }
        Commands::Submit(submit::Arguments { program, options }) => {
            let arguments = P::Arguments::augment_args(Command::new(P::NAME));
            let given = matches.subcommand_matches(SUBMIT);
            let job_name = given
                .map_or_else(|| P::NAME.to_owned(), |given| naming::job_name(P::NAME, &arguments, given));
            submit::run(options, job_name, P::NAME, P::VERSION, || P::prepare(program))
        }
        #[cfg(feature = "health")]
        Commands::Health(arguments) => health::run(&arguments),
        Commands::Completions(completions) => Ok(completions.run(command)),
        #[cfg(feature = "man")]
        Commands::Man(man) => man.run(command),
        Commands::More(command) => P::more(command),
    };
    ended(outcome)
}

/// Prints the error, if there is one, and returns the exit code. A failed write to standard output is an error.
pub fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    let outcome = outcome.and_then(|code| lost_output().map_or(Ok(code), Err));
    outcome.unwrap_or_else(|failure| {
        tell(format_args!("error: {failure}"));
        failure.exit_code()
    })
}
