//! The messages between nodes.

use serde::{Deserialize, Serialize};
use taskwork::companion::ObjectName;

use crate::{
    core::{Capacity, Frame, Held, History, Manner, Mark, Outcome},
    failure::Failure,
    ids::{Argument, VersionId},
    node::{Answer, Coded, Missing, News, Order},
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
    ToNode(u32, Frame),
    /// To the coordinator, on the line of this number.
    ToCoordinator(u32, Frame),
    /// A request for a version.
    Ask(VersionId),
    /// The answer to [`Ask`](Self::Ask).
    Answer(VersionId, Answer),
    /// To the coordinator, from a node that has followed another one since: the assignments of this line are
    /// dropped.
    Forgot(u32),
}

impl Coded for Message {}

/// Decodes bytes as each of the message types, and checks that decoded messages survive a round trip. Returns
/// whether any type matched.
pub(super) fn check(bytes: &[u8]) -> bool {
    fn is<T: Coded>(bytes: &[u8]) -> bool {
        let Ok(message) = T::decode(bytes) else { return false };
        let written = message.encoded();
        let read = T::decode(&written).expect("what was written can be read");
        assert_eq!(read.encoded(), written, "it is read as it was written");
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
    let object = ObjectName::new([7; 32], 1 << 20);
    let failed = News::ended(4, Outcome::Failed(Failure::new("multiply", 4, "it failed")));
    vec![
        ("assign", assign.encoded()),
        ("copy", Order::Copy(missing).encoded()),
        ("cancel", Order::Cancel(4).encoded()),
        ("remember", Order::Remember(History::default()).encoded()),
        ("takes-part", News::TakesPart(Capacity::default()).encoded()),
        ("failed", failed.encoded()),
        ("holds", News::Holds(vec![Held { version, mark, bytes: 9 }]).encoded()),
        ("absent", Message { run, content: Content::Answer(version, Answer::Absent) }.encoded()),
        ("object", Message { run, content: Content::Answer(version, Answer::Object(object)) }.encoded()),
        ("forgot", Message { run, content: Content::Forgot(2) }.encoded()),
    ]
}
