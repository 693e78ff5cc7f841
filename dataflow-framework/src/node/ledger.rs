//! How much memory the versions of a store take, and what is to be done if that is too much. Pure: it counts, and the
//! store does.
//!
//! Above four fifths of the limit the head is asked which of the copies of this node others have, too, so that they can
//! be dropped. Above the limit versions go to files, those first that were not in use for the longest time. What calls
//! have in use stays, and counts; so the limit is exceeded if that alone is more.

use std::collections::{BTreeMap, HashMap};

use crate::ids::VersionId;

/// What is known of the versions of a store.
#[derive(Debug)]
pub(super) struct Ledger {
    /// In bytes.
    limit: u64,
    pub(super) versions: HashMap<VersionId, Known>,
    /// Those in memory that are not in use, by when they were last.
    pub(super) idle: BTreeMap<u64, VersionId>,
    /// The idle ones that are encoded, too, and take their place twice.
    pub(super) twice: BTreeMap<u64, VersionId>,
    /// Counts the uses.
    now: u64,
    /// What is in memory, in bytes, with what is on its way from there to a file, and what calls hold besides.
    used: u64,
    /// What is on its way from memory to a file, in bytes.
    pub(super) leaving: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    bytes: u64,
    pub(super) place: Place,
    /// When it was last in use.
    used_at: u64,
    /// The number of calls that have it in use, in memory.
    users: u32,
    /// Whether it is encoded, too.
    is_twice: bool,
    /// Whether it was brought here from another node for a call, and nobody was asked whether others have it still.
    is_copy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    /// Being written to a file.
    Leaves,
    File,
}

/// Where a version is when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) bytes: u64,
    pub(super) is_in_memory: bool,
    /// Whether it was brought here for a call.
    pub(super) is_copy: bool,
}

/// What is to be done so that less memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Relief {
    /// What the version was encoded to is to be forgotten.
    ForgetEncoded(VersionId),
    /// The version is to be brought to a file; then the ledger is [told](Ledger::has_left).
    Spill(VersionId),
}

/// How a call has a version in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// In the store.
    Shared(VersionId),
    /// By itself, with this size in bytes: it has taken the version, or reads it from its file and leaves it there.
    Alone(u64),
}

impl Ledger {
    /// Creates one for a store of so many bytes.
    pub(super) fn new(limit: u64) -> Self {
        let (versions, idle, twice) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { limit, versions, idle, twice, now: 0, used: 0, leaving: 0 }
    }

    /// Sets its limit, in bytes.
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

    /// Adds a version, in the place of the one before of this name.
    pub(super) fn put(&mut self, version: VersionId, Arrival { bytes, is_in_memory, is_copy }: Arrival) {
        // One that is in use is the same.
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

    /// Removes a version.
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

    /// Notes that a version was encoded, and that this is kept.
    pub(super) fn is_encoded(&mut self, version: VersionId) {
        let Some(known) = self.versions.get_mut(&version) else { return };
        if known.place == Place::Memory && !known.is_twice {
            known.is_twice = true;
            self.used += known.bytes;
            if known.users == 0 {
                self.twice.insert(known.used_at, version);
            }
        }
    }

    /// Begins to use a version for a call. What is in a file stays in memory then if there is room.
    pub(super) fn begin(&mut self, version: VersionId) -> Use {
        self.now += 1;
        let (now, room) = (self.now, self.limit.saturating_sub(self.used));
        let Some(known) = self.versions.get_mut(&version) else { return Use::Alone(0) };
        self.idle.remove(&known.used_at);
        self.twice.remove(&known.used_at);
        known.used_at = now;
        match known.place {
            Place::Memory => {}
            // It is in use before it is gone, so it stays.
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

    /// Takes a version out of the store for a call that changes it.
    pub(super) fn take(&mut self, version: VersionId) -> Use {
        let bytes = self.bytes(version);
        self.remove(version);
        self.used += bytes;
        Use::Alone(bytes)
    }

    /// Ends a use.
    pub(super) fn end(&mut self, used: Use) {
        match used {
            Use::Alone(bytes) => self.used -= bytes,
            Use::Shared(version) => {
                // It may have been forgotten meanwhile, or come anew.
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

    /// Returns what is to be done next, if more memory is used than there is.
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
        // What takes no memory is not worth a file.
        let known = |version| self.versions.get(version).expect("it is idle");
        let (at, version) = self.idle.iter().find(|(_, version)| known(version).bytes > 0)?;
        let (at, version) = (*at, *version);
        self.idle.remove(&at);
        let known = self.versions.get_mut(&version).expect("it is idle");
        known.place = Place::Leaves;
        self.leaving += known.bytes;
        Some(Relief::Spill(version))
    }

    /// Tells that a version was brought to a file, or could not be. Returns whether it is to be dropped from memory.
    pub(super) fn has_left(&mut self, version: VersionId, is_in_file: bool) -> bool {
        // It may be in use again, or be gone.
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

    /// Returns the copies of which the head is to be asked now whether others have them, too. Each is returned once.
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
    /// Returns what it takes in memory if it is there, in bytes.
    fn in_memory(&self) -> u64 {
        if self.is_twice { 2 * self.bytes } else { self.bytes }
    }
}
