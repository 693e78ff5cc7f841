//! Starts runtimes: their programs, pipes, folders and environments.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use taskwork_child::{Enclosure, Group, WorkDir, sweep};
use thiserror::Error;

use super::{interpreter::Interpreter, page::Page, process::Runtime};
use crate::{
    isolation::Limits,
    wire::{EntryKind, ToRuntime},
};

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
    #[error("{0}")]
    Limits(String),
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
    /// Without them, runtimes have all rights of this process.
    limits: Option<Limits>,
    /// The interpreter of isolated runtimes.
    interpreter: OnceLock<Interpreter>,
}

impl Starter {
    /// Creates a starter of this program, with these limits.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub(crate) fn new(
        within: &Path,
        program: impl Into<Program>,
        limits: Option<Limits>,
    ) -> io::Result<Self> {
        fs::create_dir_all(within)?;
        sweep(within, PREFIX);
        let folder = WorkDir::within(within, PREFIX)?;
        fs::write(folder.path().join("shim.py"), PYTHON_SHIM)?;
        Ok(Self { folder, program: program.into(), limits, interpreter: OnceLock::new() })
    }

    /// Starts a runtime that loads a routine: the program of the package, if it has one.
    pub(crate) fn start(
        &self,
        package: &Path,
        entry: &str,
        kind: EntryKind,
        program: Option<&Path>,
    ) -> Result<Runtime, StartError> {
        let mut runtime = self.open(package, program)?;
        let package = package.to_string_lossy();
        let load = ToRuntime::Load { folder: &package, entry, kind };
        for message in [ToRuntime::Hello { versions: VERSIONS }, load] {
            let sent = runtime.send(&message.frame());
            sent.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(runtime)
    }

    /// Starts a runtime that was sent nothing, and may read a package.
    pub(crate) fn open(&self, package: &Path, program: Option<&Path>) -> Result<Runtime, StartError> {
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
        let (mut command, program) = self.command(folder.path(), package, program)?;
        command
            .env("ROUTINES_IN", &reads)
            .env("ROUTINES_OUT", &writes)
            .env("ROUTINES_PAGE", &page_path)
            .stdin(Stdio::null())
            .stdout(log_writer.try_clone()?)
            .stderr(log_writer);
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

    /// Returns the command of a runtime, and its program.
    fn command(
        &self,
        folder: &Path,
        package: &Path,
        program: Option<&Path>,
    ) -> Result<(Command, PathBuf), StartError> {
        let mut own = Enclosure::default();
        let words = match (program, &self.program) {
            (Some(program), _) => vec![program.into()],
            (None, Program::Python(python)) => self.python(python, package, &mut own)?,
            (None, Program::Command(words)) => words.clone(),
        };
        let program = PathBuf::from(words.first().cloned().unwrap_or_default());
        let mut command = if let Some(limits) = &self.limits {
            own.read.push(package.to_owned());
            own.write.push(folder.to_owned());
            limits.command(&words, own).map_err(StartError::Limits)?
        } else {
            let mut command = Command::new(&program);
            command.args(words.iter().skip(1));
            command
        };
        prepare(&mut command, folder);
        if self.limits.is_some() {
            // The shim explains refused accesses.
            command.env("ROUTINES_ISOLATED", "1");
        }
        Ok((command, program))
    }

    /// Returns the words that start the shim, and adds the files that it uses.
    fn python(
        &self,
        python: &Path,
        package: &Path,
        own: &mut Enclosure,
    ) -> Result<Vec<OsString>, StartError> {
        let mut program = python.as_os_str();
        if self.limits.is_some() {
            let interpreter = self.interpreter(python)?;
            program = &interpreter.program;
            own.read.clone_from(&interpreter.read);
        }
        // Of each package its own, since routines can change it.
        let cache = self.folder.path().join("pyc").join(package.file_name().unwrap_or_default());
        fs::create_dir_all(&cache)?;
        let shim = self.folder.path().join("shim.py");
        // Isolated: neither the environment nor the user's folders change the modules that a routine imports.
        let mut words = ["-I", "-X"].map(OsString::from).to_vec();
        words.insert(0, program.to_owned());
        words.push(format!("pycache_prefix={}", cache.display()).into());
        words.push(shim.clone().into());
        own.read.push(shim);
        own.write.push(cache);
        Ok(words)
    }

    fn interpreter(&self, python: &Path) -> Result<&Interpreter, StartError> {
        if let Some(known) = self.interpreter.get() {
            return Ok(known);
        }
        let mut command = Command::new(python);
        prepare(&mut command, self.folder.path());
        let found = Interpreter::find(command, self.folder.path());
        let found = found.map_err(|error| StartError::Start { program: python.to_owned(), error })?;
        Ok(self.interpreter.get_or_init(|| found))
    }
}

/// Sets the folder and the environment of a runtime.
fn prepare(command: &mut Command, folder: &Path) {
    command.env_clear().current_dir(folder);
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(inherited).env("HOME", folder).env("TMPDIR", folder);
    // A call has one worker, so one thread.
    command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1").env("PYTHONUNBUFFERED", "1");
}
