//! The protocol between a host and a runtime, over two pipes: frames, messages and their order.
//!
//! A frame is `u32 length, u32 JSON length, JSON, bytes`, in little endian; the first length counts everything after
//! itself. Unknown fields of messages are ignored, unknown messages are refused.
//!
//! | host → runtime | runtime → host |
//! |---|---|
//! | `hello {versions}` | `ready {version, language}` |
//! | `load {folder, entry}` | `ready {}`, or `error {kind, message, trace}` |
//! | `call {id, argument}`, `many {calls: [[id, argument], …]}` | `result {values: [[id, value], …]}`, `error {id, kind, message, trace}` |
//!
//! At any time a runtime may send `log {text}` and `progress {share}`. Each call is answered once, by a `result` or an
//! `error`; the calls of one frame are answered in any order and grouping.

mod exchange;
mod frame;
mod message;
mod value;

pub(crate) use self::{
    exchange::{Exchange, Step},
    frame::{Frame, FrameError, read_frame},
    message::{CallError, ErrorKind, FromRuntime, ToRuntime},
    value::{ValueError, check_value},
};
