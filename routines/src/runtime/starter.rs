//! Starts runtimes: their programs, pipes, folders and environments.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use taskwork_child::{Enclosure, Group, WorkDir, sweep};
use thiserror::Error;

use super::{
    interpreter::{Interpreter, Interpreters, JAVA, JAVA_CLASSES, Language, NODE, OCTAVE, PYTHON, R},
    page::Page,
    process::Runtime,
};
use crate::{
    isolation::{Limits, SELF},
    package::RuntimeKind,
    resource::Resources,
    template::RUN_TEMPLATE,
    tenant::Tenant,
    wire::{EntryKind, ToRuntime},
};

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
    #[error("the runtime {program:?} cannot be started: {error}{remedy}")]
    Start { program: PathBuf, error: io::Error, remedy: &'static str },
    #[error("{0}")]
    Limits(String),
    #[error("the work folder of a runtime cannot be prepared: {0}")]
    Folder(#[from] io::Error),
}

/// The programs of runtimes.
#[derive(Debug)]
pub(crate) enum Program {
    /// That of the package, or an interpreter with its shim.
    Interpreters(Interpreters),
    /// A program and its arguments for all packages.
    Command(Vec<OsString>),
}

/// Starts runtimes in work folders below one folder.
#[derive(Debug)]
pub(crate) struct Starter {
    folder: WorkDir,
    program: Program,
    /// Without them, runtimes have all rights of this process.
    limits: Option<Limits>,
    resources: Arc<Resources>,
    /// The interpreters that were found, by the names of their shims.
    known: Mutex<HashMap<&'static str, Interpreter>>,
}

impl Starter {
    /// Creates a starter of these programs, with these limits. Each runtime may read the resources of its tenant only.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub(crate) fn new(
        within: &Path,
        program: Program,
        limits: Option<Limits>,
        resources: Arc<Resources>,
    ) -> io::Result<Self> {
        fs::create_dir_all(within)?;
        sweep(within, PREFIX);
        let folder = WorkDir::within(within, PREFIX)?;
        for Language { shim: (file, text), .. } in [&PYTHON, &NODE, &JAVA, &R, &OCTAVE] {
            fs::write(folder.path().join(file), text)?;
        }
        Ok(Self { folder, program, limits, resources, known: Mutex::default() })
    }

    /// Starts a runtime that loads a routine.
    pub(crate) fn start(
        &self,
        package: &Path,
        entry: &str,
        kind: EntryKind,
        engine: RuntimeKind,
    ) -> Result<Runtime, StartError> {
        self.start_for(&Tenant::default(), package, entry, kind, engine)
    }

    /// Starts such a runtime for calls of a tenant.
    pub(crate) fn start_for(
        &self,
        tenant: &Tenant,
        package: &Path,
        entry: &str,
        kind: EntryKind,
        engine: RuntimeKind,
    ) -> Result<Runtime, StartError> {
        let mut runtime = self.open_for(tenant, package, entry, engine)?;
        let package = package.to_string_lossy();
        let load = ToRuntime::Load { folder: &package, entry, kind };
        for message in [ToRuntime::Hello { versions: VERSIONS }, load] {
            let sent = runtime.send(&message.frame());
            sent.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(runtime)
    }

    /// Starts a runtime that was sent nothing, and may read a package.
    pub(crate) fn open(
        &self,
        package: &Path,
        entry: &str,
        runtime: RuntimeKind,
    ) -> Result<Runtime, StartError> {
        self.open_for(&Tenant::default(), package, entry, runtime)
    }

    fn open_for(
        &self,
        tenant: &Tenant,
        package: &Path,
        entry: &str,
        runtime: RuntimeKind,
    ) -> Result<Runtime, StartError> {
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
        let (mut command, remedy) = self.command(folder.path(), tenant, package, entry, runtime)?;
        command
            .env("ROUTINES_IN", &reads)
            .env("ROUTINES_OUT", &writes)
            .env("ROUTINES_PAGE", &page_path)
            .stdin(Stdio::null())
            .stdout(log_writer.try_clone()?)
            .stderr(log_writer);
        let group = Group::start(&mut command);
        let program = PathBuf::from(command.get_program());
        // The command holds a write end of the log, which would keep its reader waiting.
        drop(command);
        let group = group.map_err(|error| StartError::Start { program, error, remedy })?;
        Ok(Runtime::of(group, folder, [input, output], page, log_reader)?.for_tenant(tenant.clone()))
    }

    /// Removes the work folder when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "cannot remove the work folder");
        }
    }

    /// Returns the command of a runtime, and the remedy if it does not start.
    fn command(
        &self,
        folder: &Path,
        tenant: &Tenant,
        package: &Path,
        entry: &str,
        runtime: RuntimeKind,
    ) -> Result<(Command, &'static str), StartError> {
        let mut own = Enclosure::default();
        let (words, remedy) = match (&self.program, runtime) {
            (Program::Command(words), _) => (words.clone(), ""),
            (Program::Interpreters(programs), RuntimeKind::Python3) => {
                (self.python(&programs.python, tenant, package, &mut own)?, PYTHON.remedy)
            }
            (Program::Interpreters(programs), RuntimeKind::Node) => {
                (self.script(&NODE, &programs.node, &[], &mut own)?, NODE.remedy)
            }
            (Program::Interpreters(programs), RuntimeKind::R) => {
                (self.script(&R, &programs.rscript, &["--vanilla"], &mut own)?, R.remedy)
            }
            (Program::Interpreters(programs), RuntimeKind::Octave) => {
                let options = ["--norc", "--no-history", "--no-window-system"];
                (self.script(&OCTAVE, &programs.octave, &options, &mut own)?, OCTAVE.remedy)
            }
            (Program::Interpreters(programs), RuntimeKind::Java) => {
                (self.java(&programs.java, folder, tenant, package, &mut own)?, JAVA.remedy)
            }
            (Program::Interpreters(_), RuntimeKind::Command) => {
                own.read.push(SELF.into());
                (vec![SELF.into(), RUN_TEMPLATE.into()], "")
            }
            (Program::Interpreters(_), RuntimeKind::Program) => {
                let file = entry.split_once(':').map_or(entry, |(file, _)| file);
                (vec![package.join(file).into()], "")
            }
        };
        let mut command = if let Some(limits) = &self.limits {
            own.read.push(package.to_owned());
            own.read_named.push(self.resources.folder_of(tenant)?);
            own.write.push(folder.to_owned());
            limits.command(&words, own).map_err(StartError::Limits)?
        } else {
            let mut command = Command::new(words.first().cloned().unwrap_or_default());
            command.args(words.iter().skip(1));
            command
        };
        prepare(&mut command, folder);
        if self.limits.is_some() {
            // The shim explains refused accesses.
            command.env("ROUTINES_ISOLATED", "1");
        }
        Ok((command, remedy))
    }

    /// Returns the words that start an interpreter with options and its shim, and adds the files that it uses.
    fn script(
        &self,
        language: &Language,
        program: &Path,
        options: &[&str],
        own: &mut Enclosure,
    ) -> Result<Vec<OsString>, StartError> {
        let mut words = vec![self.interpreter(language, program, own)?];
        words.extend(options.iter().map(OsString::from));
        let shim = self.folder.path().join(language.shim.0);
        own.read.push(shim.clone());
        words.push(shim.into());
        Ok(words)
    }

    /// Returns the words that start the shim of Python, and adds the files that it uses.
    fn python(
        &self,
        python: &Path,
        tenant: &Tenant,
        package: &Path,
        own: &mut Enclosure,
    ) -> Result<Vec<OsString>, StartError> {
        let program = self.interpreter(&PYTHON, python, own)?;
        let cache = self.cache(tenant, package, own)?;
        let shim = self.folder.path().join(PYTHON.shim.0);
        // Isolated: neither the environment nor the user's folders change the modules that a routine imports.
        let mut words = ["-I", "-X"].map(OsString::from).to_vec();
        words.insert(0, program);
        words.push(format!("pycache_prefix={}", cache.display()).into());
        words.push(shim.clone().into());
        own.read.push(shim);
        Ok(words)
    }

    /// Returns the words that start the shim of Java, and adds the files that it uses.
    fn java(
        &self,
        java: &Path,
        folder: &Path,
        tenant: &Tenant,
        package: &Path,
        own: &mut Enclosure,
    ) -> Result<Vec<OsString>, StartError> {
        let program = self.interpreter(&JAVA, java, own)?;
        let cache = self.cache(tenant, package, own)?;
        let classes = self.folder.path().join(JAVA_CLASSES);
        // A call has one worker, so one thread collects garbage.
        let mut words =
            ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8"].map(OsString::from).to_vec();
        words.insert(0, program);
        for (name, value) in [("java.io.tmpdir", folder), ("user.home", folder), ("routines.cache", &*cache)]
        {
            words.push(format!("-D{name}={}", value.display()).into());
        }
        words.extend(["-cp".into(), classes.clone().into(), "routines.Routines".into()]);
        own.read.push(classes);
        Ok(words)
    }

    /// Returns a folder for compiled files. Each tenant and package has its own, since routines can change it.
    fn cache(&self, tenant: &Tenant, package: &Path, own: &mut Enclosure) -> io::Result<PathBuf> {
        let name = tenant.key(&package.file_name().unwrap_or_default().to_string_lossy());
        let cache = self.folder.path().join("cache").join(name);
        fs::create_dir_all(&cache)?;
        own.write.push(cache.clone());
        Ok(cache)
    }

    /// Returns an interpreter. If it is isolated or compiles its shim, finds it once, and adds the files that it reads.
    fn interpreter(
        &self,
        language: &Language,
        program: &Path,
        own: &mut Enclosure,
    ) -> Result<OsString, StartError> {
        if self.limits.is_none() && !language.needs_compiler() {
            return Ok(program.into());
        }
        // Held until it is found, so that its shim is compiled once.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known.entry(language.shim.0) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(unknown) => {
                let command = || {
                    let mut command = Command::new(program);
                    prepare(&mut command, self.folder.path());
                    command
                };
                let found = Interpreter::find(command, language, self.folder.path());
                let program = program.to_owned();
                unknown.insert(found.map_err(|error| StartError::Start {
                    program,
                    error,
                    remedy: language.remedy,
                })?)
            }
        };
        own.read.clone_from(&found.read);
        Ok(found.program.clone())
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
