//! Calls of tasks.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{demand::Demand, mark::Mark, members::Member};
use crate::{
    failure::{Failure, Reason},
    ids::{Argument, CallId, Execution, VersionId},
    options::Options,
    task::TaskDef,
};

/// A new call of the program or of a task.
#[derive(Debug)]
pub(crate) struct NewCall {
    pub(crate) task: &'static TaskDef,
    /// The number of the task in the table of the program.
    pub(crate) number: u32,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) writes: u32,
    /// The reason why the call cannot run, if there is one.
    pub(crate) refused: Option<Failure>,
    /// Set for a call of a reduction in any order.
    pub(crate) merge: Option<Merge>,
    /// Set for a call that updates data in any order.
    pub(crate) commute: Option<Commute>,
}

/// The work of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Task(&'static TaskDef),
    /// To wait for a value on behalf of this execution of a task, on its member: the call reads the value and writes
    /// nothing. So the value is fetched, and recomputed when it is lost, as for any other reader.
    Get(Execution),
}

impl Work {
    pub(crate) fn task(self) -> Option<&'static TaskDef> {
        match self {
            Self::Task(task) => Some(task),
            Self::Get(_) => None,
        }
    }

    /// Returns the name of the task, for messages.
    pub(crate) fn name(self) -> &'static str {
        self.task().map_or("Data::get", |task| task.name)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// All its versions are available.
    Written {
        /// The sizes of the versions, as far as they are known.
        bytes: Vec<u64>,
        /// The duration of the run; `None` if they are from the cache of the member.
        ns: Option<u64>,
    },
    /// The same for a call that does not run again once this is recorded.
    Durable {
        bytes: Vec<u64>,
        ns: u64,
        /// The execution that has written the versions: another execution of the call may have written others.
        by: u64,
        /// The encoded versions, if they are small.
        values: Option<Vec<Vec<u8>>>,
    },
    /// The call has failed and its failure is ignored: its versions are unchanged, or have default values.
    Ignored {
        bytes: Vec<u64>,
        reason: String,
    },
    Failed(#[serde(with = "crate::failure::told")] Failure),
    /// The call could not run on its member, but may on another one.
    Unfit(Unfit),
}

/// The way in which a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub(crate) struct Manner {
    pub(crate) failing: Failing,
    pub(crate) timeout: Option<Duration>,
    /// Whether the task runs twice, to compare the outputs.
    pub(crate) is_checked: bool,
    pub(crate) is_timed: bool,
    pub(crate) is_isolated: bool,
    /// The maximum memory of that process, in bytes.
    pub(crate) memory_max: Option<u64>,
    /// The idempotency token by which external systems detect a re-executed call, if the call does not run
    /// again once it has completed.
    pub(crate) once_token: Option<u128>,
    /// Whether the output may come from the cache of the member.
    pub(crate) is_cached: bool,
}

impl Manner {
    /// Returns whether a call runs at most once, so that it may update data in place.
    pub(super) fn has_one_run(self) -> bool {
        self.failing == Failing::Nothing && !self.is_checked
    }
}

/// The output of a call whose task fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Failing {
    #[default]
    Nothing,
    Defaults,
    /// The call has failed before: it writes defaults immediately, since others may have seen them.
    HasFailed,
}

/// A call that is unfinished, or needed to recompute its output.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) work: Work,
    /// Its position, if a task has made it.
    pub(super) within: Option<Within>,
    pub(super) mark: Mark,
    pub(super) options: Options,
    pub(super) arguments: Arc<[Argument]>,
    pub(super) writes: u32,
    /// The number of its versions that are known.
    pub(super) known: u32,
    pub(super) state: CallState,
    /// The size of its inputs in bytes, if it was too large for the store of a member; otherwise 0.
    pub(super) store: u64,
    pub(super) failures: u32,
    /// The number of lost members that ran it.
    pub(super) deaths: u32,
    /// Whether it has been running since an earlier run of the program.
    pub(super) is_earlier: bool,
    /// The versions that it may update in place where it runs: they no longer count as copies there.
    pub(super) taken: Vec<VersionId>,
}

/// The condition that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// This number of inputs, each counted as often as it is read.
    Inputs(usize),
    /// A worker.
    Worker,
    /// Its end on this member.
    Runs(Member),
    /// The record of its end.
    Recorded,
    /// Nothing: it has ended.
    Done,
}

impl Call {
    pub(super) fn new(
        work: Work,
        within: Option<Within>,
        mark: Mark,
        options: Options,
        arguments: Vec<Argument>,
        writes: u32,
    ) -> Self {
        Self {
            work,
            within,
            mark,
            options,
            arguments: arguments.into(),
            writes,
            known: writes,
            state: CallState::Inputs(0),
            store: 0,
            failures: 0,
            deaths: 0,
            is_earlier: false,
            taken: Vec::new(),
        }
    }

    pub(super) fn task(&self) -> &'static TaskDef {
        self.work.task().expect("a wait for a value needs no worker, and has no outcome")
    }

    /// Returns the call of the program within which this call, number `id`, was made; or `id` if the program made it.
    pub(super) fn root(&self, id: CallId) -> CallId {
        self.within.map_or(id, |within| within.root)
    }

    pub(super) fn demand(&self) -> Demand {
        Demand { store: self.store, ..Demand::of(&self.options) }
    }

    /// Returns the versions that it reads, in order.
    pub(super) fn reads(&self) -> impl Iterator<Item = VersionId> {
        self.arguments.iter().flat_map(Argument::versions).copied()
    }

    pub(super) fn written(&self, call: CallId) -> impl Iterator<Item = VersionId> + use<> {
        (0..self.writes).map(move |slot| VersionId { call, slot })
    }
}

/// The position of a call in the tree of nested calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within {
    /// The call whose task has made it.
    pub(super) parent: CallId,
    /// The call of the program at the root.
    pub(super) root: CallId,
    /// Its position among the steps of that task.
    pub(super) position: u64,
    /// The number of calls above it.
    pub(super) depth: u32,
}

/// Membership in a chain of calls that update data in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commute {
    /// The first call of the chain.
    pub(crate) chain: CallId,
    /// The position of the argument that is updated.
    pub(crate) at: usize,
}

/// Membership in a reduction in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The first number that a call of the reduction may have.
    pub(crate) reduction: CallId,
    /// The positions of the merged arguments: one is updated, the other one read.
    pub(crate) into: usize,
    pub(crate) from: usize,
}

/// A failed attempt to run a call on its member, and the data that it left there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Unfit {
    pub(crate) reason: Reason,
    /// The versions that it would have updated in place but has not, with their sizes.
    pub(crate) unchanged: Vec<(VersionId, u64)>,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// A fault of the member, such as a full disk.
    Member,
    /// The store of the member cannot hold the inputs, which have this number of bytes.
    Store(u64),
    /// An input is missing or corrupt on the member.
    Damaged(VersionId),
}
