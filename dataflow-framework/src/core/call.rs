//! Calls of tasks.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    commuting::Commute, mark::Mark, members::Member, nested::Origin, reducing::Merge, trouble::Unfit,
    version::VersionId,
};
use crate::{failure::Failure, options::Options, task::TaskDef};

/// A call, by its number: calls are numbered from 0 in the order in which the program makes them. Data that the
/// program itself brings in has a number of the same kind; and calls that tasks make have [others](super::nested).
pub(crate) type CallId = u64;

/// What a call passes to its task, for one parameter.
#[derive(Debug, Clone, Hash, Serialize, Deserialize)]
pub(crate) enum Argument {
    /// A value that was copied into the call, encoded.
    Copied(Vec<u8>),
    Read(VersionId),
    ReadAll(Vec<VersionId>),
    /// Read, and the next version of it written.
    Update(VersionId),
}

impl Argument {
    /// Returns the versions that it reads.
    pub(crate) fn versions(&self) -> &[VersionId] {
        match self {
            Self::Copied(_) => &[],
            Self::Read(version) | Self::Update(version) => std::slice::from_ref(version),
            Self::ReadAll(versions) => versions,
        }
    }
}

/// A call as the program makes it.
#[derive(Debug)]
pub(crate) struct NewCall {
    pub(crate) task: &'static TaskDef,
    /// The number of the task in the table of the program.
    pub(crate) number: u32,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<Argument>,
    /// The number of versions that it writes.
    pub(crate) writes: u32,
    /// Why it cannot run, if it cannot.
    pub(crate) refused: Option<Failure>,
    /// There if it is one of a reduction in any order.
    pub(crate) merge: Option<Merge>,
    /// There if it updates data in any order, with others.
    pub(crate) commute: Option<Commute>,
}

/// How a call has ended.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// All its versions are there.
    Written {
        /// The size of each, as far as that is known.
        bytes: Vec<u64>,
        /// How long it has taken.
        ns: u64,
    },
    /// The same of a call that is not run a second time when that is recorded.
    Durable {
        bytes: Vec<u64>,
        ns: u64,
        /// The execution that has written it: another one of the same call may have written something else.
        by: u64,
        /// What it has written, encoded, if that is small.
        values: Option<Vec<Vec<u8>>>,
    },
    /// It has failed, which is to be ignored: all its versions are there, as before or of default values.
    Ignored {
        bytes: Vec<u64>,
        reason: String,
    },
    Failed(Failure),
    /// It could not run on its member, but may on another one.
    Unfit(Unfit),
}

/// How a call is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Manner {
    pub(crate) failing: Failing,
    /// How long it may take.
    pub(crate) timeout: Option<Duration>,
    /// Whether it is run twice, and what it writes compared.
    pub(crate) is_checked: bool,
    /// Whether it is told when it has run.
    pub(crate) is_timed: bool,
    /// Whether it is run in a process of its own.
    pub(crate) is_isolated: bool,
    /// How much memory that process may take, in bytes.
    pub(crate) memory_max: Option<u64>,
    /// By which whatever is outside recognises another execution of a call that is not run a second time once it has
    /// ended.
    pub(crate) once_token: Option<u128>,
}

/// What a call writes if its task fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Failing {
    #[default]
    Nothing,
    Defaults,
    /// It has failed before: so it writes defaults at once, since others may have seen them.
    HasFailed,
}

/// A call that is unfinished, or needed to make again what it has written.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) task: &'static TaskDef,
    /// Who has made it.
    pub(super) origin: Origin,
    pub(super) mark: Mark,
    pub(super) options: Options,
    pub(super) arguments: Arc<[Argument]>,
    pub(super) writes: u32,
    /// The number of versions that it writes and that are known.
    pub(super) known: u32,
    pub(super) state: CallState,
    /// How often it has run and failed.
    pub(super) failures: u32,
    /// How many members were lost to which it was assigned.
    pub(super) deaths: u32,
    /// Whether it runs since an earlier run of the program.
    pub(super) is_earlier: bool,
    /// What it may change in place where it runs: that counts no more as there.
    pub(super) taken: Vec<VersionId>,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// For this number of inputs, each counted as often as it is read.
    Inputs(usize),
    /// For a worker.
    Worker,
    /// For its end on this member.
    Runs(Member),
    /// That its end is recorded.
    Recorded,
    /// For nothing: it has ended.
    Done,
}

impl Call {
    /// Returns the versions that it reads, one after another.
    pub(super) fn reads(&self) -> impl Iterator<Item = VersionId> {
        self.arguments.iter().flat_map(Argument::versions).copied()
    }

    /// Returns the versions that it writes.
    pub(super) fn written(&self, call: CallId) -> impl Iterator<Item = VersionId> + use<> {
        (0..self.writes).map(move |slot| VersionId { call, slot })
    }
}
