//! The messages of a runtime that the task has not read.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    store::Outcome,
    wire::{FromRuntime, read_frame},
};

/// The maximum numbers of unread messages and of their bytes; the reader waits beyond either.
const INBOX_MESSAGES_MAX: usize = 256;
const INBOX_BYTES_MAX: usize = 64 << 20;

/// The messages of a runtime that the task has not read.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<Unread>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Unread {
    messages: VecDeque<(FromRuntime, usize)>,
    bytes: usize,
    /// The answer to the nested call of the runtime.
    answer: Option<Outcome>,
    /// The reason for which no more messages follow.
    end: Option<String>,
    /// The runtime is dropped, so messages are not read.
    is_closed: bool,
}

impl Unread {
    fn is_full(&self) -> bool {
        self.messages.len() >= INBOX_MESSAGES_MAX || self.bytes >= INBOX_BYTES_MAX
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, Unread> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads frames until the stream ends, or one is not a message.
    pub(super) fn fill(&self, output: File) {
        let mut output = io::BufReader::with_capacity(64 << 10, output);
        let end = loop {
            match read_frame(&mut output) {
                Ok(None) => break "the stream of the runtime has ended".to_owned(),
                Ok(Some(frame)) => match FromRuntime::parse(&frame) {
                    Ok(message) => {
                        if !self.put(message, frame.json.len() + frame.bytes.len()) {
                            return;
                        }
                    }
                    Err(error) => break format!("the runtime has sent a wrong message: {error}"),
                },
                Err(error) => break format!("the runtime has sent a broken frame: {error}"),
            }
        };
        self.state().end = Some(end);
        self.changed.notify_all();
    }

    /// Adds a message. Returns whether the runtime is still in use.
    fn put(&self, message: FromRuntime, bytes: usize) -> bool {
        let waits = |unread: &mut Unread| unread.is_full() && !unread.is_closed;
        let unread = self.changed.wait_while(self.state(), waits);
        let mut unread = unread.unwrap_or_else(PoisonError::into_inner);
        unread.messages.push_back((message, bytes));
        unread.bytes += bytes;
        let is_used = !unread.is_closed;
        drop(unread);
        self.changed.notify_all();
        is_used
    }

    /// Waits for a message, an answer or the end, and returns all messages, and the answer to a nested call.
    pub(super) fn take(&self, wait: Duration) -> (Vec<FromRuntime>, Option<Outcome>, Option<String>) {
        let is_silent = |unread: &mut Unread| {
            unread.messages.is_empty() && unread.answer.is_none() && unread.end.is_none()
        };
        let waited = self.changed.wait_timeout_while(self.state(), wait, is_silent);
        let (mut unread, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let was_full = unread.is_full();
        unread.bytes = 0;
        let messages = unread.messages.drain(..).map(|(message, _)| message).collect();
        let (answer, end) = (unread.answer.take(), unread.end.clone());
        drop(unread);
        if was_full {
            self.changed.notify_all();
        }
        (messages, answer, end)
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Adds the answer to the nested call of the runtime.
    pub(super) fn answer(&self, outcome: Outcome) {
        self.state().answer = Some(outcome);
        self.changed.notify_all();
    }
}
