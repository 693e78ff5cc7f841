//! Calls that tasks make: how they are numbered, and what is known of a task that makes some.
//!
//! They are calls of the graph as those of the program are. A task tells of each in *steps*, from the node on which it
//! runs, and waits there for what it reads; what it waits for is told in *answers*.
//!
//! *Numbers.* The number of such a call is the hash of its path: of the call whose task makes it, how often that has
//! failed before, and the position among what the task does. So it is the same whenever the task is run again, and
//! depends on no clock. Its highest bit is set, which tells it from a call of the program. Two of one number would have
//! two marks, which ends the task that makes the second; in a million calls that happens once in twenty million times.
//!
//! *Run again.* When the node of such a task is lost, the task is run again, and makes the same calls. The handles that
//! it had are kept until then, so that its calls go on, and what they have written stays; each handle is taken over when
//! the call is made that writes it. Nothing is left of the task when it ends: its handles go, and it ends only when all
//! its calls have. If it fails for good, those that have not begun are cancelled.
//!
//! *A program that begins anew* runs such tasks anew, too: an execution of an earlier run ends at its next step. Their
//! calls that have ended are known by what the nodes keep and remember, like those of the program; see `earlier.rs`.

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

/// What the task of a call does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// It does something for the first time in this execution.
    Begin,
    /// It makes a call, and drops handles then.
    Call(TaskCall, Vec<VersionId>),
    /// It brings data in that its node has: the size of it, and the hash of its content.
    Bring { position: u64, bytes: u64, content: u64 },
    /// It has another handle.
    Retain(VersionId),
    /// It has a handle less.
    Release(VersionId),
    /// It waits for a value.
    Get(VersionId),
    /// It has got that.
    Got,
    /// It waits until its calls in these positions have ended; and is told of their failures, or not.
    Wait(Range<u64>, bool),
    /// It cancels its calls in these positions that have not begun.
    Cancel(Range<u64>),
    /// It has made a group of its calls in these positions, with whose failures others are given up.
    Group(Range<u64>),
    /// It ends, and hands these versions on as its own, by their slots.
    HandOn(Vec<(u32, VersionId)>),
}

/// A call that a task makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskCall {
    pub(crate) position: u64,
    /// The number of the task in the table of the program.
    pub(crate) number: u32,
    /// The task, if that is told on this node.
    #[serde(skip)]
    pub(crate) task: Option<&'static TaskDef>,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) writes: u32,
    /// Why it cannot run, if it cannot.
    pub(crate) refused: Option<String>,
}

/// What is told to a task that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// What it waits for will never be there.
    Failed(ToldFailure),
    /// Its calls have ended; the first of the failures of which it is told.
    Ended(Option<ToldFailure>),
    /// It is of no use any more.
    Over,
}

/// A call whose task makes calls.
#[derive(Debug, Default)]
pub(in crate::core) struct Nest {
    /// The member where the task runs, and which execution it is; `None` if it has to be run again.
    pub(in crate::core) runs: Option<(Member, Execution)>,
    /// The mark of what it has done last.
    pub(in crate::core) mark: Mark,
    /// The depth of the call.
    pub(in crate::core) depth: u64,
    /// The handles that it has.
    pub(in crate::core) handles: BTreeMap<VersionId, u32>,
    /// Those of earlier executions that this one has not taken over.
    pub(in crate::core) left: BTreeMap<VersionId, u32>,
    /// Its calls that have not ended, by their positions.
    pub(in crate::core) unfinished: BTreeMap<u64, CallId>,
    /// The failures of its calls.
    pub(in crate::core) failures: Vec<Failure>,
    /// The call by which it waits for a value.
    pub(in crate::core) get: Option<CallId>,
    /// The number of values for which this execution has waited.
    pub(in crate::core) gets: u64,
    /// The calls for which it waits, and whether it is told of their failures.
    pub(in crate::core) awaits: Option<(Range<u64>, bool)>,
    /// Whether its worker does something else meanwhile.
    pub(in crate::core) lends: bool,
    /// How its task has ended, once it has.
    pub(in crate::core) outcome: Option<Outcome>,
    pub(in crate::core) handed_on: Vec<(u32, VersionId)>,
    /// The members where what is handed on was given its second name, by slots, and whether that is done.
    pub(in crate::core) named: BTreeMap<u32, (Member, bool)>,
    /// With what the call fails, however its task ends.
    pub(in crate::core) fails: Option<Failure>,
    /// The groups of its calls.
    pub(in crate::core) groups: Groups,
    /// Whether all its calls are cancelled.
    pub(in crate::core) is_cancelled: bool,
}

/// Calls of tasks that wait for a worker: those of the highest priority first, of these the deepest, so that what has
/// begun is ended before other things begin, and few tasks wait at a time.
pub(in crate::core) type Key = (Reverse<i32>, Reverse<u32>, u64, CallId);

/// The calls whose tasks make calls.
#[derive(Debug, Default)]
pub(in crate::core) struct Nests {
    pub(in crate::core) by_call: BTreeMap<CallId, Nest>,
    pub(in crate::core) ready: BTreeSet<Key>,
    /// The number of calls that were ready so far.
    pub(in crate::core) order: u64,
    /// What is told of earlier runs of the program, by the call of the program to which it belongs.
    pub(in crate::core) earlier: BTreeMap<CallId, BTreeSet<CallId>>,
}

impl Nests {
    pub(in crate::core) fn is_ready(&mut self, id: CallId, priority: i32, within: Within) {
        self.order += 1;
        self.ready.insert((Reverse(priority), Reverse(within.depth), self.order, id));
    }

    pub(in crate::core) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the highest priority of those that wait for a worker.
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
