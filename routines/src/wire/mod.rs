//! The protocol between a host and a runtime, over two pipes: frames, messages and their order.
//!
//! A frame is `u32 length, u32 JSON length, JSON, bytes`, in little endian; the first length counts everything after
//! itself. Unknown fields of messages are ignored, unknown messages are refused.
//!
//! | host → runtime | runtime → host |
//! |---|---|
//! | `hello {versions}` | `ready {version, language}` |
//! | `load {folder, entry, kind}` | `ready {}`, or `error {kind, message, trace}` |
//! | `search {argument}`, or `search {}` and a state | `offer {cost, solution}`; `paused {counts}` and the rest; `child {part, counts}`, a part and the rest; `result {counts}`, `error {kind, message, trace}` |
//! | `go {}` | after `paused` or `child`, as after `search` |
//! | `call {id, argument}`, possibly with a state; `many {calls: [[id, argument], …]}` | `result {values: [[id, value], …]}`, `error {id, kind, message, trace}`; `checkpoint {id}` and the state; `stopped {}` |
//! | `answer {value}` or `answer {error}` | before that `call {routine, argument}`, within a call |
//!
//! At any time a runtime may send `log {text}` and `progress {share}`. Each call is answered once, by a `result` or an
//! `error`; the calls of one frame are answered in any order and grouping.
//!
//! A call may watch the [page](crate::runtime), too. When its first byte is set, the runtime sends the state of the call in the
//! bytes of `checkpoint`, and also the first state after its start, by which the host learns that calls of this routine have
//! states. If the byte requests a pause, the call ends after that without an answer. `stopped` reports this, for the call and
//! those of its frame that have not started.
//!
//! A search watches a [page](crate::runtime). When its first byte is set, the runtime sends the state of the search in the
//! bytes of `paused` or `child`, with the numbers that were counted since the last state, and waits for `go`. Both states of
//! `child` and the numbers are in one frame: a search whose runtime crashes continues from the last rest, and nothing is
//! lost or counted twice.

mod exchange;
mod frame;
mod message;
mod value;

pub(crate) use self::{
    exchange::{Exchange, SearchStage, Step},
    frame::{FRAME_BYTES_MAX, Frame, FrameError, Frames},
    message::{CallError, EntryKind, ErrorKind, FromRuntime, NewCounts, Offer, ToRuntime},
    value::{ValueError, check_nested, check_value},
};
