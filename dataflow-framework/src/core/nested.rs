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
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::{
    call::{Argument, CallId, Outcome},
    groups::Groups,
    mark::Mark,
    members::Member,
    version::VersionId,
};
use crate::{
    failure::{Failure, ToldFailure},
    options::Options,
    task::TaskDef,
};

/// The least number of a call that a task has made.
pub(crate) const NESTED: CallId = 1 << 63;

/// The number of data that is brought in, or of a call that is made, by the task of a call.
pub(crate) fn number_within(parent: CallId, tries: u32, position: u64) -> CallId {
    let mut hasher = DefaultHasher::new();
    (parent, tries, position).hash(&mut hasher);
    hasher.finish() | NESTED
}

/// The number under which the task of a call waits for a value, the `count`th time in an execution.
pub(super) fn number_of_get(execution: Execution, count: u64) -> CallId {
    let mut hasher = DefaultHasher::new();
    ("get", execution, count).hash(&mut hasher);
    hasher.finish() | NESTED
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

/// An execution of the task of a call, with a number that its node gives to no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) call: CallId,
    pub(crate) number: u64,
}

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
pub(super) struct Nest {
    /// The member where the task runs, and which execution it is; `None` if it has to be run again.
    pub(super) runs: Option<(Member, Execution)>,
    /// The mark of what it has done last.
    pub(super) mark: Mark,
    /// The depth of the call.
    pub(super) depth: u64,
    /// The handles that it has.
    pub(super) handles: BTreeMap<VersionId, u32>,
    /// Those of earlier executions that this one has not taken over.
    pub(super) left: BTreeMap<VersionId, u32>,
    /// Its calls that have not ended, by their positions.
    pub(super) unfinished: BTreeMap<u64, CallId>,
    /// The failures of its calls.
    pub(super) failures: Vec<Failure>,
    /// The call by which it waits for a value.
    pub(super) get: Option<CallId>,
    /// The number of values for which this execution has waited.
    pub(super) gets: u64,
    /// The calls for which it waits, and whether it is told of their failures.
    pub(super) awaits: Option<(Range<u64>, bool)>,
    /// Whether its worker does something else meanwhile.
    pub(super) lends: bool,
    /// How its task has ended, once it has.
    pub(super) outcome: Option<Outcome>,
    pub(super) handed_on: Vec<(u32, VersionId)>,
    /// The members where what is handed on was given its second name, by slots, and whether that is done.
    pub(super) named: BTreeMap<u32, (Member, bool)>,
    /// With what the call fails, however its task ends.
    pub(super) fails: Option<Failure>,
    /// The groups of its calls.
    pub(super) groups: Groups,
    /// Whether all its calls are cancelled.
    pub(super) is_cancelled: bool,
}

/// Calls of tasks that wait for a worker: those of the highest priority first, of these the deepest, so that what has
/// begun is ended before other things begin, and few tasks wait at a time.
type Key = (Reverse<i32>, Reverse<u32>, u64, CallId);

/// The calls whose tasks make calls.
#[derive(Debug, Default)]
pub(super) struct Nests {
    pub(super) by_call: BTreeMap<CallId, Nest>,
    ready: BTreeSet<Key>,
    /// The number of calls that were ready so far.
    order: u64,
    /// What is told of earlier runs of the program, by the call of the program to which it belongs.
    pub(super) earlier: BTreeMap<CallId, BTreeSet<CallId>>,
}

impl Nests {
    pub(super) fn is_ready(&mut self, id: CallId, priority: i32, within: Within) {
        self.order += 1;
        self.ready.insert((Reverse(priority), Reverse(within.depth), self.order, id));
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the highest priority of those that wait for a worker.
    pub(super) fn priority(&self) -> Option<i32> {
        self.ready.first().map(|(Reverse(priority), ..)| *priority)
    }

    /// Takes the first call that waits for a worker, unless one of the program has a higher priority.
    pub(super) fn pop(&mut self, of_program: Option<i32>) -> Option<CallId> {
        let (Reverse(priority), ..) = self.ready.first()?;
        if of_program.is_some_and(|of_program| of_program > *priority) {
            return None;
        }
        self.ready.pop_first().map(|(.., id)| id)
    }
}
