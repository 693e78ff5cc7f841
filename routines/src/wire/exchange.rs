//! The order of messages between the host and one runtime, without input and output.

use serde_json::value::RawValue;
use thiserror::Error;

use super::{CallError, FromRuntime, NewCounts, Offer, message::checked};
use crate::ranges::Ranges;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// The maximum size of the state of a search or of a call, in bytes.
const STATE_BYTES_MAX: usize = 1 << 20;

/// The expected messages of a runtime.
#[derive(Debug)]
pub(crate) struct Exchange {
    stage: Stage,
    /// The calls of the current frame, and those without an answer.
    calls: Ranges,
    unanswered: Ranges,
    search: SearchStage,
    /// Whether a call of the runtime has sent a state, so that later ones are expected to.
    has_checkpoints: bool,
    /// Whether a call of the runtime waits for its answer.
    is_calling: bool,
}

/// The stage of a search in a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchStage {
    /// There is none, or it is complete or has failed.
    Idle,
    Running,
    /// It waits for `go`.
    Paused,
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
    Loaded,
    NotLoaded(CallError),
    /// Calls are answered.
    Answered(Vec<(u64, Result<Box<RawValue>, CallError>)>),
    Offered(Offer),
    /// The search waits for `go`, after it has split off a part, if there is one.
    Paused {
        part: Option<Vec<u8>>,
        rest: Vec<u8>,
        counts: NewCounts,
    },
    Complete(NewCounts),
    /// A call has sent its state.
    Checkpoint {
        id: u64,
        state: Vec<u8>,
    },
    /// These calls have stopped without an answer.
    Stopped(Ranges),
    Failed(CallError),
    /// A running call calls another routine.
    Calls {
        routine: String,
        argument: Box<RawValue>,
    },
}

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
    #[error("the runtime calls {0:?} although none of its calls runs, or its last call is not answered")]
    Call(String),
    #[error("the runtime answers call {0} although it waits for the answer to its own call")]
    Waits(u64),
    #[error("the runtime reports that its calls have stopped, although none runs")]
    Stopped,
    #[error("the runtime sends {0} although its search does not run")]
    NotSearching(&'static str),
    #[error("the runtime offers a solution with the cost {0}, which is not finite")]
    Cost(f64),
    #[error("the runtime sends a state of {bytes} bytes, more than {STATE_BYTES_MAX}")]
    State { bytes: usize },
}

impl Exchange {
    /// Creates the exchange of a runtime that was sent `hello` and `load`.
    pub(crate) fn new() -> Self {
        let (calls, unanswered) = (Ranges::default(), Ranges::default());
        let (stage, search) = (Stage::Greeting, SearchStage::Idle);
        Self { stage, calls, unanswered, search, has_checkpoints: false, is_calling: false }
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

    pub(crate) fn search(&self) -> SearchStage {
        self.search
    }

    /// Notes that `search` or `go` is sent. A paused search is replaced by another one.
    pub(crate) fn on_search(&mut self) {
        debug_assert!(self.search != SearchStage::Running, "one search at a time");
        self.search = SearchStage::Running;
    }

    /// Notes that the call of the runtime is answered.
    pub(crate) fn on_nested_answer(&mut self) {
        self.is_calling = false;
    }

    pub(crate) fn unanswered(&self) -> &Ranges {
        &self.unanswered
    }

    /// Returns whether its calls are expected to stop on request.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.has_checkpoints
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
            FromRuntime::Error { id: None, error } if self.search == SearchStage::Running => {
                self.search = SearchStage::Idle;
                Ok(Step::Failed(error))
            }
            FromRuntime::Error { id: None, error } => Err(ProtocolError::NoCall(error)),
            FromRuntime::Offer(offer) => {
                self.check_search("an offer")?;
                if !offer.cost.is_finite() {
                    return Err(ProtocolError::Cost(offer.cost));
                }
                Ok(Step::Offered(offer))
            }
            FromRuntime::Paused { part, rest, counts } => {
                self.check_search("a state")?;
                check_state(rest.len().max(part.as_ref().map_or(0, Vec::len)))?;
                self.search = SearchStage::Paused;
                Ok(Step::Paused { part, rest, counts })
            }
            FromRuntime::Complete { counts } => {
                self.check_search("a result")?;
                self.search = SearchStage::Idle;
                Ok(Step::Complete(counts))
            }
            FromRuntime::Checkpoint { id, state } => self.on_checkpoint(id, state),
            FromRuntime::Stopped => self.on_stopped(),
            FromRuntime::Call { routine, argument } => {
                if self.unanswered.is_empty() || self.is_calling {
                    return Err(ProtocolError::Call(routine));
                }
                self.is_calling = true;
                Ok(Step::Calls { routine, argument })
            }
            FromRuntime::Log { text } => {
                tracing::debug!(text, "a runtime logs");
                Ok(Step::Nothing)
            }
            FromRuntime::Progress => Ok(Step::Nothing),
        }
    }

    fn on_checkpoint(&mut self, id: u64, state: Vec<u8>) -> Result<Step, ProtocolError> {
        if !self.unanswered.contains(id) {
            return Err(self.not_unanswered(id));
        }
        check_state(state.len())?;
        self.has_checkpoints = true;
        Ok(Step::Checkpoint { id, state })
    }

    fn on_stopped(&mut self) -> Result<Step, ProtocolError> {
        if self.unanswered.is_empty() || self.is_calling {
            return Err(ProtocolError::Stopped);
        }
        Ok(Step::Stopped(std::mem::take(&mut self.unanswered)))
    }

    fn check_search(&self, sent: &'static str) -> Result<(), ProtocolError> {
        let is_running = self.search == SearchStage::Running;
        is_running.then_some(()).ok_or(ProtocolError::NotSearching(sent))
    }

    fn answer(&mut self, id: u64) -> Result<(), ProtocolError> {
        if !self.is_loaded() {
            return Err(ProtocolError::NotReady(id));
        }
        if self.is_calling {
            return Err(ProtocolError::Waits(id));
        }
        if self.unanswered.remove(id) {
            return Ok(());
        }
        Err(self.not_unanswered(id))
    }

    fn not_unanswered(&self, id: u64) -> ProtocolError {
        let is_repeated = self.calls.contains(id);
        if is_repeated { ProtocolError::AnsweredTwice(id) } else { ProtocolError::NotCalled(id) }
    }
}

fn check_state(bytes: usize) -> Result<(), ProtocolError> {
    if bytes > STATE_BYTES_MAX { Err(ProtocolError::State { bytes }) } else { Ok(()) }
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

    #[test]
    fn runtime_makes_one_call_at_a_time_within_its_calls() {
        const CALL: &str = r#"{"type":"call","routine":"pi@1","argument":[1]}"#;
        let mut exchange = loaded();
        let step = hear(&mut exchange, CALL);
        assert!(
            matches!(&step, Ok(Step::Calls { routine, argument }) if routine == "pi@1" && argument.get() == "[1]")
        );
        assert!(matches!(hear(&mut exchange, CALL), Err(ProtocolError::Call(_))), "it waits for the answer");
        let early = r#"{"type":"result","values":[[5,1]]}"#;
        assert!(matches!(hear(&mut exchange, early), Err(ProtocolError::Waits(5))));
        exchange.on_nested_answer();
        assert!(hear(&mut exchange, CALL).is_ok());
        let mut idle = loaded();
        assert!(hear(&mut idle, r#"{"type":"result","values":[[5,1],[6,1],[7,1]]}"#).is_ok());
        assert!(matches!(hear(&mut idle, CALL), Err(ProtocolError::Call(_))), "no call runs");
    }

    #[test]
    fn calls_send_states_while_they_run_and_stop_once() {
        const CHECKPOINT: &str = r#"{"type":"checkpoint","id":5}"#;
        const STOPPED: &str = r#"{"type":"stopped"}"#;
        let mut exchange = loaded();
        let step = hear_state(&mut exchange, CHECKPOINT, 3);
        assert!(matches!(step, Ok(Step::Checkpoint { id: 5, state }) if state.len() == 3));
        let large = hear_state(&mut exchange, CHECKPOINT, STATE_BYTES_MAX + 1);
        assert!(matches!(large, Err(ProtocolError::State { .. })));
        assert!(hear(&mut exchange, r#"{"type":"result","values":[[5,1]]}"#).is_ok());
        assert!(matches!(hear(&mut exchange, CHECKPOINT), Err(ProtocolError::AnsweredTwice(5))));
        let other = hear(&mut exchange, &CHECKPOINT.replace('5', "9"));
        assert!(matches!(other, Err(ProtocolError::NotCalled(9))));
        let Ok(Step::Stopped(calls)) = hear(&mut exchange, STOPPED) else { panic!("calls have run") };
        assert_eq!(calls, Ranges::from(6..8));
        assert!(matches!(hear(&mut exchange, STOPPED), Err(ProtocolError::Stopped)));
    }

    fn hear_state(exchange: &mut Exchange, json: &str, bytes: usize) -> Result<Step, ProtocolError> {
        let frame = Frame { json: json.to_owned(), bytes: vec![0; bytes] };
        exchange.on_message(FromRuntime::parse(&frame).unwrap())
    }

    const PAUSED: &str = r#"{"type":"paused","counts":{}}"#;
    const CHILD: &str = r#"{"type":"child","part":2,"counts":{}}"#;
    const OFFER: &str = r#"{"type":"offer","cost":1,"solution":null}"#;
    const COMPLETE: &str = r#"{"type":"result","counts":{}}"#;
    const FAILED: &str = r#"{"type":"error","kind":"user","message":"m"}"#;

    #[test]
    fn search_pauses_and_continues_until_it_is_complete() {
        let mut exchange = loaded();
        exchange.on_search();
        assert!(matches!(hear(&mut exchange, OFFER), Ok(Step::Offered(_))));
        let step = hear_state(&mut exchange, CHILD, 5);
        let Ok(Step::Paused { part: Some(part), rest, .. }) = step else { panic!("{step:?}") };
        assert_eq!((part.len(), rest.len(), exchange.search()), (2, 3, SearchStage::Paused));
        exchange.on_search();
        assert!(matches!(hear(&mut exchange, PAUSED), Ok(Step::Paused { part: None, .. })));
        // Another search replaces the paused one.
        exchange.on_search();
        assert!(matches!(hear(&mut exchange, COMPLETE), Ok(Step::Complete(_))));
        exchange.on_search();
        assert!(matches!(hear(&mut exchange, FAILED), Ok(Step::Failed(_))));
        assert_eq!(exchange.search(), SearchStage::Idle);
    }

    #[test]
    fn messages_of_search_that_does_not_run_are_refused() {
        for json in [OFFER, PAUSED, CHILD, COMPLETE] {
            let early = hear_state(&mut loaded(), json, 2);
            assert!(matches!(early, Err(ProtocolError::NotSearching(_))), "{json}");
            let mut paused = loaded();
            paused.on_search();
            assert!(hear(&mut paused, PAUSED).is_ok());
            let second = hear_state(&mut paused, json, 2);
            assert!(matches!(second, Err(ProtocolError::NotSearching(_))), "{json}");
        }
        let mut paused = loaded();
        paused.on_search();
        assert!(hear(&mut paused, PAUSED).is_ok());
        assert!(matches!(hear(&mut paused, FAILED), Err(ProtocolError::NoCall(_))));
    }

    #[test]
    fn state_beyond_limit_is_refused() {
        let mut exchange = loaded();
        exchange.on_search();
        assert!(hear_state(&mut exchange, CHILD, STATE_BYTES_MAX + 2).is_ok());
        exchange.on_search();
        let large = hear_state(&mut exchange, CHILD, STATE_BYTES_MAX + 3);
        assert!(matches!(large, Err(ProtocolError::State { bytes }) if bytes == STATE_BYTES_MAX + 1));
    }
}
