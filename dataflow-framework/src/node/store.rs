//! The versions of data that are here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::small::SMALL_BYTES_MAX;
use crate::{
    core::{Argument, Assignment, Held, Mark, VersionId},
    value::Value,
};

/// The versions of data that are here.
#[derive(Debug, Default)]
pub(crate) struct Store {
    versions: Mutex<FxHashMap<VersionId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    value: Value,
    mark: Mark,
    /// Its size, if that is of interest.
    bytes: u64,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<VersionId, Entry>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a version.
    pub(crate) fn put(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) {
        let before = self.lock().insert(version, Entry { value, mark, bytes });
        // To drop it may take a while.
        drop(before);
    }

    /// Returns what is here.
    pub(crate) fn held(&self) -> Vec<Held> {
        let versions = self.lock();
        let held = versions.iter().map(|(version, Entry { mark, bytes, .. })| Held {
            version: *version,
            mark: *mark,
            bytes: *bytes,
        });
        let mut held: Vec<_> = held.collect();
        // The order of a hash table is not the same each time.
        held.sort_unstable_by_key(|held| held.version);
        held
    }

    /// Returns the size of a version.
    pub(crate) fn size(&self, version: VersionId) -> Option<u64> {
        self.lock().get(&version).map(|entry| entry.bytes)
    }

    /// Returns whether a version is here.
    pub(crate) fn has(&self, version: VersionId) -> bool {
        self.lock().contains_key(&version)
    }

    /// Returns a version.
    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.lock().get(&version).map(|entry| entry.value.clone())
    }

    /// Returns a version if it is small.
    pub(super) fn small(&self, version: VersionId) -> Option<Value> {
        let versions = self.lock();
        let entry = versions.get(&version).filter(|entry| entry.bytes <= SMALL_BYTES_MAX);
        entry.map(|entry| entry.value.clone())
    }

    /// Keeps a version also as another one. Returns whether it is here.
    pub(super) fn alias(&self, from: VersionId, to: VersionId, mark: Mark) -> bool {
        let mut versions = self.lock();
        if let Some(Entry { value, bytes, .. }) = versions.get(&from) {
            let entry = Entry { value: value.clone(), mark, bytes: *bytes };
            versions.insert(to, entry);
            return true;
        }
        false
    }

    /// Forgets a version, and returns it: to drop a large value takes a while.
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        self.lock().remove(&version).map(|entry| entry.value)
    }

    /// Returns what a call reads, in the order of its arguments. What it changes in place is not here any more.
    ///
    /// # Errors
    /// A version that is not here; then nothing is taken.
    pub(crate) fn inputs(&self, assignment: &Assignment) -> Result<Vec<Value>, VersionId> {
        let mut versions = self.lock();
        let reads = || assignment.arguments.iter().flat_map(Argument::versions);
        if let Some(missing) = reads().find(|version| !versions.contains_key(version)) {
            return Err(*missing);
        }
        let inputs = reads().map(|version| versions[version].value.clone()).collect();
        let updates = assignment.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
        for (update, in_place) in updates.zip(&assignment.in_place) {
            for version in update.versions().iter().filter(|_| *in_place) {
                versions.remove(version);
            }
        }
        Ok(inputs)
    }
}
