//! Messages as JSON.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use utoipa::ToSchema;

use super::{Frame, ValueError, check_value};

/// The maximum length of the message of an error, and of its trace, in bytes.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const TRACE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum ToRuntime<'a> {
    Hello {
        versions: &'a [u32],
    },
    Load {
        folder: &'a str,
        entry: &'a str,
        kind: EntryKind,
    },
    /// A call, without the others of a frame. It continues from its state in the bytes of the frame, if there are any.
    Call {
        id: u64,
        argument: &'a RawValue,
    },
    Many {
        calls: Vec<Call<'a>>,
    },
    /// A search, from its argument, or from its state in the bytes of the frame.
    Search {
        #[serde(skip_serializing_if = "Option::is_none")]
        argument: Option<&'a RawValue>,
    },
    /// The search continues.
    Go,
    /// The outcome of a call that the runtime has made: a value or an error.
    Answer {
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a CallError>,
    },
}

/// The kind of an entry of a package.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryKind {
    /// A function that is called.
    #[default]
    Function,
    /// A class with instances that are searched and split.
    Search,
}

/// The id of a call, and its argument.
pub(crate) type Call<'a> = (u64, &'a RawValue);

#[derive(Debug)]
pub(crate) enum FromRuntime {
    Ready {
        /// The chosen version of the protocol, in the answer to `hello`.
        version: Option<u32>,
    },
    Result {
        values: Vec<(u64, Box<RawValue>)>,
    },
    Error {
        /// The failed call; `None` if the routine cannot be loaded.
        id: Option<u64>,
        error: CallError,
    },
    Log {
        text: String,
    },
    Progress,
    /// The search waits for `go`.
    Paused {
        /// A part that was split off.
        part: Option<Vec<u8>>,
        rest: Vec<u8>,
        counts: NewCounts,
    },
    /// A call has sent a state from which it can continue.
    Checkpoint {
        id: u64,
        state: Vec<u8>,
    },
    /// The calls without an answer were stopped, as requested.
    Stopped,
    Offer(Offer),
    Complete {
        counts: NewCounts,
    },
    /// The running call calls another routine, and waits for `answer`.
    Call {
        routine: String,
        argument: Box<RawValue>,
    },
}

/// The numbers that a search has counted since its last message with numbers.
pub(crate) type NewCounts = BTreeMap<String, i64>;

/// A solution that a search has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) cost: f64,
    /// A value as JSON.
    pub(crate) solution: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CallError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// The trace of the user's code, such as a Python traceback.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) trace: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub(crate) enum ErrorKind {
    /// The user's code raised an exception.
    User,
    /// The argument or the result is not a value.
    Invalid,
    /// The runtime crashed repeatedly with the call.
    Crash,
    /// The call exceeded its time limit.
    Timeout,
    /// The node was lost with the call.
    #[serde(rename = "outcome-unknown")]
    OutcomeUnknown,
    /// A user has cancelled the call.
    Cancelled,
    /// The runtime exceeded its memory with the call.
    Memory,
}

/// The reasons for which a frame is not a message.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum MessageError {
    #[error("a frame is not a message: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the message {0:?} is unknown")]
    Unknown(String),
    #[error("a part of {part} bytes is not in the {bytes} bytes of its frame")]
    Part { part: usize, bytes: usize },
    #[error("a solution is no value: {0}")]
    Solution(#[from] ValueError),
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(rename = "type", borrow)]
    tag: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Ready {
    version: Option<u32>,
}

#[derive(Deserialize)]
struct Values {
    #[serde(default)]
    values: Vec<(u64, Box<RawValue>)>,
    /// At the end of a search.
    counts: Option<NewCounts>,
}

#[derive(Deserialize)]
struct Pause {
    /// The length of the part, which precedes the rest in the bytes.
    #[serde(default)]
    part: usize,
    counts: NewCounts,
}

#[derive(Deserialize)]
struct Found {
    cost: f64,
    solution: Box<RawValue>,
}

#[derive(Deserialize)]
struct Checkpoint {
    id: u64,
}

#[derive(Deserialize)]
struct Nested {
    routine: String,
    argument: Box<RawValue>,
}

#[derive(Deserialize)]
struct Error {
    id: Option<u64>,
    #[serde(flatten)]
    error: CallError,
}

#[derive(Deserialize)]
struct Log {
    text: String,
}

impl ToRuntime<'_> {
    pub(crate) fn frame(&self) -> Frame {
        Frame::of_json(serde_json::to_string(self).expect("texts and numbers are valid JSON"))
    }
}

impl FromRuntime {
    pub(crate) fn parse(frame: &Frame) -> Result<Self, MessageError> {
        let json = &frame.json;
        let Tag { tag } = serde_json::from_str(json)?;
        Ok(match &*tag {
            "ready" => {
                let Ready { version } = serde_json::from_str(json)?;
                Self::Ready { version }
            }
            "result" => {
                let Values { values, counts } = serde_json::from_str(json)?;
                counts.map_or(Self::Result { values }, |counts| Self::Complete { counts })
            }
            "error" => {
                let Error { id, mut error } = serde_json::from_str(json)?;
                shorten(&mut error.message, MESSAGE_BYTES_MAX);
                shorten(&mut error.trace, TRACE_BYTES_MAX);
                Self::Error { id, error }
            }
            "log" => {
                let Log { text } = serde_json::from_str(json)?;
                Self::Log { text }
            }
            "progress" => Self::Progress,
            "child" | "paused" => {
                let Pause { part, counts } = serde_json::from_str(json)?;
                let bytes = frame.bytes.len();
                let split = frame.bytes.split_at_checked(part).ok_or(MessageError::Part { part, bytes })?;
                let part = (&*tag == "child").then(|| split.0.to_vec());
                Self::Paused { part, rest: split.1.to_vec(), counts }
            }
            "checkpoint" => {
                let Checkpoint { id } = serde_json::from_str(json)?;
                Self::Checkpoint { id, state: frame.bytes.clone() }
            }
            "stopped" => Self::Stopped,
            "offer" => {
                let Found { cost, solution } = serde_json::from_str(json)?;
                check_value(solution.get())?;
                Self::Offer(Offer { cost, solution: solution.get().to_owned() })
            }
            "call" => {
                let Nested { routine, argument } = serde_json::from_str(json)?;
                Self::Call { routine, argument }
            }
            _ => return Err(MessageError::Unknown(tag.chars().take(100).collect())),
        })
    }
}

impl CallError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        shorten(&mut message, MESSAGE_BYTES_MAX);
        Self { kind, message, trace: String::new() }
    }

    /// Returns the error of a call with a result that is not a value.
    pub(crate) fn of_result(error: &ValueError) -> Self {
        Self::new(ErrorKind::Invalid, format!("the result is invalid: {error}"))
    }
}

/// Checks the result of a call.
pub(crate) fn checked(value: Box<RawValue>) -> Result<Box<RawValue>, CallError> {
    check_value(value.get()).map(|()| value).map_err(|error| CallError::of_result(&error))
}

/// Removes the middle of a text that is too long.
fn shorten(text: &mut String, most: usize) {
    const CUT: &str = "\n…\n";
    if text.len() <= most {
        return;
    }
    let half = (most - CUT.len()) / 2;
    let head = (0..=half).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let tail = text.len() - half;
    let tail = (tail..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    text.replace_range(head..tail, CUT);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<FromRuntime, MessageError> {
        FromRuntime::parse(&Frame::of_json(json.to_owned()))
    }

    #[test]
    fn messages_are_parsed_and_unknown_fields_are_ignored() {
        assert!(matches!(
            parse(r#"{"type":"ready","version":1,"language":"python"}"#),
            Ok(FromRuntime::Ready { version: Some(1) })
        ));
        let result = parse(r#"{"values":[[7,{"$i":"1"}],[8,null]],"type":"result"}"#).unwrap();
        let FromRuntime::Result { values } = result else { panic!("{result:?}") };
        assert_eq!((values[0].0, values[0].1.get(), values[1].1.get()), (7, r#"{"$i":"1"}"#, "null"));
        let error = parse(r#"{"type":"error","id":7,"kind":"user","message":"m","trace":"t","more":1}"#);
        let Ok(FromRuntime::Error { id: Some(7), error }) = error else { panic!("{error:?}") };
        assert_eq!((error.kind, &*error.trace), (ErrorKind::User, "t"));
    }

    #[test]
    fn frames_that_are_no_messages_are_refused() {
        for json in [
            "",
            "[]",
            "{}",
            "Traceback",
            r#"{"type":"result","values":[[-1,0]]}"#,
            r#"{"type":"result","values":[[18446744073709551616,0]]}"#,
            r#"{"type":"result","values":[[0,NaN]]}"#,
            r#"{"type":"error","id":0,"kind":"other","message":""}"#,
            r#"{"type":"ready"} trailing"#,
        ] {
            assert!(matches!(parse(json), Err(MessageError::Json(_))), "{json}");
        }
        assert!(matches!(parse(r#"{"type":"reboot"}"#), Err(MessageError::Unknown(tag)) if tag == "reboot"));
    }

    #[test]
    fn messages_of_searches_have_states_in_bytes() {
        let json = r#"{"type":"child","part":2,"counts":{"states":3}}"#.to_owned();
        let mut frame = Frame { json, bytes: b"parest".to_vec() };
        let parsed = FromRuntime::parse(&frame).unwrap();
        let FromRuntime::Paused { part: Some(part), rest, counts } = parsed else { panic!("{parsed:?}") };
        assert_eq!((&*part, &*rest, counts["states"]), (&b"pa"[..], &b"rest"[..], 3));
        frame.bytes.truncate(1);
        assert!(matches!(FromRuntime::parse(&frame), Err(MessageError::Part { part: 2, bytes: 1 })));
        let offer = parse(r#"{"type":"offer","cost":2.5,"solution":[1]}"#).unwrap();
        let FromRuntime::Offer(offer) = offer else { panic!("{offer:?}") };
        assert_eq!(offer, Offer { cost: 2.5, solution: "[1]".to_owned() });
        let offer = parse(r#"{"type":"offer","cost":2,"solution":18446744073709551616}"#);
        assert!(matches!(offer, Err(MessageError::Solution(_))));
        let complete = parse(r#"{"type":"result","counts":{}}"#);
        assert!(matches!(complete, Ok(FromRuntime::Complete { .. })));
    }

    #[test]
    fn deep_result_is_refused_without_recursion() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        let parsed = parse(&format!(r#"{{"type":"result","values":[[0,{deep}]]}}"#)).unwrap();
        let FromRuntime::Result { mut values } = parsed else { panic!("{parsed:?}") };
        let refused = checked(values.remove(0).1).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.message.contains("100 deep"), "{}", refused.message);
    }

    #[test]
    fn long_trace_keeps_both_ends() {
        let mut text = format!("first{}last", "ä".repeat(100));
        shorten(&mut text, 50);
        assert!(text.len() <= 50 && text.starts_with("first") && text.ends_with("last"), "{text}");
    }
}
