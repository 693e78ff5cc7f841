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

/// What is known of a call from earlier runs of the program, before it is made in this one.
#[derive(Debug)]
pub(in crate::core) struct Earlier {
    pub(in crate::core) mark: Mark,
    /// The versions that it has written, by their slots.
    pub(in crate::core) copies: BTreeMap<u32, Copies>,
    /// The member that runs it.
    pub(in crate::core) runs_on: Option<Member>,
}

/// A call that differs from the one of the same number in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) call: CallId,
    pub(crate) was: Mark,
    pub(crate) is: Mark,
}

/// How a call stands that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Made {
    /// Something on which it depends has failed, or it has itself in an earlier run.
    Failed,
    /// It has ended in an earlier run, and is not run again.
    Over,
    /// It is to run, or runs.
    Unfinished,
}
