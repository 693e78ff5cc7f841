//! The end of the output of a runtime.

use std::{
    collections::VecDeque,
    io::{ErrorKind, PipeReader, Read as _},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskwork_child::shown;

/// The maximum part of the log of a runtime that is kept, in bytes.
const LOG_BYTES_MAX: usize = 64 << 10;

/// The end of the output of a runtime.
#[derive(Debug, Default)]
pub(super) struct Log {
    state: Mutex<(VecDeque<u8>, bool)>,
    ended: Condvar,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, (VecDeque<u8>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fill(&self, mut from: PipeReader) {
        let mut part = [0; 4 << 10];
        loop {
            match from.read(&mut part) {
                Ok(0) => break,
                Ok(bytes) => {
                    let mut state = self.state();
                    state.0.extend(&part[..bytes]);
                    let surplus = state.0.len().saturating_sub(LOG_BYTES_MAX);
                    state.0.drain(..surplus);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.state().1 = true;
        self.ended.notify_all();
    }

    /// Waits for the end of the log at most so long, and formats its last lines.
    pub(super) fn shown(&self, wait: Duration) -> String {
        let waited = self.ended.wait_timeout_while(self.state(), wait, |(_, has_ended)| !*has_ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        shown(state.0.make_contiguous())
    }
}
