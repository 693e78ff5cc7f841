//! Shell completions and man pages, generated from a command's options.

use std::{collections::BTreeMap, process::ExitCode};
#[cfg(feature = "man")]
use std::{fs, io, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
#[cfg(feature = "man")]
use clap_mangen::roff::{Roff, bold, roman};

#[cfg(feature = "man")]
use crate::Failure;
use crate::failure::print;

/// The exit codes of all commands.
const EXIT_CODES: [(&str, &str); 7] = [
    ("0", "success"),
    ("1", "the job or the command failed, or the result is incomplete"),
    ("2", "wrong usage or input, or access denied"),
    ("3", "ZooKeeper could not be reached, or did not answer for too long"),
    ("4", "a node reached its drain deadline before it had transferred all its tasks"),
    ("5", "there is no such cluster, job or node"),
    ("130", "interrupted by Ctrl-C"),
];

/// Returns the environment variables of a command and its subcommands, each with its option.
fn variables(command: &Command) -> BTreeMap<String, String> {
    let own = command.get_arguments().filter_map(|argument| {
        let option = argument.get_long()?;
        Some((argument.get_env()?.to_string_lossy().into_owned(), format!("as --{option}")))
    });
    let own: BTreeMap<String, String> = own.collect();
    command.get_subcommands().map(variables).fold(own, |mut all, more| {
        all.extend(more);
        all
    })
}

/// Adds exit codes and environment variables to the help of a command and its subcommands.
#[must_use]
pub fn with_notes(command: Command) -> Command {
    let line = |(name, text): (&str, &str)| format!("  {name:<22} {text}\n");
    let mut notes = format!("Exit codes:\n{}", EXIT_CODES.map(line).concat());
    let variables = variables(&command);
    if !variables.is_empty() {
        notes += "\nEnvironment:\n";
        notes.extend(variables.iter().map(|(name, text)| line((name, text))));
    }
    command.after_long_help(notes).mut_subcommands(with_notes)
}

/// The arguments of `completions`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `man`.
#[cfg(feature = "man")]
#[derive(Debug, Args)]
#[group(skip)]
pub struct Man {
    /// The output directory, such as ~/.local/share/man/man1; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Completions {
    /// Prints the completions of a command.
    pub fn run(&self, mut command: Command) -> ExitCode {
        print(&completions(&mut command, self.shell));
        ExitCode::SUCCESS
    }
}

/// Returns a command's completions for a shell.
pub fn completions(command: &mut Command, shell: Shell) -> String {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(feature = "man")]
impl Man {
    /// Writes the man pages of a command and its subcommands.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn run(&self, command: Command) -> Result<ExitCode, Failure> {
        let refused =
            |error| Failure::usage(format!("{}: man pages cannot be written: {error}", self.out.display()));
        fs::create_dir_all(&self.out).map_err(refused)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        self.write(&command, None).map_err(refused)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the page of a command, and those of its subcommands.
    fn write(&self, command: &Command, parent: Option<&Command>) -> io::Result<()> {
        let subcommands: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
        for sub in &subcommands {
            self.write(sub, Some(command))?;
        }
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render(&mut text)?;
        let mut more = Roff::new();
        let variables = variables(command);
        let variables: Vec<_> = variables.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        for (title, entries) in [("EXIT STATUS", &EXIT_CODES[..]), ("ENVIRONMENT", &variables)] {
            if !entries.is_empty() {
                more.control("SH", [title]);
            }
            for &(name, meaning) in entries {
                more.control("TP", []).text([bold(name)]).text([roman(meaning)]);
            }
        }
        let others = subcommands.into_iter().chain(parent).map(|other| format!("{}(1)", page_name(other)));
        let others = others.collect::<Vec<_>>().join(", ");
        if !others.is_empty() {
            more.control("SH", ["SEE ALSO"]).text([roman(others)]);
        }
        more.to_writer(&mut text)?;
        fs::write(self.out.join(page.get_filename()), text)
    }
}

/// Returns the name of a command with its parents, as in the names of files.
#[cfg(feature = "man")]
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}
