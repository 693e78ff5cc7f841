//! Starts runtimes: their programs, pipes, folders and environments.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use taskwork_child::{Group, WorkDir, sweep};
use thiserror::Error;

use super::{page::Page, process::Runtime};
use crate::wire::{EntryKind, ToRuntime};

const PYTHON_SHIM: &str = include_str!("../../shims/python/shim.py");

/// The prefix of the names of work folders.
const PREFIX: &str = "routines-work-";

/// The versions of the protocol that this host speaks.
const VERSIONS: &[u32] = &[1];

/// The environment variables that runtimes inherit. Others may contain secrets of the node.
const INHERITED: &[&str] = &["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"];

/// The reasons for which a runtime does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StartError {
    #[error("the runtime {program:?} cannot be started: {error}")]
    Start { program: PathBuf, error: io::Error },
    #[error("the work folder of a runtime cannot be prepared: {0}")]
    Folder(#[from] io::Error),
}

/// The program of a runtime.
#[derive(Debug)]
pub(crate) enum Program {
    /// This Python interpreter, with the shim.
    Python(PathBuf),
    /// A program and its arguments.
    Command(Vec<OsString>),
}

impl From<PathBuf> for Program {
    fn from(python: PathBuf) -> Self {
        Self::Python(python)
    }
}

/// Starts runtimes in work folders below one folder.
#[derive(Debug)]
pub(crate) struct Starter {
    folder: WorkDir,
    program: Program,
}

impl Starter {
    /// Creates a starter of this program.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub(crate) fn new(within: &Path, program: impl Into<Program>) -> io::Result<Self> {
        fs::create_dir_all(within)?;
        sweep(within, PREFIX);
        let folder = WorkDir::within(within, PREFIX)?;
        fs::write(folder.path().join("shim.py"), PYTHON_SHIM)?;
        Ok(Self { folder, program: program.into() })
    }

    /// Starts a runtime that loads a routine: the program of the package, if it has one.
    pub(crate) fn start(
        &self,
        package: &Path,
        entry: &str,
        kind: EntryKind,
        program: Option<&Path>,
    ) -> Result<Runtime, StartError> {
        let mut runtime = self.open(program)?;
        let package = package.to_string_lossy();
        let load = ToRuntime::Load { folder: &package, entry, kind };
        for message in [ToRuntime::Hello { versions: VERSIONS }, load] {
            let sent = runtime.send(&message.frame());
            sent.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(runtime)
    }

    /// Starts a runtime that was sent nothing.
    pub(crate) fn open(&self, program: Option<&Path>) -> Result<Runtime, StartError> {
        let folder = tempfile::Builder::new().prefix("runtime-").tempdir_in(self.folder.path())?;
        let (reads, writes) = (folder.path().join("in"), folder.path().join("out"));
        for pipe in [&reads, &writes] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(io::Error::from)?;
        }
        let page_path = folder.path().join("page");
        let page = Page::create(&page_path)?;
        // Opened for both directions, so that neither side waits for the other one.
        let open = |pipe: &Path| {
            let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(pipe)
        };
        let (input, output) = (open(&reads)?, open(&writes)?);
        let (log_reader, log_writer) = io::pipe()?;
        let mut command = self.command(folder.path(), program);
        command
            .env("ROUTINES_IN", &reads)
            .env("ROUTINES_OUT", &writes)
            .env("ROUTINES_PAGE", &page_path)
            .stdin(Stdio::null())
            .stdout(log_writer.try_clone()?)
            .stderr(log_writer);
        let program = PathBuf::from(command.get_program());
        let group = Group::start(&mut command);
        // The command holds a write end of the log, which would keep its reader waiting.
        drop(command);
        let group = group.map_err(|error| StartError::Start { program, error })?;
        Ok(Runtime::of(group, folder, [input, output], page, log_reader)?)
    }

    /// Removes the work folder when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "cannot remove the work folder");
        }
    }

    fn command(&self, folder: &Path, program: Option<&Path>) -> Command {
        let mut command = match (program, &self.program) {
            (Some(program), _) => Command::new(program),
            (None, Program::Python(python)) => {
                let mut command = Command::new(python);
                // Isolated: neither the environment nor the user's folders change the modules that a routine imports.
                let cache = self.folder.path().join("pyc");
                command.args(["-I", "-X"]).arg(format!("pycache_prefix={}", cache.display()));
                command.arg(self.folder.path().join("shim.py"));
                command
            }
            (None, Program::Command(words)) => {
                let mut command = Command::new(words.first().map_or(OsStr::new(""), OsString::as_os_str));
                command.args(words.iter().skip(1));
                command
            }
        };
        command.env_clear().current_dir(folder);
        let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(inherited).env("HOME", folder).env("TMPDIR", folder);
        // A call has one worker, so one thread.
        command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1").env("PYTHONUNBUFFERED", "1");
        command
    }
}
