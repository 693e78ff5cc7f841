//! Versions of data: each is written once, by one call.

use super::{mark::Mark, members::Member};
use crate::{
    failure::Failure,
    ids::{CallId, VersionId},
};

/// The maximum size of a version that is kept because the program has read it, in bytes.
const KEPT_BYTES_EACH_MAX: u64 = 1 << 20;

/// The state of a version.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) state: State,
    /// The number of handles of the program.
    pub(super) handles: u32,
    /// The unfinished calls that read it, once for each argument.
    pub(super) readers: Vec<CallId>,
    /// The number of known calls that read it, finished or not, once for each argument: those that need it to
    /// recompute their output.
    pub(super) dependants: u32,
    /// Whether the program waits for it.
    pub(super) is_wanted: bool,
    /// Whether the program has read it.
    pub(super) was_read: bool,
    pub(super) mark: Mark,
    /// The length of the longest chain of calls that ends with the one that writes it; 0 for data created by
    /// the program.
    pub(super) depth: u64,
}

/// Whether a version can be read.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// Its call has not completed, or must run again.
    Awaited,
    Present(Copies),
    /// It was available, and was dropped because it was not needed, or lost with its members. If it is needed,
    /// its call runs again.
    Gone,
    /// It will never be available, because its call, or one that it depends on, has failed.
    Failed(Failure),
}

/// A version and its owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copies {
    /// Its owners; at least one.
    pub(super) members: Vec<Member>,
    /// Its size, as far as it is known.
    pub(super) bytes: u64,
}

impl Copies {
    pub(super) fn add(&mut self, member: Member) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }
}

impl Version {
    /// Creates a version with one handle of the program.
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

    /// Returns whether to keep it in case the program restarts.
    pub(super) fn is_to_be_kept(&self) -> bool {
        self.was_read && matches!(&self.state, State::Present(copies) if copies.bytes <= KEPT_BYTES_EACH_MAX)
    }

    /// Returns whether it has a known future reader.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_wanted || !self.readers.is_empty()
    }

    /// Returns whether it can still be read.
    pub(super) fn is_needed(&self) -> bool {
        self.handles > 0 || self.is_awaited()
    }

    pub(super) fn bytes(&self) -> u64 {
        if let State::Present(copies) = &self.state { copies.bytes } else { 0 }
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::Present(_))
    }

    pub(super) fn is_with(&self, member: Member) -> bool {
        matches!(&self.state, State::Present(copies) if copies.members.contains(&member))
    }

    /// Returns the version with its owners, if it is available.
    pub(super) fn source(&self, id: VersionId) -> Option<Source> {
        let State::Present(copies) = &self.state else { return None };
        Some(Source { version: id, mark: self.mark, members: copies.members.clone() })
    }

    /// Removes the copy on a member. If it was the last one, the version is gone. Returns whether that is so.
    pub(super) fn remove_copy(&mut self, member: Member) -> bool {
        if let State::Present(copies) = &mut self.state {
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                self.state = State::Gone;
            }
        }
        matches!(self.state, State::Gone)
    }

    /// Adds a call that reads it, and waits for it if it is a `reader`.
    pub(super) fn add_dependant(&mut self, reader: Option<CallId>) {
        self.dependants += 1;
        self.readers.extend(reader);
    }

    pub(super) fn remove_dependant(&mut self, reader: Option<CallId>) {
        self.dependants -= 1;
        if let Some(reader) = reader {
            self.remove_reader(reader);
        }
    }

    /// Removes one reader. Returns whether it was there.
    pub(super) fn remove_reader(&mut self, reader: CallId) -> bool {
        let position = self.readers.iter().position(|other| *other == reader);
        position.map(|position| self.readers.remove(position)).is_some()
    }
}
