//! Orders of the node of the program to the others, and their reports to it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use taskwork::NodeId;

use super::{fetches::Missing, stopwatch::Timing};
use crate::{
    core::{Answer, Assignment, Capacity, Held, History, Lack, Manner, Mark, Outcome, Step, Work},
    encoding::{decode, encode},
    failure::Failed,
    ids::{Argument, CallId, Execution, VersionId},
    options::Options,
};

/// An order of the node of the program to another node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Take part, and confirm it.
    TakePart,
    Assign {
        call: CallId,
        module: String,
        name: String,
        mark: Mark,
        tries: u32,
        reader: Option<Execution>,
        arguments: Vec<Argument>,
        in_place: Vec<bool>,
        manner: Manner,
        missing: Vec<Missing>,
    },
    Forget(VersionId),
    /// Store a version under a second id with this mark.
    Alias {
        from: VersionId,
        to: VersionId,
        mark: Mark,
    },
    /// Deliver a decision to a waiting task.
    Answer(Execution, Answer),
    /// Fetch a version from another node, and keep it.
    Copy(Missing),
    /// Store the completed calls for a later coordinator.
    Remember(History),
    /// The answer to [`News::Leaves`]: the node has no data that only it has and others need.
    MayLeave,
    /// End a call, which is cancelled, and [return](News::Returned) it.
    Cancel(CallId),
}

/// A report of a node to the node of the program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum News {
    /// The node takes part, with these resources.
    TakesPart(Capacity),
    /// The node has versions of an earlier run.
    Holds(Vec<Held>),
    /// The node runs calls of an earlier run.
    Runs(Vec<(CallId, Mark)>),
    /// Calls completed in an earlier run.
    Remembers(History),
    /// The reports about earlier runs are complete.
    AllTold,
    /// The times of a call; reported before its outcome.
    Timed(Timing),
    /// The outcome of a call, with the contents of its small outputs by slot.
    Ended { call: CallId, outcome: Outcome, contents: Vec<(u32, Vec<u8>)> },
    /// A call cannot run on the node: a version that it reads could not be fetched.
    Unable {
        call: CallId,
        missing: VersionId,
        /// The nodes that were asked for it.
        tried: Vec<NodeId>,
        /// The versions that the call would have changed in place, with their sizes.
        unchanged: Vec<(VersionId, u64)>,
    },
    /// The node leaves soon, and accepts no more calls.
    Leaves,
    /// A step of a task that makes calls.
    Step(Execution, Step),
    /// A call is no longer assigned to the node: it has not started on a leaving or cordoned node, its execution belongs to an
    /// earlier run, or it was [cancelled](Order::Cancel).
    Returned { call: CallId, unchanged: Vec<(VersionId, u64)> },
    /// A version was fetched.
    Copied(VersionId),
    /// A version could not be fetched.
    NotCopied {
        version: VersionId,
        /// The nodes that were asked for it.
        tried: Vec<NodeId>,
    },
    /// A version is corrupt.
    Damaged { version: VersionId, reason: String },
    /// The store is nearly full: these copies can be dropped if other nodes have the versions.
    HasCopies(Vec<VersionId>),
    /// Whether the node accepts no more calls, since an operator has cordoned it.
    Cordon { is_cordoned: bool },
}

/// The receiver of the reports of a node. It is on the same node, or forwards them to the node of the program.
pub(crate) trait Report: Send + Sync {
    /// Handles a report, or forwards it.
    fn tell(&self, news: News);

    /// Returns the options of a nested call that have an effect in this kind of run.
    fn counting(&self, options: Options) -> Options {
        options
    }

    /// Returns a demand of a nested call that no node can ever meet.
    fn lacks(&self, _options: &Options) -> Option<Lack> {
        None
    }
}

impl Order {
    /// Creates the order to run a call; `missing` are its inputs that are not on the node.
    pub(crate) fn assign(assignment: &Assignment, missing: Vec<Missing>) -> Self {
        let Assignment { call, work, mark, arguments, tries, in_place, manner, elsewhere: _ } = assignment;
        let (module, name, reader) = match *work {
            Work::Task(task) => (task.module, task.name, None),
            Work::Get(execution) => ("", "", Some(execution)),
        };
        Self::Assign {
            call: *call,
            module: module.to_owned(),
            name: name.to_owned(),
            mark: *mark,
            tries: *tries,
            reader,
            arguments: arguments.to_vec(),
            in_place: in_place.clone(),
            manner: *manner,
            missing,
        }
    }
}

impl News {
    pub(crate) fn ended(call: CallId, outcome: Outcome) -> Self {
        Self::Ended { call, outcome, contents: Vec::new() }
    }

    /// Creates the report that an input could not be fetched from the nodes in `tried`.
    pub(crate) fn unable((call, unchanged): Returned, missing: VersionId, tried: Vec<NodeId>) -> Self {
        Self::Unable { call, missing, tried, unchanged }
    }
}

/// A call that is returned to the coordinator, and the versions that it would have changed in place, with their sizes.
pub(crate) type Returned = (CallId, Vec<(VersionId, u64)>);

/// A message that can be encoded.
pub(crate) trait Coded: Serialize + DeserializeOwned {
    fn encoded(&self) -> Vec<u8> {
        encode(self).unwrap_or_else(|Failed { reason, .. }| unreachable!("messages can be encoded: {reason}"))
    }

    /// Decodes a message of another node.
    ///
    /// # Errors
    /// If the bytes are no message of this type.
    fn decode(bytes: &[u8]) -> Result<Self, Failed> {
        decode(bytes)
    }
}

impl Coded for Order {}
impl Coded for News {}
