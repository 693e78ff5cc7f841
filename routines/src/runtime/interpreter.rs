//! A Python interpreter, and the folders that it reads.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::event::{PollFd, PollFlags};
use taskwork_child::{Group, read_tail, shown};

use super::{
    LOAD_MAX,
    process::{exit_of, wait_for},
};

/// Prints the path of the interpreter, which may be started through others, and the paths that it reads.
const PATHS: &str = r"
import os, sys
paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path]
paths = [sys.executable, os.path.realpath(sys.executable), *dict.fromkeys(paths)]
sys.stdout.buffer.write(b'\0'.join(os.fsencode(path) for path in paths if path))
";

/// An interpreter of Python.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) program: OsString,
    /// The files and folders that it reads.
    pub(super) read: Vec<PathBuf>,
}

impl Interpreter {
    /// Runs a command that starts Python, to find the interpreter and its folders. Temporary files are in `folder`.
    ///
    /// # Errors
    /// If it cannot be started, fails, or takes longer than the load of a routine may take.
    pub(super) fn find(mut command: Command, folder: &Path) -> io::Result<Self> {
        let (mut output, mut errors) = (tempfile::tempfile_in(folder)?, tempfile::tempfile_in(folder)?);
        command.args(["-I", "-c", PATHS]).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let mut group = Group::start(&mut command)?;
        let exit = exit_of(&group)?;
        wait_for(&mut [PollFd::new(&exit, PollFlags::IN)], LOAD_MAX);
        let status = group.child.try_wait()?;
        if !status.is_some_and(|status| status.success()) {
            errors.rewind()?;
            let status = status.map_or_else(
                || format!("no end within {} s", LOAD_MAX.as_secs()),
                |status| status.to_string(),
            );
            return Err(io::Error::other(format!("{status}{}", shown(&read_tail(errors)))));
        }
        Self::parse(&mut output)
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
