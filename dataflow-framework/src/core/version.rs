//! Versions of data: each is written once, by one call.

use super::{mark::Mark, members::Member};
use crate::{
    failure::Failure,
    ids::{CallId, VersionId},
};

/// The maximum size of a version that is kept because the program has read it, in bytes.
const KEPT_BYTES_EACH_MAX: u64 = 1 << 20;

/// What is known of a version.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) state: State,
    /// The number of handles of the program.
    pub(super) handles: u32,
    /// The unfinished calls that read it. One that reads it twice is in it twice.
    pub(super) readers: Vec<CallId>,
    /// The number of calls that read it and are known, finished or not, each counted as often as it does: what is
    /// needed to make again what they have written.
    pub(super) dependants: u32,
    /// Whether the program waits for it.
    pub(super) is_wanted: bool,
    /// Whether the program has read it.
    pub(super) was_read: bool,
    pub(super) mark: Mark,
    /// The number of calls of the longest chain that ends with the one that writes it; 0 for data that the program
    /// has brought in.
    pub(super) depth: u64,
}

/// Whether a version can be read.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// Its call has not ended, or is to run again.
    Awaited,
    Present(Copies),
    /// It was there, and is not any more, because nobody needed it or the members were lost that had it. If somebody
    /// needs it, its call runs again.
    Gone,
    /// It will never be there, because a call has failed: its own, or one on which that depends.
    Failed(Failure),
}

/// A version, and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) members: Vec<Member>,
}

/// Where a version is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copies {
    /// The members that have it; at least one.
    pub(super) members: Vec<Member>,
    /// Its size, as far as that is known.
    pub(super) bytes: u64,
}

impl Copies {
    /// Adds a member that has it.
    pub(super) fn add(&mut self, member: Member) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }
}

impl Version {
    /// Creates a version of which the program has one handle.
    pub(super) fn new(state: State, mark: Mark, depth: u64) -> Self {
        Self {
            state,
            handles: 1,
            readers: Vec::new(),
            dependants: 0,
            is_wanted: false,
            was_read: false,
            mark,
            depth,
        }
    }

    /// Returns whether it should be kept for the case that the program begins anew.
    pub(super) fn is_to_be_kept(&self) -> bool {
        self.was_read && matches!(&self.state, State::Present(copies) if copies.bytes <= KEPT_BYTES_EACH_MAX)
    }

    /// Returns whether somebody will read it who is known now.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_wanted || !self.readers.is_empty()
    }

    /// Returns whether anybody can still read it.
    pub(super) fn is_needed(&self) -> bool {
        self.handles > 0 || self.is_awaited()
    }

    /// Returns its size, as far as that is known.
    pub(super) fn bytes(&self) -> u64 {
        if let State::Present(copies) = &self.state { copies.bytes } else { 0 }
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::Present(_))
    }

    /// Returns whether a member has it.
    pub(super) fn is_with(&self, member: Member) -> bool {
        matches!(&self.state, State::Present(copies) if copies.members.contains(&member))
    }
}
