//! Calls that routines make.
//!
//! A runtime that has made a call waits for its answer, so the call runs on the same node in the slot of its caller: no
//! node waits for another one, and no depth needs more than one worker.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{inbox::Inbox, threads::spawn_call};
use crate::{
    call::call_nested,
    store::Outcome,
    wire::{CallError, ErrorKind},
};

/// The maximum depth of nested calls; the outermost call has depth 0.
const DEPTH_MAX: u32 = 16;

/// A call that a running routine makes.
#[derive(Debug)]
pub(crate) struct NestedCall {
    /// `NAME@VERSION`, or a digest.
    pub(crate) routine: String,
    pub(crate) argument: Box<RawValue>,
    pub(crate) depth: u32,
    pub(super) caller: Arc<Inbox>,
}

impl NestedCall {
    /// Returns whether the runtime that waits for the answer is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.caller.is_closed()
    }

    /// Makes the call on a thread of its own, and answers it.
    pub(super) fn start(self) {
        let caller = Arc::clone(&self.caller);
        if self.depth > DEPTH_MAX {
            let reason =
                format!("calls are nested more than {DEPTH_MAX} deep: {} is not called", self.routine);
            return caller.answer(Outcome::Error(CallError::new(ErrorKind::Invalid, reason)));
        }
        if let Err(error) = spawn_call(move || self.caller.answer(call_nested(&self))) {
            let reason = format!("the call cannot be started: {error}");
            caller.answer(Outcome::Error(CallError::new(ErrorKind::Crash, reason)));
        }
    }
}
