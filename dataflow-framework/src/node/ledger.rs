//! The accounting of a store's memory, and the decisions on making room. This module is pure: the store carries out
//! the decisions.
//!
//! Above 4/5 of the limit the coordinator is asked which copies of this node exist on other nodes, too, so that they
//! can be dropped. Above the limit versions are moved to files, the least recently used first. Versions that are in
//! use by calls stay and count, so these alone may exceed the limit.

use std::collections::{BTreeMap, HashMap};

use crate::ids::VersionId;

/// The accounting of a store's memory.
#[derive(Debug)]
pub(super) struct Ledger {
    /// In bytes.
    limit: u64,
    pub(super) versions: HashMap<VersionId, Known>,
    /// The versions in memory that are not in use, by their last use.
    pub(super) idle: BTreeMap<u64, VersionId>,
    /// The idle versions whose encoded form is in memory, too, so that they take twice their size.
    pub(super) twice: BTreeMap<u64, VersionId>,
    /// The number of uses so far.
    now: u64,
    /// The bytes in memory, including those being written to files and those held by calls alone.
    used: u64,
    /// The bytes that are being moved from memory to files.
    pub(super) leaving: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    bytes: u64,
    pub(super) place: Place,
    /// The time of its last use.
    used_at: u64,
    /// The number of calls that use it in memory.
    users: u32,
    /// Whether its encoded form is in memory, too.
    is_twice: bool,
    /// Whether it was fetched for a call, and the coordinator was not yet asked whether other nodes have it.
    is_copy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    /// Being written to a file.
    Leaves,
    File,
}

/// The place and size of a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) bytes: u64,
    pub(super) is_in_memory: bool,
    /// Whether it was fetched for a call.
    pub(super) is_copy: bool,
}

/// A measure that frees memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Relief {
    /// Drop the encoded form of the version.
    ForgetEncoded(VersionId),
    /// Move the version to a file, and then call [`Ledger::has_left`].
    Spill(VersionId),
}

/// The way in which a call uses a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The store has it, too.
    Shared(VersionId),
    /// The call holds this many bytes alone: it has taken the version, or reads it from its file and leaves it there.
    Alone(u64),
}

impl Ledger {
    /// Creates an empty ledger with this limit, in bytes.
    pub(super) fn new(limit: u64) -> Self {
        let (versions, idle, twice) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { limit, versions, idle, twice, now: 0, used: 0, leaving: 0 }
    }

    /// Sets the limit, in bytes.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the size of a version, in bytes.
    pub(super) fn bytes(&self, version: VersionId) -> u64 {
        self.versions.get(&version).map_or(0, |known| known.bytes)
    }

    /// Adds a version, and replaces an existing one with the same id.
    pub(super) fn put(&mut self, version: VersionId, Arrival { bytes, is_in_memory, is_copy }: Arrival) {
        // If it is in use, it is the same version.
        if self.versions.get(&version).is_some_and(|known| known.users > 0) {
            return;
        }
        self.remove(version);
        self.now += 1;
        let place = if is_in_memory { Place::Memory } else { Place::File };
        let known = Known { bytes, place, used_at: self.now, users: 0, is_twice: false, is_copy };
        self.versions.insert(version, known);
        if is_in_memory {
            self.used += bytes;
            self.idle.insert(self.now, version);
        }
    }

    pub(super) fn remove(&mut self, version: VersionId) {
        let Some(known) = self.versions.remove(&version) else { return };
        self.idle.remove(&known.used_at);
        self.twice.remove(&known.used_at);
        match known.place {
            Place::Memory => self.used -= known.in_memory(),
            Place::Leaves => {
                self.used -= known.in_memory();
                self.leaving -= known.bytes;
            }
            Place::File => {}
        }
    }

    /// Records that the encoded form of a version is kept, too.
    pub(super) fn on_encoded(&mut self, version: VersionId) {
        let Some(known) = self.versions.get_mut(&version) else { return };
        if known.place == Place::Memory && !known.is_twice {
            known.is_twice = true;
            self.used += known.bytes;
            if known.users == 0 {
                self.twice.insert(known.used_at, version);
            }
        }
    }

    /// Starts a use of a version by a call. A version in a file is loaded into memory if there is room.
    pub(super) fn begin(&mut self, version: VersionId) -> Use {
        self.now += 1;
        let (now, room) = (self.now, self.limit.saturating_sub(self.used));
        let Some(known) = self.versions.get_mut(&version) else { return Use::Alone(0) };
        self.idle.remove(&known.used_at);
        self.twice.remove(&known.used_at);
        known.used_at = now;
        match known.place {
            Place::Memory => {}
            // It is in use before its file is complete, so it stays in memory.
            Place::Leaves => {
                known.place = Place::Memory;
                self.leaving -= known.bytes;
            }
            Place::File if known.bytes <= room => {
                known.place = Place::Memory;
                self.used += known.bytes;
            }
            Place::File => {
                self.used += known.bytes;
                return Use::Alone(known.bytes);
            }
        }
        known.users += 1;
        Use::Shared(version)
    }

    /// Removes a version from the store for a call that changes it in place.
    pub(super) fn take(&mut self, version: VersionId) -> Use {
        let bytes = self.bytes(version);
        self.remove(version);
        self.used += bytes;
        Use::Alone(bytes)
    }

    pub(super) fn end(&mut self, used: Use) {
        match used {
            Use::Alone(bytes) => self.used -= bytes,
            Use::Shared(version) => {
                // It may have been removed or replaced since then.
                let Some(known) = self.versions.get_mut(&version).filter(|known| known.users > 0) else {
                    return;
                };
                known.users -= 1;
                if known.users == 0 {
                    self.idle.insert(known.used_at, version);
                    if known.is_twice {
                        self.twice.insert(known.used_at, version);
                    }
                }
            }
        }
    }

    /// Returns the next measure, if the limit is exceeded.
    pub(super) fn relief(&mut self) -> Option<Relief> {
        if self.used - self.leaving <= self.limit {
            return None;
        }
        if let Some((_, version)) = self.twice.pop_first() {
            let known = self.versions.get_mut(&version).expect("it is there twice");
            known.is_twice = false;
            self.used -= known.bytes;
            return Some(Relief::ForgetEncoded(version));
        }
        // A version that takes no memory is not worth a file.
        let known = |version| self.versions.get(version).expect("it is idle");
        let (at, version) = self.idle.iter().find(|(_, version)| known(version).bytes > 0)?;
        let (at, version) = (*at, *version);
        self.idle.remove(&at);
        let known = self.versions.get_mut(&version).expect("it is idle");
        known.place = Place::Leaves;
        self.leaving += known.bytes;
        Some(Relief::Spill(version))
    }

    /// Records the end of writing a version to a file; `is_in_file` is false if it failed. Returns whether the
    /// version is now to be dropped from memory.
    pub(super) fn has_left(&mut self, version: VersionId, is_in_file: bool) -> bool {
        // It may be in use again, or removed.
        let Some(known) = self.versions.get_mut(&version).filter(|known| known.place == Place::Leaves) else {
            return false;
        };
        self.leaving -= known.bytes;
        if is_in_file {
            known.place = Place::File;
            self.used -= known.bytes;
        } else {
            known.place = Place::Memory;
            self.idle.insert(known.used_at, version);
        }
        is_in_file
    }

    /// Returns the copies to ask the coordinator about. Each one is returned only once.
    pub(super) fn copies_to_ask(&mut self) -> Vec<VersionId> {
        let enough = self.limit / 5 * 4;
        let mut to_go = self.used.saturating_sub(self.leaving).saturating_sub(enough);
        let mut asked = Vec::new();
        if to_go == 0 {
            return asked;
        }
        for version in self.idle.values() {
            let known = self.versions.get_mut(version).expect("it is idle");
            if known.is_copy && to_go > 0 {
                known.is_copy = false;
                to_go = to_go.saturating_sub(known.bytes);
                asked.push(*version);
            }
        }
        asked
    }
}

impl Known {
    /// Returns its size in memory while it is there, in bytes.
    fn in_memory(&self) -> u64 {
        if self.is_twice { 2 * self.bytes } else { self.bytes }
    }
}
