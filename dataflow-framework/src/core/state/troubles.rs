//! Calls that could not run on some members because of a fault of the member.

use std::collections::BTreeMap;

use crate::{core::members::Member, ids::CallId};

/// The calls that could not run on some members.
#[derive(Debug, Default)]
pub(in crate::core) struct Troubles(pub(in crate::core) BTreeMap<CallId, Troubled>);

#[derive(Debug, Default)]
pub(in crate::core) struct Troubled {
    /// The members on which it could not run.
    pub(in crate::core) shunned: Vec<Member>,
    /// The number of its attempts that failed because of a damaged or missing input.
    pub(in crate::core) damages: u32,
}

impl Troubles {
    /// Removes a call that has ended.
    pub(in crate::core) fn remove(&mut self, call: CallId) {
        if !self.0.is_empty() {
            self.0.remove(&call);
        }
    }

    /// Returns the members on which a call could not run.
    pub(in crate::core) fn shunned(&self, call: CallId) -> &[Member] {
        self.0.get(&call).map_or(&[], |troubled| &troubled.shunned)
    }
}
