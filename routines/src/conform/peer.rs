//! The runtime of one case.

use std::{
    collections::VecDeque,
    fmt::Display,
    time::{Duration, Instant},
};

use serde_json::{Value, value::RawValue};

use super::Suite;
use crate::{
    package::RuntimeKind,
    runtime::{Event, Request, Runtime},
    wire::{CallError, EntryKind, ErrorKind, Frame, Step},
};

/// The maximum time of each step of a case.
pub(super) const STEP_MAX: Duration = Duration::from_secs(20);

/// The maximum time of a wait for messages.
const LOOK: Duration = Duration::from_millis(2);

/// The reason for which a case fails.
pub(super) struct Reason(pub(super) String);

pub(super) type Checked = Result<(), Reason>;

impl<T: Display> From<T> for Reason {
    fn from(reason: T) -> Self {
        Self(reason.to_string())
    }
}

/// The runtime of one case, and the messages that the case has not read.
pub(super) struct Peer {
    pub(super) runtime: Runtime,
    steps: VecDeque<Step>,
    /// The reason for which there are no more messages.
    end: Option<String>,
}

/// The answer to a call.
pub(super) type Answer = Result<Value, CallError>;

impl Peer {
    /// Starts a runtime that was sent nothing.
    pub(super) fn open(suite: &Suite) -> Result<Self, Reason> {
        suite.host.starter.open(&suite.folder, "", RuntimeKind::Program).map(Self::of).map_err(Reason::from)
    }

    pub(super) fn of(runtime: Runtime) -> Self {
        Self { runtime, steps: VecDeque::new(), end: None }
    }

    /// Starts a runtime that is loading a routine.
    pub(super) fn start(suite: &Suite, entry: &str, kind: EntryKind) -> Result<Self, Reason> {
        let started = suite.host.starter.start(&suite.folder, entry, kind, RuntimeKind::Program);
        started.map(Self::of).map_err(Reason::from)
    }

    /// Starts a runtime with a loaded function.
    pub(super) fn loaded(suite: &Suite, entry: &str) -> Result<Self, Reason> {
        let mut peer = Self::start(suite, &format!("conform:{entry}"), EntryKind::Function)?;
        peer.load().map(|()| peer)
    }

    /// Starts a runtime with a loaded search.
    pub(super) fn search(suite: &Suite) -> Result<Self, Reason> {
        let mut peer = Self::start(suite, "conform:Count", EntryKind::Search)?;
        peer.load().map(|()| peer)
    }

    pub(super) fn load(&mut self) -> Checked {
        match self.next()? {
            Step::Loaded => Ok(()),
            other => Err(format!("expected `ready`, not {other:?}").into()),
        }
    }

    pub(super) fn send(&mut self, json: &str) -> Checked {
        self.runtime.send(&Frame::of_json(json.to_owned())).map_err(Reason::from)
    }

    /// Makes a call, and returns its answer.
    pub(super) fn call(&mut self, argument: &str) -> Result<Answer, Reason> {
        self.many(&[argument]).map(|mut answers| answers.remove(0).1)
    }

    /// Makes calls in one frame, and returns their answers in the order of arrival.
    pub(super) fn many(&mut self, arguments: &[&str]) -> Result<Vec<(u64, Answer)>, Reason> {
        let mut calls = Vec::new();
        for (argument, id) in arguments.iter().zip(0..) {
            calls.push((id, RawValue::from_string((*argument).to_owned())?));
        }
        self.runtime.call(&calls, None, 0)?;
        self.answers(arguments.len())
    }

    pub(super) fn answers(&mut self, count: usize) -> Result<Vec<(u64, Answer)>, Reason> {
        let mut answers = Vec::new();
        while answers.len() < count {
            let Step::Answered(new) = self.next()? else { return Err("expected an answer".into()) };
            for (id, answer) in new {
                answers.push((
                    id,
                    match answer {
                        Ok(value) => Ok(serde_json::from_str(value.get())?),
                        Err(error) => Err(error),
                    },
                ));
            }
        }
        Ok(answers)
    }

    /// Expects the answer 7.
    pub(super) fn check_seven(&mut self) -> Checked {
        match self.answers(1)?.remove(0).1 {
            Ok(value) if value == 7 => Ok(()),
            other => Err(format!("expected 7, not {other:?}").into()),
        }
    }

    /// Returns the next message. While there is none, repeats a request to the search.
    pub(super) fn next_asked(&mut self, request: Option<Request>) -> Result<Step, Reason> {
        let deadline = Instant::now() + STEP_MAX;
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Ok(step);
            }
            if let Some(end) = &self.end {
                return Err(end.into());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "it sends nothing within {} s{}",
                    STEP_MAX.as_secs(),
                    self.runtime.log()
                )
                .into());
            }
            if request.is_some() {
                self.runtime.request(request);
            }
            self.read();
        }
    }

    /// Reads messages.
    pub(super) fn read(&mut self) {
        for event in self.runtime.poll(LOOK) {
            match event {
                Event::Step(step) => self.steps.push_back(step),
                Event::Broken(reason) | Event::Memory(reason) => self.end = Some(reason),
            }
        }
    }

    pub(super) fn next(&mut self) -> Result<Step, Reason> {
        self.next_asked(None)
    }

    /// Continues the paused search.
    pub(super) fn go(&mut self) -> Checked {
        self.runtime.go().map_err(Reason::from)
    }

    /// Waits until the runtime has exited, and returns the description of its end.
    pub(super) fn ends(&mut self) -> Result<String, Reason> {
        match self.next() {
            Ok(step) => Err(format!("expected its exit, not {step:?}").into()),
            Err(Reason(end)) if end.starts_with("the runtime has exited") => Ok(end),
            Err(reason) => Err(reason),
        }
    }
}

/// Checks that a call has failed with this kind, and that its message or trace has a text.
pub(super) fn check_error(answer: Answer, kind: ErrorKind, part: &str) -> Checked {
    match answer {
        Err(error) if error.kind == kind && format!("{}{}", error.message, error.trace).contains(part) => {
            Ok(())
        }
        other => Err(format!("expected an error of the kind {kind:?} with {part:?}, not {other:?}").into()),
    }
}
