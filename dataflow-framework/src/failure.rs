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

/// The failure of a call: its task has returned an error, or panicked. What it would have written cannot be read, and
/// nothing that depends on that.
///
/// Clones are the same.
#[derive(Clone)]
pub struct Failure(Arc<Inner>);

struct Inner {
    task: Cow<'static, str>,
    /// Of the program.
    call: CallId,
    /// The positions of calls that tasks have made, each among what the one before does.
    path: Vec<u64>,
    reason: String,
    /// Whether the program was told of it.
    is_seen: AtomicBool,
    /// Whether the calls of its group are given up with it.
    gives_group_up: AtomicBool,
}

/// The maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// How much of that is the end of a reason that is longer: where failures have led to others, that is the first one.
const END_BYTES: usize = REASON_BYTES_MAX / 4;

/// Returns the beginning and the end of a reason that is too long.
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
    pub(crate) fn new(task: impl Into<Cow<'static, str>>, call: CallId, reason: impl Into<String>) -> Self {
        Self::with_path(task.into(), (call, Vec::new()), reason.into())
    }

    fn with_path(task: Cow<'static, str>, (call, path): (CallId, Vec<u64>), reason: String) -> Self {
        let reason = cut(reason);
        let (is_seen, gives_group_up) = Default::default();
        Self(Arc::new(Inner { task, call, path, reason, is_seen, gives_group_up }))
    }

    /// Returns the same failure of a call that a task has made: the path leads to it from a call of the program.
    pub(crate) fn at(&self, call: CallId, path: Vec<u64>) -> Self {
        Self::with_path(self.0.task.clone(), (call, path), self.0.reason.clone())
    }

    /// Returns what another node is told of it.
    pub(crate) fn told(&self) -> ToldFailure {
        let Inner { task, call, path, reason, .. } = &*self.0;
        ToldFailure {
            task: task.clone().into_owned(),
            call: *call,
            path: path.clone(),
            reason: reason.clone(),
        }
    }

    /// Returns the position of the call among what the task does that has made it; `None` if that was the program.
    pub(crate) fn position(&self) -> Option<u64> {
        self.0.path.last().copied()
    }

    /// Returns the name of the task.
    pub fn task(&self) -> &str {
        &self.0.task
    }

    /// Returns the number of the call, from 0 in the order of the program. Data that a program brings in is counted,
    /// too. If a task has made the call, it is the call of the program within which that was.
    pub fn call(&self) -> u64 {
        self.0.call
    }

    /// Returns the way to a call that a task has made: its position among the calls of the task, and the data that this
    /// brings in, from 0; before that the position of the call of that task, and so on, down from the call of the
    /// program. It is empty if the program has made the call.
    pub fn path(&self) -> &[u64] {
        &self.0.path
    }

    /// Returns what the task says, or why it was not run.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Notes that the program is told of it.
    pub(crate) fn see(&self) {
        self.0.is_seen.store(true, Relaxed);
    }

    /// Notes that the calls of its group are given up with it.
    pub(crate) fn give_group_up(&self) {
        self.0.gives_group_up.store(true, Relaxed);
    }

    pub(crate) fn gives_group_up(&self) -> bool {
        self.0.gives_group_up.load(Relaxed)
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.0.is_seen.load(Relaxed)
    }
}

/// What another node is told of a failure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToldFailure {
    task: String,
    call: CallId,
    path: Vec<u64>,
    reason: String,
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
        write!(f, ") has failed: {reason}")
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
