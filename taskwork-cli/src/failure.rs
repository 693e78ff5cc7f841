//! Why a command has ended without completing its task.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
    process::ExitCode,
    sync::OnceLock,
};

use taskwork::{
    JobError, NodeError,
    client::{ClientError, ErrorKind},
};

use crate::printable;

/// An error with its exit code.
pub struct Failure {
    code: Code,
    error: Box<dyn Error + Send + Sync>,
    /// Whether work that was begun may continue without the command.
    is_premature: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    /// A node was to leave, and its time was up before it had handed on everything. Whoever starts nodes again need not
    /// do so on a machine that goes.
    Late = 4,
    Interrupted = 130,
}

impl Failure {
    /// Creates a failure of the job itself: exit code 1.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Failed, error: error.into(), is_premature: false }
    }

    /// Creates a failure for wrong usage or input: exit code 2.
    pub fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Usage, error: error.into(), is_premature: false }
    }

    /// Creates a failure to reach the cluster: exit code 3.
    pub fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Unreachable, error: error.into(), is_premature: false }
    }

    /// Creates the failure of a command ended by Ctrl-C: exit code 130, as for a process ended by SIGINT.
    pub fn interrupted() -> Self {
        Self { code: Code::Interrupted, error: "interrupted".into(), is_premature: true }
    }

    /// Adds a hint on how to proceed, if the command has ended before the event that it waited for.
    #[must_use]
    pub fn hint(self, hint: &str) -> Self {
        if self.is_premature { Self { error: format!("{self}. {hint}").into(), ..self } } else { self }
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        ClientError::from(error).into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match error.kind() {
            ErrorKind::Usage => Code::Usage,
            ErrorKind::Failed => Code::Failed,
            _ => Code::Unreachable,
        };
        match &error {
            ClientError::GaveUp { hosts, since, waited } => {
                let since = humantime::format_rfc3339_seconds(*since);
                let waited = waited.as_secs();
                let said = format!("ZooKeeper at {hosts} has not answered since {since}, for {waited} s");
                Self { code, error: said.into(), is_premature: true }
            }
            ClientError::NoJob { .. } => Self::usage(format!("{error}: see taskwork jobs")),
            _ => Self { code, error: error.into(), is_premature: false },
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Client(error) => error.into(),
            NodeError::Invalid { .. } => Self::usage(error),
            NodeError::Open { .. } => Self::usage(format!(
                "{error}.\n  Write one line user:password into a file, chmod 600 it, and give it to every \
                 node and command by --zk-auth FILE, with TLS to ZooKeeper by --zk-tls-ca FILE.\n  Or say \
                 --insecure, if the network is yours alone"
            )),
            NodeError::Abandoned { .. } => {
                Self { code: Code::Late, error: error.into(), is_premature: false }
            }
            _ => Self::failed(error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("code", &self.code)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// Writes a line to standard error, without what would control a terminal. What nobody reads any more (`… 2>&1 | head`) is no reason to end.
pub fn tell(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(&text.to_string()));
}

/// Writes a note to standard error: a fact that users should know, although the command continues.
pub fn note(text: &str) {
    tell(format_args!("note: {text}"));
}

/// Why standard output could not be written the first time.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes to standard output. A closed pipe (`… | head`) is no error. Any other failure is reported when the command
/// ends, after it has closed its sessions, and makes its exit code 1.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    note_lost(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Notes whether an answer could not be written.
pub(crate) fn note_lost(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // The first reason counts.
        let _ = LOST.set(error.to_string());
    }
}

/// Returns the failure of standard output, if an answer could not be written.
pub(crate) fn lost_output() -> Option<Failure> {
    LOST.get()
        .map(|why| Failure::failed(format!("the output is lost: standard output cannot be written: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_time_was_up_is_told_from_one_that_broke_down() {
        let code = |error: NodeError| Failure::from(error).code;
        assert_eq!(code(NodeError::Abandoned { reason: "its time was up".to_owned() }), Code::Late);
        assert_eq!(code(NodeError::BrokenDown { reason: "a defect".to_owned() }), Code::Failed);
    }
}
