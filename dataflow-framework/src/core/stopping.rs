//! The cancelled calls that members still run. They have ended for the program, but take their places until the members
//! return them, or complete them nevertheless.

use std::collections::BTreeMap;

use super::members::{Claim, Member};
use crate::ids::CallId;

/// The cancelled calls that members still run.
#[derive(Debug, Default)]
pub(super) struct Stopping(BTreeMap<CallId, (Member, Claim)>);

impl Stopping {
    pub(super) fn add(&mut self, call: CallId, member: Member, claim: Claim) {
        self.0.insert(call, (member, claim));
    }

    /// Returns the member that still runs a cancelled call.
    pub(super) fn member(&self, call: CallId) -> Option<Member> {
        self.0.get(&call).map(|(member, _)| *member)
    }

    /// Removes a call, if it is cancelled and this member still runs it. Returns its share of the member.
    pub(super) fn remove(&mut self, call: CallId, member: Member) -> Option<Claim> {
        self.member(call).filter(|on| *on == member)?;
        self.0.remove(&call).map(|(_, claim)| claim)
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        self.0.retain(|_, (on, _)| *on != member);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
