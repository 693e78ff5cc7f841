//! The description of a program, and its command line.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{
    ArgMatches, Args, Command, CommandFactory as _, FromArgMatches, Parser, Subcommand, error::ErrorKind,
};
use taskwork::Kinds;

#[cfg(feature = "health")]
use crate::health;
#[cfg(feature = "man")]
use crate::manual::Man;
use crate::{
    Failure, Prepared,
    failure::{lost_output, note_lost, print, tell},
    manual::Completions,
    node, solve, submit, version,
};

/// A program on the runtime.
pub trait Program: 'static {
    /// The name of its command; nodes only take jobs of this program. 1 to 60 letters, digits, dots, `-` or
    /// `_`.
    const NAME: &'static str;
    /// Its version: nodes only take jobs of the same version. It must change whenever the encoding of tasks,
    /// shared data or outputs changes. Restricted like the name.
    const VERSION: &'static str;
    /// A description of the program in one line.
    const ABOUT: &'static str;
    /// The arguments of `solve` and `submit` besides the runtime's own options.
    type Arguments: Args;
    /// The program's own commands; [`NoMore`] if there are none.
    type More: Subcommand;

    /// Declares every type of task in the program's jobs.
    fn kinds(kinds: &mut Kinds);

    /// Creates a job from the arguments.
    ///
    /// # Errors
    /// If something is wrong with the arguments, or with the files that they name.
    fn prepare(arguments: Self::Arguments) -> Result<Prepared, Failure>;

    /// Adds options of the program to the command `node`.
    fn add_to_node(node: Command) -> Command {
        node
    }

    /// Takes the options that were [added](Self::add_to_node), before the node begins.
    ///
    /// # Errors
    /// If something is wrong with them.
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

/// No commands besides the runtime's own.
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
    /// SIGQUIT, ends the program at once. What was to be ignored, such as SIGHUP by nohup, stays ignored.
    Solve(solve::Arguments<A>),
    /// Run a node of a cluster: it works on jobs, several at a time, until told to leave (SIGTERM,
    /// `taskwork drain`).
    ///
    /// Ctrl-C, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU make it leave as SIGTERM does; SIGQUIT ends it at once. What was
    /// to be ignored, such as SIGHUP by nohup, stays ignored.
    Node(node::Arguments),
    /// Submit it to a cluster.
    Submit(submit::Arguments<A>),
    /// Ask a node of this machine how it is, for whoever watches over its process: exit code 0 if it is well.
    #[cfg(feature = "health")]
    Health(health::Arguments),
    /// Print what lets a shell complete this command: bash, elvish, fish, powershell or zsh.
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

/// Returns a program's command, with all options.
fn command<P: Program>() -> Command {
    let command = CommandLine::<P::Arguments, P::More>::command();
    let command = command.name(P::NAME).version(P::VERSION).about(P::ABOUT);
    command.mut_subcommand(NODE, P::add_to_node)
}

/// Ends a command whose line was not parsed: it was wrong, or asked for help or for the version.
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

/// Runs a command line, the name of the program first.
pub fn run<P: Program>(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let command = command::<P>();
    let parsed = command.clone().try_get_matches_from(arguments);
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
            submit::run(options, P::NAME, P::VERSION, || P::prepare(program))
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

/// Prints the error, if there is one, and returns the exit code. A command whose answer could not be written has failed.
pub fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    let outcome = outcome.and_then(|code| lost_output().map_or(Ok(code), Err));
    outcome.unwrap_or_else(|failure| {
        tell(format_args!("error: {failure}"));
        failure.exit_code()
    })
}
