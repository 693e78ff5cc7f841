//! What stands in the journal of a program: facts that stay as they are when the program begins anew, whatever is lost.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{history::History, mark::Mark};
use crate::ids::{CallId, VersionId};

/// What has happened once, and has no other outcome from then on. Facts may be told several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// A call has ended that is not run a second time.
    Ended(Ended),
    /// The failure of a call was ignored: it has written defaults.
    Ignored(CallId),
    /// A call has failed for good.
    Failed { call: CallId, reason: String },
    /// The program has decided something.
    Decided(Decision),
    /// Which calls had ended when the last node has left.
    History(History),
    /// A version that was needed when the last node has left.
    Kept { version: VersionId, mark: Mark, value: Vec<u8> },
    /// Which parts a call of a reduction in any order merges, by their places in the list.
    Merged { call: CallId, parts: [u64; 2] },
    /// With which other call of its chain one that commutes has exchanged what it does.
    Commuted { call: CallId, with: CallId },
    /// Calls were cancelled, since one of their group has failed.
    Cancelled(Vec<Range<CallId>>),
}

/// The end of a call that is not run a second time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) call: CallId,
    pub(crate) mark: Mark,
    /// The execution that counts, of perhaps several.
    pub(crate) by: u64,
    /// What it has written, encoded; `None` if that is too large, and is only with nodes.
    pub(crate) values: Option<Vec<Vec<u8>>>,
}

/// Something on which the program depends, and that would be something else the next time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// How many there were before.
    pub(crate) number: u64,
    /// The number that the next call would have had.
    pub(crate) at: CallId,
    /// What was asked for.
    pub(crate) what: String,
    pub(crate) choice: Choice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// An encoded value.
    Value(Vec<u8>),
    /// The calls that were cancelled.
    Cancelled(Vec<Range<CallId>>),
}

impl Fact {
    /// Returns the size of what it consists of, in bytes; small numbers are not counted.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Ended(Ended { values, .. }) => values.iter().flatten().map(Vec::len).sum(),
            Self::Ignored(_) | Self::Merged { .. } | Self::Commuted { .. } => 0,
            Self::Failed { reason, .. } => reason.len(),
            Self::Decided(Decision { what, choice, .. }) => {
                what.len()
                    + match choice {
                        Choice::Value(value) => value.len(),
                        Choice::Cancelled(calls) => size_of_val(&calls[..]),
                    }
            }
            Self::Cancelled(calls) => size_of_val(&calls[..]),
            Self::History(history) => history.bytes(),
            Self::Kept { value, .. } => value.len(),
        }
    }

    /// Returns the calls whose ends are told.
    pub(crate) fn calls(&self) -> Vec<CallId> {
        match self {
            Self::Ended(Ended { call, .. }) | Self::Ignored(call) | Self::Failed { call, .. } => vec![*call],
            Self::Decided(Decision { choice: Choice::Cancelled(calls), .. }) | Self::Cancelled(calls) => {
                calls.iter().cloned().flatten().collect()
            }
            Self::Decided(_)
            | Self::History(_)
            | Self::Kept { .. }
            | Self::Merged { .. }
            | Self::Commuted { .. } => Vec::new(),
        }
    }
}
