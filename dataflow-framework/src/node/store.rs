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

    /// Takes in what a call has written, from its first slot on.
    pub(crate) fn put(&self, call: u64, written: Vec<Value>) {
        let mut versions = self.lock();
        versions.extend((0..).zip(written).map(|(slot, value)| (VersionId { call, slot }, value)));
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
