//! What nodes tell each other.

use serde::{Deserialize, Serialize};

use crate::{
    core::{Argument, CallId, Frame, Held, History, Manner, Mark, VersionId},
    failure::Failed,
    node::{Ask, Missing, Piece, Told},
    value::{decode, encode},
};

/// A run of a program: from its start on one node to its end there. A later one of the same job is greater, unless the
/// runtime has lost the state of the task in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Run {
    /// How often the program was started before, as far as its task knows.
    pub(super) generation: u64,
    /// When it was started, in microseconds since 1970 by the clock of the node.
    pub(super) started_us: u64,
}

/// A message from one companion to another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) run: Run,
    pub(super) content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Content {
    /// From the head, on the line of this number.
    ToSite(u32, Frame),
    /// To the head, on the line of this number.
    ToHead(u32, Frame),
    Ask(Ask),
    Piece(Piece),
    /// The answer to [`Ask`](Self::Ask) if the version is not there.
    Absent(VersionId),
}

/// What the head orders.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// To take part, and say so.
    TakePart,
    Assign {
        call: CallId,
        module: String,
        name: String,
        mark: Mark,
        arguments: Vec<Argument>,
        in_place: Vec<bool>,
        manner: Manner,
        missing: Vec<Missing>,
    },
    Forget(VersionId),
    /// To get a version from another node, and keep it.
    Copy(Missing),
    /// To remember which calls have ended.
    Remember(History),
    /// The answer to [`News::Leaves`]: nothing is needed any more that only this node has.
    MayLeave,
}

/// What is told to the head.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// The node takes part, with so many workers.
    TakesPart(u32),
    /// The node has versions of an earlier run.
    Holds(Vec<Held>),
    /// The node runs calls of an earlier run.
    Runs(Vec<(CallId, Mark)>),
    /// In an earlier run calls have ended.
    Remembers(History),
    /// That was all of earlier runs.
    AllTold,
    Written {
        call: CallId,
        versions: Vec<Told>,
        ns: u64,
    },
    Durable {
        call: CallId,
        bytes: Vec<u64>,
        ns: u64,
        values: Option<Vec<Vec<u8>>>,
    },
    Ignored {
        call: CallId,
        bytes: Vec<u64>,
        reason: String,
    },
    Failed {
        call: CallId,
        reason: String,
    },
    Unable {
        call: CallId,
        missing: VersionId,
    },
    /// The node leaves soon, and wants no more calls.
    Leaves,
    /// A call that has not begun on a node that leaves, and what it would have changed in place, with the sizes.
    Returned {
        call: CallId,
        unchanged: Vec<(VersionId, u64)>,
    },
    Copied(VersionId),
    NotCopied(VersionId),
}

impl Message {
    pub(super) fn encoded(&self) -> Vec<u8> {
        coded(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Failed> {
        decode(bytes)
    }
}

impl Order {
    pub(super) fn encoded(&self) -> Vec<u8> {
        coded(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Failed> {
        decode(bytes)
    }
}

impl News {
    pub(super) fn encoded(&self) -> Vec<u8> {
        coded(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Failed> {
        decode(bytes)
    }
}

fn coded<T: Serialize>(message: &T) -> Vec<u8> {
    encode(message).unwrap_or_else(|Failed { reason }| unreachable!("messages can be encoded: {reason}"))
}
