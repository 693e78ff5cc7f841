//! A node that an agent has started from the program of a job.

use std::{
    ffi::OsString,
    io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use taskwork::JobId;
use taskwork::companion::ObjectName;
use taskwork_child::Group;
use tokio::time::Instant;

/// The pause before a program that the system considers open for writing is started again, and the number of tries. A
/// child that another thread starts at the same moment holds all files of this process open until it runs its program.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const BUSY_TRIES: u32 = 100;

/// A running node. It is killed at the latest when the agent exits.
#[derive(Debug)]
pub(super) struct Guest {
    group: Group,
    /// The job for which it was started.
    pub(super) job: JobId,
    pub(super) release: (String, String),
    pub(super) program: ObjectName,
    pub(super) started: Instant,
    pub(super) was_stopped: bool,
}

impl Guest {
    /// Starts a node from a program.
    ///
    /// # Errors
    /// If the system cannot run the program.
    pub(super) fn start(
        path: &Path,
        options: &[OsString],
        job: JobId,
        release: (String, String),
        program: ObjectName,
    ) -> io::Result<Self> {
        let mut tries = 1;
        let group = loop {
            match Group::start(Command::new(path).arg("node").args(options).stdin(Stdio::null())) {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                    tries += 1;
                    thread::sleep(BUSY_PAUSE);
                }
                started => break started?,
            }
        };
        Ok(Self { group, job, release, program, started: Instant::now(), was_stopped: false })
    }

    pub(super) fn process(&self) -> u32 {
        self.group.child.id()
    }

    /// Asks the node to leave. A second request makes it hurry.
    pub(super) fn stop(&mut self) {
        self.was_stopped = true;
        // It was not waited for, so no other process has its id.
        let process = i32::try_from(self.process()).map(Pid::from_raw);
        if let Ok(process) = process
            && let Err(error) = kill(process, Signal::SIGTERM)
        {
            tracing::debug!(%process, %error, "a node cannot be asked to leave");
        }
    }

    /// Kills the node and its processes.
    pub(super) fn kill(&mut self) {
        self.was_stopped = true;
        if let Err(error) = self.group.kill() {
            tracing::warn!(process = self.process(), %error, "a node cannot be killed");
        }
    }

    /// Returns the exit status, if it has exited.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        match self.group.child.try_wait() {
            Ok(status) => status,
            Err(error) => {
                tracing::warn!(process = self.process(), %error, "the state of a node's process is unknown");
                None
            }
        }
    }
}
