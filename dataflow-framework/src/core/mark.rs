//! Marks of versions, by which a restarted program that makes other calls than before is detected.

use serde::{Deserialize, Serialize};

use crate::{
    encoding::stable_hash,
    ids::{Argument, CallId},
};

/// The identity of a version in addition to its number: versions with equal marks follow the same calls and the same
/// data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The hash of all calls and data of the program, up to the call that writes the version.
    hash: u128,
    /// The number of that call's task in the table of the program; `None` for data created by the program.
    pub(crate) task: Option<u32>,
    /// The call of the program within which a task has made the call, or has created the data.
    pub(crate) root: Option<CallId>,
}

impl Mark {
    /// Returns the mark of the output of the next call.
    pub(crate) fn then_call(self, id: CallId, task: u32, arguments: &[Argument], writes: u32) -> Self {
        self.then(Some(task), (id, arguments, writes))
    }

    /// Returns the mark of the next data, from the hash of its content.
    pub(crate) fn then_data(self, id: CallId, content: u128) -> Self {
        self.then(None, (id, content))
    }

    /// Returns the hash of all calls up to this one.
    pub(crate) fn hash(self) -> u128 {
        self.hash
    }

    /// Returns the initial mark for the nested calls of this call, whose mark this is.
    pub(crate) fn of_calls_within(self, call: CallId) -> Self {
        Self { root: self.root.or(Some(call)), ..self }
    }

    /// Returns the token of a call of a program: the same in all its executions, and globally unique.
    pub(super) fn token(self, key: u128, call: CallId) -> u128 {
        stable_hash(&(key, call, self.hash))
    }

    fn then(self, task: Option<u32>, what: impl Serialize) -> Self {
        Self { hash: stable_hash(&(self.hash, task, what)), task, root: self.root }
    }
}
