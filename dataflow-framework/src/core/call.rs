//! Calls of tasks.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{mark::Mark, members::Member};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, Execution, VersionId},
    options::Options,
    task::TaskDef,
};

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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    Failed(#[serde(with = "crate::failure::told")] Failure),
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

/// Who has made a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Program,
    Task(Within),
    /// A task waits for a value: it is a call that reads that, and writes nothing, at the place of the task.
    Get(Execution),
}

/// Where a call of a task belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within {
    /// The call whose task has made it.
    pub(super) parent: CallId,
    /// The call of the program above all.
    pub(super) root: CallId,
    /// Its position among what that task does.
    pub(super) position: u64,
    /// How many calls are above it.
    pub(super) depth: u32,
}

/// That a call is one of those that update data in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commute {
    /// The first call of the chain.
    pub(crate) chain: CallId,
    /// The position of the argument that is updated.
    pub(crate) at: usize,
}

/// That a call is one of a reduction in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The first number that a call of the reduction may have.
    pub(crate) reduction: CallId,
    /// The positions of the arguments that it merges: one is updated, the other one read.
    pub(crate) into: usize,
    pub(crate) from: usize,
}

/// Why a call has not run to its end on its member, and what it has left there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Unfit {
    pub(crate) reason: String,
    /// What it would have changed in place and has not, with the sizes.
    pub(crate) unchanged: Vec<(VersionId, u64)>,
    /// What it reads, and the member should have but does not.
    pub(crate) damaged: Option<VersionId>,
}
