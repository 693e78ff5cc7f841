//! What a command says of itself to shells and to `man`: completions and man pages, from its own options.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{Failure, failure::print};

/// The arguments of `completions`.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Man {
    /// The directory to write them into, such as ~/.local/share/man/man1; it is created if it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Completions {
    /// Prints the completions of a command.
    pub(crate) fn run(&self, mut command: Command) -> ExitCode {
        print(&text(&mut command, self.shell));
        ExitCode::SUCCESS
    }
}

/// Returns a command's completions for a shell.
fn text(command: &mut Command, shell: Shell) -> String {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

impl Man {
    /// Writes the man pages of a command and its subcommands.
    pub(crate) fn run(&self, command: Command) -> Result<ExitCode, Failure> {
        let refused =
            |error| Failure::usage(format!("{}: man pages cannot be written: {error}", self.out.display()));
        fs::create_dir_all(&self.out).map_err(refused)?;
        clap_mangen::generate_to(command, &self.out).map_err(refused)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command as Process, Stdio},
    };

    use clap::ValueEnum as _;

    use super::*;
    use crate::operator;

    fn names(command: &Command) -> Vec<String> {
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
    }

    #[test]
    fn completions_name_every_command_in_every_shell() {
        let names = names(&operator::command());
        assert!(names.len() > 15 && names.contains(&"completions".to_owned()), "{names:?}");
        for &shell in Shell::value_variants() {
            let text = text(&mut operator::command(), shell);
            for name in &names {
                assert!(text.contains(name.as_str()), "{shell}: no {name}");
            }
            assert!(text.contains("--zk-session-timeout") || shell == Shell::Fish, "{shell}: options, too");
            assert!(text.contains("zk-session-timeout"), "{shell}: options, too");
        }
    }

    #[test]
    fn the_shell_understands_its_completions() {
        let text = text(&mut operator::command(), Shell::Bash);
        let mut shell = Process::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash is needed");
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn there_is_a_man_page_for_every_command_and_it_is_always_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let man = Man { out: folder.path().join("share/man1") };
        man.run(operator::command()).unwrap();
        let read = |name: &str| fs::read_to_string(man.out.join(name)).unwrap();
        let first = read("taskwork.1");
        for name in names(&operator::command()) {
            assert!(first.contains(&name.replace('-', "\\-")), "taskwork.1 does not name {name}");
            assert!(read(&format!("taskwork-{name}.1")).contains(".SH NAME"));
        }
        man.run(operator::command()).unwrap();
        assert_eq!(read("taskwork.1"), first);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let failure = Man { out: file.join("man1") }.run(operator::command()).unwrap_err();
        assert!(failure.to_string().contains("man pages cannot be written"), "{failure}");
    }
}
