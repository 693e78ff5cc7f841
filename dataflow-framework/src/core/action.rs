//! Actions of the graph, which its node performs.

use std::{sync::Arc, time::Duration};

use super::{
    call::{Manner, Work},
    journal::fact::Fact,
    mark::Mark,
    members::Member,
    steps::Answer,
    version::Source,
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, Execution, VersionId},
    task::TaskDef,
};

#[derive(Debug)]
pub(crate) enum Action {
    Assign(Member, Assignment),
    Forget(Member, VersionId),
    /// Fetch a version to the node of the program.
    Bring(Source),
    Copy(Member, Source),
    /// Let a member end a call, which is cancelled, and [return](super::Graph::returned) it.
    Cancel(Member, CallId),
    /// Let a leaving member go: it has nothing that others need.
    LetGo(Member),
    /// Let a member keep the first version also as the second one, which has this mark.
    Alias(Member, VersionId, VersionId, Mark),
    /// Answer the task of a call that waits on a member, in this execution of it.
    Answer(Member, Execution, Answer),
    /// End the pause of a call that has failed this number of times, after this duration, or at this time if an
    /// earlier run has recorded it, in microseconds since 1970.
    Wake {
        /// The call of the program within which it was made, or itself.
        root: CallId,
        call: CallId,
        failures: u32,
        pause: Duration,
        until_us: Option<u64>,
    },
    /// Write a fact to the journal, and [confirm](super::Graph::journalled) it.
    Record(Fact),
    /// Restore a version from the journal to the node of the program.
    Restore {
        version: VersionId,
        mark: Mark,
        value: Arc<[u8]>,
    },
    /// Write a version on the node of the program to the journal, since all members leave.
    Preserve {
        version: VersionId,
        mark: Mark,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) call: CallId,
    pub(crate) work: Work,
    pub(crate) mark: Mark,
    pub(crate) arguments: Arc<[Argument]>,
    /// The number of failed runs of the call: each run of its task makes separate calls.
    pub(crate) tries: u32,
    /// Whether the version of each [`Argument::Update`] may be updated in place, in order.
    pub(crate) in_place: Vec<bool>,
    pub(crate) manner: Manner,
    /// The inputs that are not with the member, and their owners. Members report the copies that they
    /// [fetch](super::Graph::copied), but not those that they update in place.
    pub(crate) elsewhere: Vec<Source>,
}

impl Assignment {
    /// Returns the task to run.
    pub(crate) fn task(&self) -> &'static TaskDef {
        self.work.task().expect("a value is passed to its task when it is here")
    }

    /// Returns whether it runs as a future, which occupies no worker.
    pub(crate) fn is_future(&self) -> bool {
        self.task().is_future() && !self.manner.is_isolated
    }
}

/// Whether a version can be read on the node of the program.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Awaited,
    Here,
    Failed(Failure),
}
