//! The isolation of runtimes: the options of processes that start them, and the command by which a runtime limits itself
//! before it becomes its program.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use clap::{Args, ValueEnum};
use taskwork_child::Enclosure;
use taskwork_cli::{Failure, note};

use crate::NAME;

/// The program of this process, although its file was replaced.
pub(crate) const SELF: &str = "/proc/self/exe";

/// The name of the subcommand [`Enclose`].
const ENCLOSE: &str = "enclose";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// Routines have all rights of the user of this process
    None,
    /// The kernel limits each process of a routine to its own files, without network and signals to others
    Process,
}

/// The isolation of runtimes without an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preference {
    /// None: a program is tested that may be anywhere.
    None,
    /// Isolation if the kernel can do it: the routines and the machine have one user.
    Possible,
    /// Isolation, or an error.
    Required,
}

/// The options of processes that start runtimes.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct IsolationOptions {
    /// The isolation of routines. Default: process; a command on this machine uses none if the kernel cannot do it, and
    /// conform uses none
    #[arg(long, value_name = "LEVEL", env = "ROUTINES_ISOLATION")]
    isolation: Option<Isolation>,
    /// Files and folders, in addition to those of the system and of the interpreter, that isolated routines read.
    #[arg(long, value_name = "PATH,…", value_delimiter = ',', env = "ROUTINES_READ")]
    read: Vec<PathBuf>,
    /// Files and folders that isolated routines read and change.
    #[arg(long, value_name = "PATH,…", value_delimiter = ',', env = "ROUTINES_WRITE")]
    write: Vec<PathBuf>,
    /// TCP ports, of any machine, to which isolated routines connect.
    #[arg(long, value_name = "PORT,…", value_delimiter = ',', env = "ROUTINES_NETWORK")]
    network: Vec<u16>,
}

/// The files and ports of isolated runtimes.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    granted: Enclosure,
    /// Folders that no runtime may read as a whole.
    private: Vec<PathBuf>,
}

/// Limits this process, and executes a program.
#[derive(Debug, Args)]
pub(crate) struct Enclose {
    #[arg(long)]
    read: Vec<PathBuf>,
    #[arg(long)]
    read_named: Vec<PathBuf>,
    #[arg(long)]
    write: Vec<PathBuf>,
    #[arg(long)]
    port: Vec<u16>,
    /// Without a program, the limits are tested.
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl IsolationOptions {
    /// Returns the limits of runtimes, which must not read these folders; none if they are not isolated.
    pub(crate) fn limits(
        &self,
        private: Vec<PathBuf>,
        preference: Preference,
    ) -> Result<Option<Limits>, Failure> {
        let preference = match self.isolation {
            Some(Isolation::None) => Preference::None,
            Some(Isolation::Process) => Preference::Required,
            None => preference,
        };
        if preference == Preference::None {
            return Ok(None);
        }
        let real = |option: &str, paths: &[PathBuf]| {
            let real = paths.iter().map(|path| {
                let refused = |error| Failure::usage(format!("{option} {}: {error}", path.display()));
                path.canonicalize().map_err(refused)
            });
            real.collect::<Result<Vec<_>, _>>()
        };
        let mut read = real("--read", &self.read)?;
        let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        read.extend(env::split_paths(&libraries).filter(|path| path.is_absolute()));
        let write = real("--write", &self.write)?;
        let granted = Enclosure { read, read_named: Vec::new(), write, ports: self.network.clone() };
        let limits = Limits { granted, private };
        limits.check(&limits.granted).map_err(Failure::usage)?;
        match limits.test() {
            Ok(()) => Ok(Some(limits)),
            Err(reason) if preference == Preference::Required => Err(Failure::usage(format!(
                "{reason}. --isolation none runs routines with all rights of this user"
            ))),
            Err(reason) => {
                note(&format!("{reason}. So routines run with all your rights, as with --isolation none"));
                Ok(None)
            }
        }
    }
}

impl Limits {
    /// Returns the command that starts a program with these limits and files and ports of its own.
    ///
    /// # Errors
    /// If they contain a private folder.
    pub(crate) fn command(&self, words: &[OsString], own: Enclosure) -> Result<Command, String> {
        let mut granted = self.granted.clone();
        granted.read.extend(own.read);
        granted.read_named.extend(own.read_named);
        granted.write.extend(own.write);
        self.check(&granted)?;
        let mut command = enclose(&granted);
        command.arg("--").args(words);
        Ok(command)
    }

    fn check(&self, granted: &Enclosure) -> Result<(), String> {
        let read = self.private.iter().find_map(|private| Some((private, granted.reads(private)?)));
        read.map_or(Ok(()), |(private, read)| {
            Err(format!(
                "isolated routines may read {}, and so {}, which they must not: move one of them",
                read.display(),
                private.display()
            ))
        })
    }

    /// Tests whether the kernel enforces the limits.
    fn test(&self) -> Result<(), String> {
        let mut command = enclose(&self.granted);
        let tested = command.env_clear().stdin(Stdio::null()).output();
        let tested =
            tested.map_err(|error| format!("{SELF} cannot be started to isolate routines: {error}"))?;
        let reason = String::from_utf8_lossy(&tested.stderr);
        let reason = reason.trim_end().trim_start_matches("error: ");
        if tested.status.success() { Ok(()) } else { Err(reason.to_owned()) }
    }
}

fn enclose(granted: &Enclosure) -> Command {
    let mut command = Command::new(SELF);
    command.arg0(NAME).arg(ENCLOSE);
    for (option, paths) in
        [("--read", &granted.read), ("--read-named", &granted.read_named), ("--write", &granted.write)]
    {
        for path in paths {
            command.arg(option).arg(path);
        }
    }
    for port in &granted.ports {
        command.arg("--port").arg(port.to_string());
    }
    command
}

impl Enclose {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self { read, read_named, write, port: ports, command } = self;
        Enclosure { read, read_named, write, ports }.enter().map_err(Failure::failed)?;
        let Some((program, arguments)) = command.split_first() else { return Ok(ExitCode::SUCCESS) };
        let error = Command::new(program).args(arguments).exec();
        Err(Failure::usage(format!("the runtime {} cannot be started: {error}", program.display())))
    }
}
