//! The interpreters of routines, and the folders that they read.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::Args;
use rustix::event::{PollFd, PollFlags};
use taskwork_child::{Group, read_tail, shown};

use super::{
    LOAD_MAX,
    process::{exit_of, wait_for},
};

/// A language with a shim in this program.
#[derive(Debug)]
pub(super) struct Language {
    /// The name of the file with the shim, and its text.
    pub(super) shim: (&'static str, &'static str),
    /// Arguments with which the interpreter compiles the shim; none if it need not.
    compile: &'static [&'static str],
    /// Arguments with which the interpreter prints its own path, since it may be started through others, and the paths that
    /// it reads.
    paths: &'static [&'static str],
    /// The remedy if the interpreter does not start.
    pub(super) remedy: &'static str,
}

impl Language {
    /// Returns whether the interpreter compiles the shim.
    pub(super) fn needs_compiler(&self) -> bool {
        !self.compile.is_empty()
    }
}

pub(super) static PYTHON: Language = Language {
    shim: ("shim.py", include_str!("../../shims/python/shim.py")),
    compile: &[],
    paths: &["-I", "-c", PYTHON_PATHS],
    remedy: ": install Python 3.9 or later, or select it by --python PROGRAM",
};

pub(super) static NODE: Language = Language {
    shim: ("shim.cjs", include_str!("../../shims/javascript/shim.cjs")),
    compile: &[],
    paths: &["-e", r"process.stdout.write(`${process.execPath}\0${fs.realpathSync(process.execPath)}`)"],
    remedy: ": install Node.js 20 or later, or select it by --node PROGRAM",
};

pub(super) static JAVA: Language = Language {
    shim: ("Routines.java", include_str!("../../shims/java/Routines.java")),
    compile: &["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", JAVA_CLASSES, "Routines.java"],
    paths: &["-cp", JAVA_CLASSES, "routines.Routines", "paths"],
    remedy: ": install a JDK 17 or later, or select its java by --java PROGRAM",
};

pub(super) static R: Language = Language {
    shim: ("shim.R", include_str!("../../shims/r/shim.R")),
    compile: &[],
    paths: &["--vanilla", "-e", R_PATHS],
    remedy: ": install R 4.0 or later with its package jsonlite, or select its Rscript by --rscript PROGRAM",
};

pub(super) static OCTAVE: Language = Language {
    shim: ("shim.m", include_str!("../../shims/octave/shim.m")),
    compile: &[],
    paths: &["--norc", "--no-history", "--eval", OCTAVE_PATHS],
    remedy: ": install GNU Octave 7 or later, or select it by --octave PROGRAM",
};

/// The folder with the compiled shim of Java.
pub(super) const JAVA_CLASSES: &str = "java";

const PYTHON_PATHS: &str = r"
import os, sys
paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path]
paths = [sys.executable, os.path.realpath(sys.executable), *dict.fromkeys(paths)]
sys.stdout.buffer.write(b'\0'.join(os.fsencode(path) for path in paths if path))
";

/// R reads its settings in `/etc` on some systems.
const R_PATHS: &str = r#"
loadNamespace("jsonlite")
paths <- c(R.home(), R.home("share"), .libPaths(), list.files(R.home("etc"), full.names = TRUE))
writeBin(c(file.path(R.home("bin"), "Rscript"), normalizePath(paths)), file("/dev/stdout", "wb", raw = TRUE))
"#;

const OCTAVE_PATHS: &str = r#"
program = readlink("/proc/self/exe");
printf("%s\0", program, OCTAVE_HOME(), OCTAVE_EXEC_HOME(), strsplit(path(), pathsep()){:});
"#;

/// The programs that run packages without a program.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct Interpreters {
    /// The interpreter of packages with the runtime python3, version 3.9 or later.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(super) python: PathBuf,
    /// The interpreter of packages with the runtime node, Node.js 20 or later.
    #[arg(long, value_name = "PROGRAM", default_value = "node")]
    pub(super) node: PathBuf,
    /// The program java of the JDK for packages with the runtime java, version 17 or later.
    #[arg(long, value_name = "PROGRAM", default_value = "java")]
    pub(super) java: PathBuf,
    /// The program Rscript of packages with the runtime r, R 4.0 or later with its package jsonlite.
    #[arg(long, value_name = "PROGRAM", default_value = "Rscript")]
    pub(super) rscript: PathBuf,
    /// The interpreter of packages with the runtime octave, GNU Octave 7 or later.
    #[arg(long, value_name = "PROGRAM", default_value = "octave-cli")]
    pub(super) octave: PathBuf,
}

#[cfg(test)]
impl Default for Interpreters {
    fn default() -> Self {
        let [python, node, java] = ["python3", "node", "java"].map(PathBuf::from);
        Self { python, node, java, rscript: "Rscript".into(), octave: "octave-cli".into() }
    }
}

/// An interpreter, as it was found.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) program: OsString,
    /// The files and folders that it reads.
    pub(super) read: Vec<PathBuf>,
}

impl Interpreter {
    /// Runs commands that start an interpreter, to compile its shim in a folder, and to find its program and its folders.
    ///
    /// # Errors
    /// If it cannot be started, fails, or takes longer than the load of a routine may take.
    pub(super) fn find(
        command: impl Fn() -> Command,
        language: &Language,
        folder: &Path,
    ) -> io::Result<Self> {
        if language.needs_compiler() {
            run(command(), language.compile, folder)?;
        }
        Self::parse(&mut run(command(), language.paths, folder)?)
    }

    fn parse(output: &mut File) -> io::Result<Self> {
        let mut paths = Vec::new();
        output.rewind()?;
        output.read_to_end(&mut paths)?;
        let mut paths = paths.split(|byte| *byte == 0).map(OsStr::from_bytes);
        let program = paths.next().unwrap_or_default().to_owned();
        // Some interpreters of systems have the prefix `/`: those read the folders of the system.
        let read = paths.map(PathBuf::from).filter(|path| path.is_absolute() && path.parent().is_some());
        Ok(Self { program, read: read.collect() })
    }
}

/// Runs a command with arguments, and returns its output. Temporary files are in a folder.
fn run(mut command: Command, arguments: &[&str], folder: &Path) -> io::Result<File> {
    let (output, mut errors) = (tempfile::tempfile_in(folder)?, tempfile::tempfile_in(folder)?);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut group = Group::start(&mut command)?;
    let exit = exit_of(&group)?;
    wait_for(&mut [PollFd::new(&exit, PollFlags::IN)], LOAD_MAX);
    let status = group.child.try_wait()?;
    if !status.is_some_and(|status| status.success()) {
        errors.rewind()?;
        let status = status
            .map_or_else(|| format!("no end within {} s", LOAD_MAX.as_secs()), |status| status.to_string());
        return Err(io::Error::other(format!("{status}{}", shown(&read_tail(errors)))));
    }
    Ok(output)
}
