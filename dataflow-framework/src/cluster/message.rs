//! The messages between nodes.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    core::{
        Answer, Argument, CallId, Capacity, Execution, Frame, Held, History, Manner, Mark, Step, VersionId,
    },
    failure::Failed,
    node::{Ask, Missing, Peer, Piece, Timing, Told},
    value::{decode, encode},
};

/// A run of a program: from its start on one node to its end there. A later run of the same job is greater,
/// unless the runtime has lost the state of the task in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Run {
    /// The number of earlier starts of the program known to its task.
    pub(super) generation: u64,
    /// The start time, in microseconds since 1970 by the clock of the node.
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
    /// From the coordinator, on the line of this number.
    ToSite(u32, Frame),
    /// To the coordinator, on the line of this number.
    ToHead(u32, Frame),
    Ask(Ask),
    Piece(Piece),
    /// The answer to [`Ask`](Self::Ask) if the version is absent.
    Absent(VersionId),
    /// The answer to [`Ask`](Self::Ask) if the version is large, and was not sent before.
    Prepares(VersionId),
    /// To the coordinator, from a node that has followed another one since: the assignments of this line are
    /// dropped.
    Forgot(u32),
}

/// The orders of the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Join the run, and confirm it.
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
    /// Keep a version under a second id, which has this mark.
    Alias {
        from: VersionId,
        to: VersionId,
        mark: Mark,
    },
    /// Answer a task that waits.
    Answer(Execution, Answer),
    /// Fetch a version from another node, and keep it.
    Copy(Missing),
    /// Remember these completed calls.
    Remember(History),
    /// The answer to [`News::Leaves`]: this node holds nothing that is still needed and only it has.
    MayLeave,
}

/// The reports to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// The node takes part, with this capacity.
    TakesPart(Capacity),
    /// The node has versions of an earlier run.
    Holds(Vec<Held>),
    /// The node runs calls of an earlier run.
    Runs(Vec<(CallId, Mark)>),
    /// Calls completed in earlier runs.
    Remembers(History),
    /// The reports of earlier runs are complete.
    AllTold,
    /// The timing of a call, sent before its end.
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
        tried: Vec<Peer>,
        /// The versions that it would have updated in place, with their sizes.
        unchanged: Vec<(VersionId, u64)>,
    },
    /// The node leaves soon, and accepts no more calls.
    Leaves,
    /// A step of the task of a call that makes calls.
    Step(Execution, Step),
    /// A call that has not started on a leaving node, and the versions that it would have updated in place,
    /// with their sizes.
    Returned {
        call: CallId,
        unchanged: Vec<(VersionId, u64)>,
    },
    Copied(VersionId),
    NotCopied {
        version: VersionId,
        /// The nodes that were asked for it.
        tried: Vec<Peer>,
    },
    /// A call cannot run on this node, but may on another one.
    Unfit {
        call: CallId,
        reason: String,
        unchanged: Vec<(VersionId, u64)>,
        damaged: Option<VersionId>,
    },
    /// A version is no longer readable.
    Damaged {
        version: VersionId,
        reason: String,
    },
    /// The node is low on memory, and can drop these versions if other nodes have them.
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

/// Decodes bytes as each of the message types, and checks that decoded messages survive a round trip. Returns
/// whether any type matched.
pub(super) fn check(bytes: &[u8]) -> bool {
    fn is<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
        let Ok(message) = decode::<T>(bytes) else { return false };
        let written = coded(&message);
        let read = decode::<T>(&written).expect("encoded messages can be decoded");
        assert_eq!(coded(&read), written, "a message survives a round trip");
        true
    }
    is::<Message>(bytes) | is::<Order>(bytes) | is::<News>(bytes)
}

/// Returns the encoded seed messages of the fuzzer, each with a name.
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
