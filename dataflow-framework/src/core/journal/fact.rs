//! The journal of a program: facts that survive a restart of the program, whatever is lost.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{super::mark::Mark, history::History};
use crate::{
    failure::Reason,
    ids::{CallId, VersionId},
};

/// A permanent outcome. A fact may be reported several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// A call has completed that does not run again.
    Ended(Ended),
    /// The failure of a call was ignored: it has written defaults.
    Ignored(CallId),
    /// A call has failed permanently.
    Failed { call: CallId, reason: Reason },
    /// The program has made a decision.
    Decided(Decision),
    /// The calls that had completed when the last node left.
    History(History),
    /// A version that was needed when the last node left.
    Kept { version: VersionId, mark: Mark, value: Vec<u8> },
    /// The parts that a call of a reduction in any order merges, by their positions in the list.
    Merged { call: CallId, parts: [u64; 2] },
    /// The other call of the chain with which a commuting call has exchanged its work.
    Commuted { call: CallId, with: CallId },
    /// A call, made within `root` or itself a call of the program, has failed this number of times, and pauses until
    /// this time, in microseconds since 1970.
    Paused { root: CallId, call: CallId, failures: u32, until_us: u64 },
    /// Calls were cancelled, since another call of their group has failed.
    Cancelled(Vec<Range<CallId>>),
}

/// The completion of a call that does not run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) call: CallId,
    pub(crate) mark: Mark,
    /// The execution that counts, if there are several.
    pub(crate) by: u64,
    /// The encoded output; `None` if it is too large, and is only with nodes.
    pub(crate) values: Option<Vec<Vec<u8>>>,
}

/// An input of the program that may differ in the next run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// The number of earlier decisions.
    pub(crate) number: u64,
    /// The number of the next call at that time.
    pub(crate) at: CallId,
    /// The name of the question.
    pub(crate) what: String,
    pub(crate) choice: Choice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// An encoded value.
    Value(Vec<u8>),
    Cancelled(Vec<Range<CallId>>),
}

impl Fact {
    /// Returns the size of the content in bytes, without small numbers.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Ended(Ended { values, .. }) => values.iter().flatten().map(Vec::len).sum(),
            Self::Ignored(_) | Self::Merged { .. } | Self::Commuted { .. } | Self::Paused { .. } => 0,
            Self::Failed { reason, .. } => reason.text.len(),
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

    /// Returns the calls whose ends the fact records.
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
            | Self::Paused { .. }
            | Self::Commuted { .. } => Vec::new(),
        }
    }
}
