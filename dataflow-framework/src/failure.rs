//! Failures of calls.

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, VersionId};

/// The failure of a call: its task has returned an error, or panicked. The output of the call cannot be read, and
/// calls that depend on it cannot run.
///
/// Clones refer to the same failure.
#[derive(Clone)]
pub struct Failure(Arc<Inner>);

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// The task has returned an error; or a call that it has made has failed, for any cause, and the task has not
    /// received the failure.
    Error,
    /// The task has panicked.
    Panic,
    /// The process of an isolated call has ended before the call.
    Crash,
    /// The call has exceeded its timeout.
    Timeout,
    /// The call was cancelled, for example with its group.
    Cancelled,
    /// The runtime cannot run the call: its options or arguments are wrong, no node is suitable, or its data is lost.
    Runtime,
}

/// The cause of a failure, and its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

impl Reason {
    pub(crate) fn cancelled() -> Self {
        Self { kind: FailureKind::Cancelled, text: "it was cancelled".to_owned() }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.kind == FailureKind::Cancelled
    }
}

/// A reason of the runtime.
impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { kind: FailureKind::Runtime, text }
    }
}

/// A reason of the runtime.
impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// The reason of a task.
impl From<Failed> for Reason {
    fn from(Failed { kind, reason: text, .. }: Failed) -> Self {
        Self { kind, text }
    }
}

struct Inner {
    task: Cow<'static, str>,
    /// The top-level call: the call of the program.
    call: CallId,
    /// The positions of nested calls, each among the operations of the calling task.
    path: Vec<u64>,
    reason: Reason,
    /// Whether the program has received it.
    is_seen: AtomicBool,
    cancels_group: AtomicBool,
}

/// The maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// The number of bytes of this that are kept from the end of a longer reason: in a chain of failures the end is the
/// original cause.
const END_BYTES: usize = REASON_BYTES_MAX / 4;

/// Returns the start and the end of a reason that is too long.
fn cut(reason: String) -> String {
    if reason.len() <= REASON_BYTES_MAX {
        return reason;
    }
    let gap = REASON_BYTES_MAX - END_BYTES..reason.len() - END_BYTES;
    let from = (0..=gap.start).rev().find(|from| reason.is_char_boundary(*from)).unwrap_or(0);
    let to = (gap.end..=reason.len()).find(|to| reason.is_char_boundary(*to)).unwrap_or(reason.len());
    format!("{} … {}", &reason[..from], &reason[to..])
}

impl Failure {
    pub(crate) fn new(task: impl Into<Cow<'static, str>>, call: CallId, reason: impl Into<Reason>) -> Self {
        Self::with_path(task.into(), (call, Vec::new()), reason.into())
    }

    fn with_path(task: Cow<'static, str>, (call, path): (CallId, Vec<u64>), reason: Reason) -> Self {
        let reason = Reason { text: cut(reason.text), ..reason };
        let (is_seen, cancels_group) = Default::default();
        Self(Arc::new(Inner { task, call, path, reason, is_seen, cancels_group }))
    }

    /// Returns the same failure for a nested call: the path leads to it from a call of the program.
    pub(crate) fn at(&self, call: CallId, path: Vec<u64>) -> Self {
        Self::with_path(self.0.task.clone(), (call, path), self.0.reason.clone())
    }

    /// Returns the failure in the form that is sent to other nodes.
    pub(crate) fn told(&self) -> ToldFailure {
        let Inner { task, call, path, reason, .. } = &*self.0;
        ToldFailure {
            task: task.clone().into_owned(),
            call: *call,
            path: path.clone(),
            reason: reason.clone(),
        }
    }

    /// Returns the position of the call among the operations of the task that has made it; `None` if the program has
    /// made it.
    pub(crate) fn position(&self) -> Option<u64> {
        self.0.path.last().copied()
    }

    /// Returns the name of the task.
    pub fn task(&self) -> &str {
        &self.0.task
    }

    /// Returns the number of the call, from 0 in the order of the program. Data that the program creates is counted,
    /// too. For a nested call, it is the number of the enclosing call of the program.
    pub fn call(&self) -> u64 {
        self.0.call
    }

    /// Returns the path to a nested call from the call of the program: for each level, the position among the calls
    /// that the task makes and the data that it creates, from 0. It is empty if the program has made the call.
    pub fn path(&self) -> &[u64] {
        &self.0.path
    }

    /// Returns the error of the task, or the reason why it was not run.
    pub fn reason(&self) -> &str {
        &self.0.reason.text
    }

    /// Returns the cause of the failure.
    pub fn kind(&self) -> FailureKind {
        self.0.reason.kind
    }

    /// Returns the cause with its description.
    pub(crate) fn cause(&self) -> &Reason {
        &self.0.reason
    }

    /// Records that the program has received it.
    pub(crate) fn see(&self) {
        self.0.is_seen.store(true, Relaxed);
    }

    /// Makes it cancel the other calls of its group.
    pub(crate) fn set_cancels_group(&self) {
        self.0.cancels_group.store(true, Relaxed);
    }

    pub(crate) fn cancels_group(&self) -> bool {
        self.0.cancels_group.load(Relaxed)
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.0.is_seen.load(Relaxed)
    }
}

/// A failure in the form that is sent to other nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToldFailure {
    task: String,
    call: CallId,
    path: Vec<u64>,
    reason: Reason,
}

/// Serialises a failure in messages.
pub(crate) mod told {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Failure, ToldFailure};

    pub(crate) fn serialize<S: Serializer>(failure: &Failure, to: S) -> Result<S::Ok, S::Error> {
        failure.told().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Failure, D::Error> {
        ToldFailure::deserialize(from).map(Failure::from)
    }
}

impl From<ToldFailure> for Failure {
    fn from(ToldFailure { task, call, path, reason }: ToldFailure) -> Self {
        Self::with_path(task.into(), (call, path), reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { task, call, path, reason, .. } = &*self.0;
        write!(f, "task `{task}` (call {call}")?;
        path.iter().try_for_each(|position| write!(f, ".{position}"))?;
        write!(f, ") has failed: {}", reason.text)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { task, call, path, reason, .. } = &*self.0;
        let mut shown = f.debug_struct("Failure");
        shown.field("task", task).field("call", call).field("path", path).field("reason", reason).finish()
    }
}

impl std::error::Error for Failure {}

/// The error of a task, as text.
#[derive(Debug)]
pub struct Failed {
    pub(crate) reason: String,
    pub(crate) kind: FailureKind,
    pub(crate) trouble: Trouble,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trouble {
    /// The task, as far as is known.
    #[default]
    Task,
    /// The node: the call may succeed on another one.
    Node,
    /// The store of the node, which is too small for the inputs, of this number of bytes.
    Store(u64),
    /// A version that is missing or corrupt on the node.
    Content,
    /// This version, which is missing or corrupt on the node.
    Version(VersionId),
}

impl Failed {
    /// Creates it from an error of a task.
    pub fn of(error: impl fmt::Display) -> Self {
        Self { reason: error.to_string(), kind: FailureKind::Error, trouble: Trouble::Task }
    }

    /// Creates it from an error that is not the task's own.
    pub(crate) fn of_kind(kind: FailureKind, error: impl fmt::Display) -> Self {
        Self { kind, ..Self::of(error) }
    }

    /// Creates it from an error of the runtime, such as wrong arguments.
    pub(crate) fn of_runtime(error: impl fmt::Display) -> Self {
        Self::of_kind(FailureKind::Runtime, error)
    }

    /// Creates it from an error whose cause is the node, not the task.
    pub(crate) fn of_node(error: impl fmt::Display) -> Self {
        Self { trouble: Trouble::Node, ..Self::of_runtime(error) }
    }

    /// Creates it from an error whose cause is a version that is missing or corrupt on the node.
    pub(crate) fn of_content(error: impl fmt::Display) -> Self {
        Self { trouble: Trouble::Content, ..Self::of_runtime(error) }
    }

    /// Adds the id of the version, if the cause is a version.
    pub(crate) fn of_version(self, version: VersionId) -> Self {
        if self.trouble == Trouble::Content {
            Self { trouble: Trouble::Version(version), ..self }
        } else {
            self
        }
    }

    /// Changes the cause from the task to the node, unless it is more specific.
    pub(crate) fn in_trouble(self) -> Self {
        if self.trouble == Trouble::Task { Self { trouble: Trouble::Node, ..self } } else { self }
    }

    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::of_kind(FailureKind::Panic, format!("it panicked: {}", text.unwrap_or("without a message")))
    }
}
