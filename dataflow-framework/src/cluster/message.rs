//! What nodes tell each other.

use taskwork::NodeId;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    core::{Answer, Capacity, Frame, Held, History, Manner, Mark, Step},
    encoding::{decode, encode},
    failure::Failed,
    ids::{Argument, CallId, Execution, VersionId},
    node::{Ask, Missing, Piece, Timing, Told},
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
    /// The answer to [`Ask`](Self::Ask) if the version is large, and was not sent before.
    Prepares(VersionId),
    /// To the head, from a node that has followed another one since: what was assigned on the line of this number is
    /// forgotten.
    Forgot(u32),
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
        tries: u32,
        reader: Option<Execution>,
        arguments: Vec<Argument>,
        in_place: Vec<bool>,
        manner: Manner,
        missing: Vec<Missing>,
    },
    Forget(VersionId),
    /// To keep one version also as another one, which has this mark.
    Alias {
        from: VersionId,
        to: VersionId,
        mark: Mark,
    },
    /// To tell a task what it waits for.
    Answer(Execution, Answer),
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
    /// The node takes part, and has this.
    TakesPart(Capacity),
    /// The node has versions of an earlier run.
    Holds(Vec<Held>),
    /// The node runs calls of an earlier run.
    Runs(Vec<(CallId, Mark)>),
    /// In an earlier run calls have ended.
    Remembers(History),
    /// That was all of earlier runs.
    AllTold,
    /// When a call has run, before its end is told.
    Timed(Timing),
    Written {
        call: CallId,
        versions: Vec<Told>,
        ns: u64,
    },
    Durable {
        call: CallId,
        bytes: Vec<u64>,
        ns: u64,
        by: u64,
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
        /// The nodes that were asked for it.
        tried: Vec<NodeId>,
        /// What it would have changed in place, with the sizes.
        unchanged: Vec<(VersionId, u64)>,
    },
    /// The node leaves soon, and wants no more calls.
    Leaves,
    /// What the task of a call does that makes calls.
    Step(Execution, Step),
    /// A call that has not begun on a node that leaves, and what it would have changed in place, with the sizes.
    Returned {
        call: CallId,
        unchanged: Vec<(VersionId, u64)>,
    },
    Copied(VersionId),
    NotCopied {
        version: VersionId,
        /// The nodes that were asked for it.
        tried: Vec<NodeId>,
    },
    /// A call cannot run on the node, but may on another one.
    Unfit {
        call: CallId,
        reason: String,
        unchanged: Vec<(VersionId, u64)>,
        damaged: Option<VersionId>,
    },
    /// A version cannot be read any more.
    Damaged {
        version: VersionId,
        reason: String,
    },
    /// The node has little room, and could do without these if others have them, too.
    HasCopies(Vec<VersionId>),
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

/// Decodes bytes as each of the messages. What is read must be read again as it was written. Returns whether they are any.
pub(super) fn check(bytes: &[u8]) -> bool {
    fn is<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
        let Ok(message) = decode::<T>(bytes) else { return false };
        let written = coded(&message);
        let read = decode::<T>(&written).expect("what was written can be read");
        assert_eq!(coded(&read), written, "it is read as it was written");
        true
    }
    is::<Message>(bytes) | is::<Order>(bytes) | is::<News>(bytes)
}

/// Returns messages with which the fuzzer begins, encoded, each with a name.
pub(super) fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let run = Run { generation: 1, started_us: 1_700_000_000_000_000 };
    let (version, mark) = (VersionId { call: 3, slot: 1 }, Mark::default());
    let missing = Missing { version, mark, from: Vec::new(), content: Some(vec![1, 2, 3]) };
    let assign = Order::Assign {
        call: 4,
        module: "example".to_owned(),
        name: "multiply".to_owned(),
        mark,
        tries: 1,
        reader: None,
        arguments: vec![
            Argument::Copied(vec![5]),
            Argument::Update(version),
            Argument::ReadAll(vec![version]),
        ],
        in_place: vec![false, true],
        manner: Manner::default(),
        missing: vec![missing.clone()],
    };
    let failed = News::Failed { call: 4, reason: "it failed".to_owned() };
    vec![
        ("assign", assign.encoded()),
        ("copy", Order::Copy(missing).encoded()),
        ("remember", Order::Remember(History::default()).encoded()),
        ("takes-part", News::TakesPart(Capacity::default()).encoded()),
        ("failed", failed.encoded()),
        ("holds", News::Holds(vec![Held { version, mark, bytes: 9 }]).encoded()),
        ("absent", Message { run, content: Content::Absent(version) }.encoded()),
        ("forgot", Message { run, content: Content::Forgot(2) }.encoded()),
    ]
}

fn coded<T: Serialize>(message: &T) -> Vec<u8> {
    encode(message).unwrap_or_else(|Failed { reason, .. }| unreachable!("messages can be encoded: {reason}"))
}
