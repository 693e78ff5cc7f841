//! Marks of versions: by them it is noticed that a program which was started again makes other calls than before.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::ids::{Argument, CallId};

/// What a version is besides its number: equal marks have been preceded by the same calls, and the same data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The hash of everything that the program has called and brought in, up to the call that writes the version.
    hash: u64,
    /// The number of that call's task in the table of the program; `None` for data that it has brought in.
    pub(crate) task: Option<u32>,
    /// The call of the program within which a task has made the call, or has brought the data in.
    pub(crate) root: Option<CallId>,
}

impl Mark {
    /// Returns the mark of what a call writes that comes next.
    pub(crate) fn then_call(self, id: CallId, task: u32, arguments: &[Argument], writes: u32) -> Self {
        self.then(Some(task), (id, arguments, writes))
    }

    /// Returns the mark of data that comes next, by the hash of its content.
    pub(crate) fn then_data(self, id: CallId, content: u64) -> Self {
        self.then(None, (id, content))
    }

    /// Returns the hash of all calls up to this one.
    pub(crate) fn hash(self) -> u64 {
        self.hash
    }

    /// Returns the mark with which the calls of a task begin that runs for this call, whose mark this is.
    pub(crate) fn of_calls_within(self, call: CallId) -> Self {
        Self { root: self.root.or(Some(call)), ..self }
    }

    /// Returns the number of a call of a program: the same in all its executions, and nowhere else.
    pub(super) fn token(self, key: u128, call: CallId) -> u128 {
        let half = |which: u8| {
            let mut hasher = DefaultHasher::new();
            (key, call, self.hash, which).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    fn then(self, task: Option<u32>, what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.hash, task).hash(&mut hasher);
        what.hash(&mut hasher);
        Self { hash: hasher.finish(), task, root: self.root }
    }
}
