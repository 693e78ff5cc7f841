//! The order of messages between the host and one runtime, without input and output.

use serde_json::value::RawValue;
use thiserror::Error;

use super::{CallError, FromRuntime, message::checked};
use crate::ranges::Ranges;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// The expected messages of a runtime.
#[derive(Debug)]
pub(crate) struct Exchange {
    stage: Stage,
    /// The calls of the current frame, and those without an answer.
    calls: Ranges,
    unanswered: Ranges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `ready` after `hello` is expected.
    Greeting,
    /// `ready` after `load` is expected.
    Loading,
    Loaded,
}

/// The meaning of a message.
#[derive(Debug)]
#[must_use]
pub(crate) enum Step {
    /// Nothing for the task.
    Nothing,
    /// The routine is loaded.
    Loaded,
    /// The routine cannot be loaded.
    NotLoaded(CallError),
    /// Calls are answered.
    Answered(Vec<(u64, Result<Box<RawValue>, CallError>)>),
}

/// A message that violates the protocol.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ProtocolError {
    #[error("the runtime speaks version {0:?} of the protocol, not {VERSION}")]
    Version(Option<u32>),
    #[error("the runtime is ready for a second time")]
    ReadyAgain,
    #[error("the runtime answers call {0} before it is ready")]
    NotReady(u64),
    #[error("the runtime answers call {0} for a second time")]
    AnsweredTwice(u64),
    #[error("the runtime answers call {0}, which it was not given")]
    NotCalled(u64),
    #[error("the runtime reports an error of no call: {}", .0.message)]
    NoCall(CallError),
}

impl Exchange {
    /// Creates the exchange of a runtime that was sent `hello` and `load`.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Greeting, calls: Ranges::default(), unanswered: Ranges::default() }
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.stage == Stage::Loaded
    }

    /// Notes that a frame of calls is sent. The previous one must be answered.
    pub(crate) fn on_calls(&mut self, calls: Ranges) {
        debug_assert!(self.unanswered.is_empty(), "one frame at a time");
        self.calls = calls.clone();
        self.unanswered = calls;
    }

    /// Returns the calls without an answer.
    pub(crate) fn unanswered(&self) -> &Ranges {
        &self.unanswered
    }

    pub(crate) fn on_message(&mut self, message: FromRuntime) -> Result<Step, ProtocolError> {
        match message {
            FromRuntime::Ready { version } => match self.stage {
                Stage::Greeting if version == Some(VERSION) => {
                    self.stage = Stage::Loading;
                    Ok(Step::Nothing)
                }
                Stage::Greeting => Err(ProtocolError::Version(version)),
                Stage::Loading => {
                    self.stage = Stage::Loaded;
                    Ok(Step::Loaded)
                }
                Stage::Loaded => Err(ProtocolError::ReadyAgain),
            },
            FromRuntime::Result { values } => {
                let answers = values.into_iter().map(|(id, value)| {
                    self.answer(id)?;
                    Ok((id, checked(value)))
                });
                answers.collect::<Result<_, _>>().map(Step::Answered)
            }
            FromRuntime::Error { id: Some(id), error } => {
                self.answer(id)?;
                Ok(Step::Answered(vec![(id, Err(error))]))
            }
            FromRuntime::Error { id: None, error } if self.stage == Stage::Loading => {
                Ok(Step::NotLoaded(error))
            }
            FromRuntime::Error { id: None, error } => Err(ProtocolError::NoCall(error)),
            FromRuntime::Log { text } => {
                tracing::debug!(text, "a runtime logs");
                Ok(Step::Nothing)
            }
            FromRuntime::Progress => Ok(Step::Nothing),
        }
    }

    fn answer(&mut self, id: u64) -> Result<(), ProtocolError> {
        if !self.is_loaded() {
            return Err(ProtocolError::NotReady(id));
        }
        if self.unanswered.remove(id) {
            return Ok(());
        }
        let is_repeated = self.calls.contains(id);
        Err(if is_repeated { ProtocolError::AnsweredTwice(id) } else { ProtocolError::NotCalled(id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ErrorKind, Frame};

    fn hear(exchange: &mut Exchange, json: &str) -> Result<Step, ProtocolError> {
        exchange.on_message(FromRuntime::parse(&Frame::of_json(json.to_owned())).unwrap())
    }

    fn loaded() -> Exchange {
        let mut exchange = Exchange::new();
        assert!(matches!(hear(&mut exchange, r#"{"type":"ready","version":1}"#), Ok(Step::Nothing)));
        assert!(matches!(hear(&mut exchange, r#"{"type":"ready"}"#), Ok(Step::Loaded)));
        exchange.on_calls((5..8).into());
        exchange
    }

    #[test]
    fn each_call_is_answered_once() {
        let mut exchange = loaded();
        let step = hear(&mut exchange, r#"{"type":"result","values":[[7,1],[5,18446744073709551616]]}"#);
        let Ok(Step::Answered(answers)) = step else { panic!("{step:?}") };
        assert_eq!(answers[0].1.as_ref().unwrap().get(), "1");
        assert_eq!(answers[1].1.as_ref().unwrap_err().kind, ErrorKind::Invalid, "2^64 is no value");
        assert_eq!(exchange.unanswered().indices().collect::<Vec<_>>(), [6]);
        let step = hear(&mut exchange, r#"{"type":"error","id":6,"kind":"user","message":"m"}"#);
        assert!(matches!(step, Ok(Step::Answered(_))) && exchange.unanswered().is_empty());
    }

    #[test]
    fn wrong_answers_have_their_errors() {
        let twice = r#"{"type":"result","values":[[5,1],[5,1]]}"#;
        assert!(matches!(hear(&mut loaded(), twice), Err(ProtocolError::AnsweredTwice(5))));
        let other = r#"{"type":"error","id":9,"kind":"user","message":"m"}"#;
        assert!(matches!(hear(&mut loaded(), other), Err(ProtocolError::NotCalled(9))));
        let of_none = r#"{"type":"error","kind":"user","message":"m"}"#;
        assert!(matches!(hear(&mut loaded(), of_none), Err(ProtocolError::NoCall(_))));
        assert!(matches!(hear(&mut loaded(), r#"{"type":"ready"}"#), Err(ProtocolError::ReadyAgain)));
        let early = r#"{"type":"result","values":[[5,1]]}"#;
        assert!(matches!(hear(&mut Exchange::new(), early), Err(ProtocolError::NotReady(5))));
        let version = r#"{"type":"ready","version":2}"#;
        assert!(matches!(hear(&mut Exchange::new(), version), Err(ProtocolError::Version(Some(2)))));
    }
}
