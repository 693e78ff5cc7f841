//! The cancelled calls that members still run. They have ended for the program, but take their places until the members
//! return them, or complete them nevertheless.

use std::collections::BTreeMap;

use super::members::{Claim, Member};
use crate::ids::CallId;

/// The cancelled calls that members still run.
#[derive(Debug, Default)]
pub(super) struct Stopping(BTreeMap<CallId, Stopped>);

/// A cancelled call that a member still runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopped {
    pub(super) member: Member,
    /// Its share of the member.
    pub(super) claim: Claim,
    /// The number of its failures.
    pub(super) tries: u32,
}

impl Stopping {
    pub(super) fn add(&mut self, call: CallId, stopped: Stopped) {
        self.0.insert(call, stopped);
    }

    pub(super) fn get(&self, call: CallId) -> Option<Stopped> {
        self.0.get(&call).copied()
    }

    /// Removes a call, if it is cancelled and this member still runs it. Returns its share of the member.
    pub(super) fn remove(&mut self, call: CallId, member: Member) -> Option<Claim> {
        let stopped = self.get(call).filter(|stopped| stopped.member == member)?;
        self.0.remove(&call);
        Some(stopped.claim)
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        self.0.retain(|_, stopped| stopped.member != member);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
