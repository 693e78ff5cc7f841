//! The versions of data that are here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    core::{Argument, Assignment, VersionId},
    value::Value,
};

/// The versions of data that are here.
#[derive(Debug, Default)]
pub(crate) struct Store {
    versions: Mutex<HashMap<VersionId, Value>>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, HashMap<VersionId, Value>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a version.
    pub(crate) fn put(&self, version: VersionId, value: Value) {
        self.lock().insert(version, value);
    }

    /// Returns whether a version is here.
    pub(crate) fn has(&self, version: VersionId) -> bool {
        self.lock().contains_key(&version)
    }

    /// Returns a version.
    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.lock().get(&version).cloned()
    }

    /// Forgets a version, and returns it: to drop a large value takes a while.
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        self.lock().remove(&version)
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
        let inputs = reads().map(|version| versions[version].clone()).collect();
        let updates = assignment.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
        for (update, in_place) in updates.zip(&assignment.in_place) {
            for version in update.versions().iter().filter(|_| *in_place) {
                versions.remove(version);
            }
        }
        Ok(inputs)
    }
}
