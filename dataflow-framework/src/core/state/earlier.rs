//! Versions and calls of earlier runs, before this run makes the calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    core::{mark::Mark, members::Member, version::Copies},
    ids::{CallId, VersionId},
};

/// A version that a member keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
}

/// The state of a call from earlier runs of the program, before this run makes it.
#[derive(Debug)]
pub(in crate::core) struct Earlier {
    pub(in crate::core) mark: Mark,
    /// The versions that it has written, by their slots.
    pub(in crate::core) copies: BTreeMap<u32, Copies>,
    pub(in crate::core) runs_on: Option<Member>,
}

/// A call that differs from the one of the same number in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) call: CallId,
    pub(crate) was: Mark,
    pub(crate) is: Mark,
}

/// The status of a new call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Made {
    /// One of its inputs has failed, or the call itself in an earlier run.
    Failed,
    /// It has completed in an earlier run, and does not run again.
    Over,
    /// It must run, or runs.
    Unfinished,
}
