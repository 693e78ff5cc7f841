//! Failures of calls.

use std::{
    any::Any,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::core::{CallId, VersionId};

/// The failure of a call: its task has returned an error, or panicked. What it would have written cannot be read, and
/// nothing that depends on that.
///
/// Clones are the same.
#[derive(Clone)]
pub struct Failure(Arc<Inner>);

struct Inner {
    task: &'static str,
    call: CallId,
    reason: String,
    /// Whether the program was told of it.
    is_seen: AtomicBool,
}

/// The maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// Returns the beginning of a reason that is too long.
fn cut(reason: String) -> String {
    if reason.len() <= REASON_BYTES_MAX {
        return reason;
    }
    let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    format!("{} …", &reason[..end])
}

impl Failure {
    pub(crate) fn new(task: &'static str, call: CallId, reason: impl Into<String>) -> Self {
        let reason = cut(reason.into());
        Self(Arc::new(Inner { task, call, reason, is_seen: AtomicBool::new(false) }))
    }

    /// Returns the name of the task.
    pub fn task(&self) -> &str {
        self.0.task
    }

    /// Returns the number of the call, from 0 in the order of the program. Data that a program brings in is counted,
    /// too.
    pub fn call(&self) -> u64 {
        self.0.call
    }

    /// Returns what the task says, or why it was not run.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Notes that the program is told of it.
    pub(crate) fn see(&self) {
        self.0.is_seen.store(true, Relaxed);
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.0.is_seen.load(Relaxed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { task, call, reason, .. } = &*self.0;
        write!(f, "task `{task}` (call {call}) has failed: {reason}")
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { task, call, reason, .. } = &*self.0;
        f.debug_struct("Failure").field("task", task).field("call", call).field("reason", reason).finish()
    }
}

impl std::error::Error for Failure {}

/// Why a task has not written what it should have: the error that it returned, as a text.
#[derive(Debug)]
pub struct Failed {
    pub(crate) reason: String,
    pub(crate) trouble: Trouble,
}

/// Of what a failure tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trouble {
    /// Of the task, as far as is known.
    #[default]
    Task,
    /// Of the node: on another one the call may succeed.
    Node,
    /// Of a version of which the node does not have any more what it should.
    Content,
    /// Of this version, likewise.
    Version(VersionId),
}

impl Failed {
    /// Takes over an error of a task.
    pub fn of(error: impl fmt::Display) -> Self {
        Self { reason: error.to_string(), trouble: Trouble::Task }
    }

    /// Takes over an error that says something of the node, and nothing of the task.
    pub(crate) fn of_node(error: impl fmt::Display) -> Self {
        Self { trouble: Trouble::Node, ..Self::of(error) }
    }

    /// Takes over an error that says that a version is not on the node as it should be.
    pub(crate) fn of_content(error: impl fmt::Display) -> Self {
        Self { trouble: Trouble::Content, ..Self::of(error) }
    }

    /// Returns it as one of this version, if it is one of any.
    pub(crate) fn of_version(self, version: VersionId) -> Self {
        if self.trouble == Trouble::Content {
            Self { trouble: Trouble::Version(version), ..self }
        } else {
            self
        }
    }

    /// Returns it as one of the node, unless more is known.
    pub(crate) fn in_trouble(self) -> Self {
        if self.trouble == Trouble::Task { Self { trouble: Trouble::Node, ..self } } else { self }
    }

    /// Takes over a panic.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::of(format!("it panicked: {}", text.unwrap_or("without a message")))
    }
}
