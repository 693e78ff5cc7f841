//! Shell completions and man pages, generated from a command's options.

use std::process::ExitCode;
#[cfg(feature = "man")]
use std::{fs, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

#[cfg(feature = "man")]
use crate::Failure;
use crate::failure::print;

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
        clap_mangen::generate_to(command, &self.out).map_err(refused)?;
        Ok(ExitCode::SUCCESS)
    }
}
