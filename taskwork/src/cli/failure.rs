//! Why a command has ended without what it was asked for.

use std::{error::Error, fmt, process::ExitCode};

use zk::ConnectError;

use crate::job::JobError;

/// An error with the exit code that goes with it.
pub struct Failure {
    code: Code,
    error: Box<dyn Error + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    Interrupted = 130,
}

impl Failure {
    /// The job has failed, or could not be done: exit code 1.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Failed, error: error.into() }
    }

    /// Wrong usage or input: exit code 2.
    pub fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Usage, error: error.into() }
    }

    /// The cluster could not be reached: exit code 3.
    pub fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: Code::Unreachable, error: error.into() }
    }

    /// Ctrl-C has ended the command: exit code 130, as of a process that SIGINT has ended.
    pub(super) fn interrupted(hint: &str) -> Self {
        Self { code: Code::Interrupted, error: format!("interrupted{hint}").into() }
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Count { .. } => Self::usage(error),
            JobError::Coordination(error) => error.cause().clone().into(),
            _ => Self::failed(error),
        }
    }
}

impl From<zk::Error> for Failure {
    fn from(error: zk::Error) -> Self {
        match error {
            zk::Error::NoAuth { .. } => Self::usage(format!(
                "{error}. The cluster was made with other credentials: give a file with the right ones by --zk-auth"
            )),
            zk::Error::TooLarge { .. } => Self::usage(error),
            zk::Error::TooMany { .. } | zk::Error::Garbled { .. } => Self::failed(error),
            _ => Self::unreachable(format!("the coordination failed: {error}")),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Hosts { .. } | ConnectError::Tls { .. } => Self::usage(error),
            _ => Self::unreachable(error),
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
        f.debug_struct("Failure").field("code", &self.code).field("error", &self.error).finish()
    }
}

/// Writes to standard output; that nobody reads it any more (`… | head`) is no mistake.
pub(super) fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
