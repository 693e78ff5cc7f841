//! The reasons why a command fails, with its exit codes.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
    process::ExitCode,
    sync::OnceLock,
};

use taskwork::{
    JobError,
    client::{ClientError, ErrorKind},
    node::NodeError,
};

use crate::printable;

/// An error with its exit code.
pub struct Failure {
    code: Code,
    error: Box<dyn Error + Send + Sync>,
    /// Whether work that was started may continue without the command.
    is_premature: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    /// A node's drain deadline passed before it had transferred all its tasks. A supervisor need not restart it on a
    /// machine that is going away.
    Late = 4,
    NotFound = 5,
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

    /// Creates a failure to find a cluster, job or node: exit code 5.
    pub fn not_found(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::NotFound, error: error.into(), is_premature: false }
    }

    /// Creates a failure to reach the cluster: exit code 3.
    pub fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Unreachable, error: error.into(), is_premature: false }
    }

    /// Creates the failure of a command interrupted by Ctrl-C: exit code 130, as for a process terminated by SIGINT.
    pub fn interrupted() -> Self {
        Self { code: Code::Interrupted, error: "interrupted".into(), is_premature: true }
    }

    /// Adds a hint on how to proceed, if the command ended before its work did: after Ctrl-C, or because ZooKeeper did
    /// not answer.
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
            ErrorKind::NotFound => Code::NotFound,
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
            ClientError::NoJob { .. } => {
                Self { code, error: format!("{error}: see taskwork jobs").into(), is_premature: false }
            }
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
                "{error}.\n  Write one line user:password into a file, chmod 600 it, pass it to every node and \
                 command with --zk-auth FILE, and use TLS to ZooKeeper with --zk-tls-ca FILE.\n  Or pass \
                 --insecure, if you trust everybody who can reach this network"
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

/// Writes a line to standard error, without control characters. A closed pipe (`… 2>&1 | head`) is ignored.
pub fn tell(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(&text.to_string()));
}

/// Writes a note to standard error: a fact of interest to users, although the command continues.
pub fn note(text: &str) {
    tell(format_args!("note: {text}"));
}

/// The error of the first failed write to standard output.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes to standard output. A closed pipe (`… | head`) is no error. If the command is otherwise successful, any
/// other write error is reported when it exits, after it has closed its sessions, and the exit code is 1.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    note_lost(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Records the error of a failed write.
pub(crate) fn note_lost(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Only the first error is kept.
        let _ = LOST.set(error.to_string());
    }
}

/// Returns the failure of standard output, if a write has failed.
pub(crate) fn lost_output() -> Option<Failure> {
    LOST.get()
        .map(|why| Failure::failed(format!("the output is lost: standard output cannot be written: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_job_has_other_exit_code_than_wrong_usage() {
        let code = |error: ClientError| Failure::from(error).code;
        let none = ClientError::NoJob { cluster: "c".to_owned(), job: "j-0000000007".parse().unwrap() };
        assert_eq!(code(none), Code::NotFound);
        assert_eq!(code(ClientError::NoNode { reason: "no node n1".to_owned() }), Code::NotFound);
        assert_eq!(code(ClientError::Invalid { reason: "a name".to_owned() }), Code::Usage);
    }

    #[test]
    fn abandoned_node_has_other_exit_code_than_broken_one() {
        let code = |error: NodeError| Failure::from(error).code;
        assert_eq!(code(NodeError::Abandoned { reason: "its time was up".to_owned() }), Code::Late);
        assert_eq!(code(NodeError::BrokenDown { reason: "a defect".to_owned() }), Code::Failed);
    }
}
