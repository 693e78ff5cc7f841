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

    /// Forgets versions that nobody needs.
    pub(crate) fn forget(&self, forgotten: &[VersionId]) {
        let mut versions = self.lock();
        let values: Vec<_> = forgotten.iter().map(|version| versions.remove(version)).collect();
        // To drop a large value takes a while.
        drop(versions);
        drop(values);
    }

    /// Returns what a call reads, in the order of its arguments. What it changes in place is not here any more.
    /// `None` if a version is not here.
    pub(crate) fn inputs(&self, assignment: &Assignment) -> Option<Vec<Value>> {
        let mut versions = self.lock();
        let mut in_place = assignment.in_place.iter();
        let mut inputs = Vec::new();
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && in_place.next() == Some(&true);
            for version in argument.versions() {
                inputs.push(if is_taken {
                    versions.remove(version)?
                } else {
                    versions.get(version)?.clone()
                });
            }
        }
        Some(inputs)
    }
}
