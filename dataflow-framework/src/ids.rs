//! Identifiers of calls, versions of data and executions.

use serde::{Deserialize, Serialize};

use crate::encoding::stable_hash;

/// A call, by its number: calls are numbered from 0 in the order in which the program makes them. Data created
/// by the program has a number of the same kind; nested calls have [others](super::ids).
pub(crate) type CallId = u64;

/// One immutable value. A task that updates data writes its next version, so that it need not wait for readers
/// of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct VersionId {
    /// The call that writes it.
    pub(crate) call: CallId,
    /// The index among the versions of the call: first the updated ones, then the results.
    pub(crate) slot: u32,
}

/// The bit that is set in the numbers of nested calls, and of no other call.
pub(crate) const NESTED_BIT: CallId = 1 << 63;

/// An execution of the task of a call, with a number that is unique on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) call: CallId,
    pub(crate) number: u64,
}

/// The number of data that is created, or of a call that is made, by the task of a call.
pub(crate) fn number_within(parent: CallId, tries: u32, position: u64) -> CallId {
    nested_number(stable_hash(&(parent, tries, position)))
}

/// The number under which the task of a call waits for a value, the `count`th time in an execution.
pub(super) fn number_of_get(execution: Execution, count: u64) -> CallId {
    nested_number(stable_hash(&("get", execution, count)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "63 bits of a hash are enough to number the calls of a program"
)]
fn nested_number(hash: u128) -> CallId {
    hash as u64 | NESTED_BIT
}

/// The argument of a call for one parameter of its task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Argument {
    /// A value that was copied into the call, encoded.
    Copied(Vec<u8>),
    Read(VersionId),
    ReadAll(Vec<VersionId>),
    /// Read; the call writes the next version.
    Update(VersionId),
}

impl Argument {
    /// Returns the versions that it reads.
    pub(crate) fn versions(&self) -> &[VersionId] {
        match self {
            Self::Copied(_) => &[],
            Self::Read(version) | Self::Update(version) => std::slice::from_ref(version),
            Self::ReadAll(versions) => versions,
        }
    }
}
