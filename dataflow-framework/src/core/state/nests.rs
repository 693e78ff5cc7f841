//! Nested calls: their numbers, and the state of a task that makes calls.
//!
//! Nested calls are calls of the graph like those of the program. A task reports each in *steps*, from the node
//! where it runs, and waits there for its inputs, which arrive in *answers*.
//!
//! *Numbers.* The number of a nested call is the hash of its path: of the call whose task makes it, the number
//! of failures of that call, and the position among the task's steps. So it is the same whenever the task runs
//! again, and depends on no clock. Its highest bit is set, which distinguishes it from a call of the program.
//! Two calls with the same number would have different marks, which fails the task that makes the second; with
//! a million calls the probability is one in twenty million.
//!
//! *Repeated runs.* When the node of such a task is lost, the task runs again, and makes the same calls. Its
//! handles are kept until then, so that its calls continue, and their output stays; each handle is taken over
//! when the call that writes it is made again. Nothing is left of the task when it ends: its handles are
//! released, and its call completes only after all nested calls. If it fails permanently, nested calls that
//! have not started are cancelled.
//!
//! *A restarted program* also restarts such tasks: an execution of an earlier run ends at its next step.
//! Completed nested calls are known from the data and history of the nodes, like those of the program; see
//! `earlier.rs`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::groups::Groups;
use crate::{
    core::{
        call::{Outcome, Within},
        mark::Mark,
        members::Member,
    },
    failure::{Failure, ToldFailure},
    ids::{Argument, CallId, Execution, VersionId},
    options::Options,
    task::TaskDef,
};

/// A step of the task of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Make the first step of this execution.
    Begin,
    /// Make a call, and then drop handles.
    Call(TaskCall, Vec<VersionId>),
    /// Create data on its node: the size, and the hash of the content.
    Bring {
        position: u64,
        bytes: u64,
        content: u128,
    },
    Retain(VersionId),
    Release(VersionId),
    /// Wait for a value.
    Get(VersionId),
    /// Confirm the receipt of the value.
    Got,
    /// Wait until its calls in these positions have ended, and receive their failures or not.
    Wait(Range<u64>, bool),
    /// Cancel its calls in these positions that have not started.
    Cancel(Range<u64>),
    /// Declare its calls in these positions a group, with calls whose failure cancels the others.
    Group(Range<u64>),
    /// End, and forward these versions as its own output, by their slots.
    HandOn(Vec<(u32, VersionId)>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskCall {
    pub(crate) position: u64,
    /// The number of the task in the table of the program.
    pub(crate) number: u32,
    /// The task, if it is called on this node.
    #[serde(skip)]
    pub(crate) task: Option<&'static TaskDef>,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) writes: u32,
    /// The reason why it cannot run, if there is one.
    pub(crate) refused: Option<String>,
}

/// The answer to a task that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The value has failed.
    Failed(ToldFailure),
    /// Its calls have ended; the first of the failures that it receives.
    Ended(Option<ToldFailure>),
    /// The execution is no longer needed.
    Over,
}

/// A call whose task makes calls.
#[derive(Debug, Default)]
pub(in crate::core) struct Nest {
    /// The member of the task, and its execution; `None` if it has to run again.
    pub(in crate::core) runs: Option<(Member, Execution)>,
    /// The mark of its last step.
    pub(in crate::core) mark: Mark,
    pub(in crate::core) depth: u64,
    pub(in crate::core) handles: BTreeMap<VersionId, u32>,
    /// The handles of earlier executions that this one has not taken over.
    pub(in crate::core) left: BTreeMap<VersionId, u32>,
    /// Its unfinished calls, by their positions.
    pub(in crate::core) unfinished: BTreeMap<u64, CallId>,
    pub(in crate::core) failures: Vec<Failure>,
    /// The call by which it waits for a value.
    pub(in crate::core) get: Option<CallId>,
    /// The number of values for which this execution has waited.
    pub(in crate::core) gets: u64,
    /// The calls for which it waits, and whether it receives their failures.
    pub(in crate::core) awaits: Option<(Range<u64>, bool)>,
    /// Whether its worker runs other calls now.
    pub(in crate::core) lends: bool,
    /// The outcome of its task, once it has ended.
    pub(in crate::core) outcome: Option<Outcome>,
    pub(in crate::core) handed_on: Vec<(u32, VersionId)>,
    /// The members that rename its forwarded output, by slots, and whether that is done.
    pub(in crate::core) named: BTreeMap<u32, (Member, bool)>,
    /// The failure of the call, whatever the outcome of its task.
    pub(in crate::core) fails: Option<Failure>,
    pub(in crate::core) groups: Groups,
    /// Whether all its calls are cancelled.
    pub(in crate::core) is_cancelled: bool,
}

/// Nested calls that wait for a worker: the highest priority first, of these the deepest, so that running calls
/// complete before others start, and few tasks wait at a time.
pub(in crate::core) type Key = (Reverse<i32>, Reverse<u32>, u64, CallId);

/// The calls whose tasks make calls.
#[derive(Debug, Default)]
pub(in crate::core) struct Nests {
    pub(in crate::core) by_call: BTreeMap<CallId, Nest>,
    pub(in crate::core) ready: BTreeSet<Key>,
    /// The number of calls that were ready so far.
    pub(in crate::core) order: u64,
    /// The reports of earlier runs, by the call of the program to which they belong.
    pub(in crate::core) earlier: BTreeMap<CallId, BTreeSet<CallId>>,
}

impl Nests {
    pub(in crate::core) fn push_ready(&mut self, id: CallId, priority: i32, within: Within) {
        self.order += 1;
        self.ready.insert((Reverse(priority), Reverse(within.depth), self.order, id));
    }

    pub(in crate::core) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the highest priority of the waiting calls.
    pub(in crate::core) fn priority(&self) -> Option<i32> {
        self.ready.first().map(|(Reverse(priority), ..)| *priority)
    }

    /// Takes the first call that waits for a worker, unless one of the program has a higher priority.
    pub(in crate::core) fn pop(&mut self, of_program: Option<i32>) -> Option<CallId> {
        let (Reverse(priority), ..) = self.ready.first()?;
        if of_program.is_some_and(|of_program| of_program > *priority) {
            return None;
        }
        self.ready.pop_first().map(|(.., id)| id)
    }
}
