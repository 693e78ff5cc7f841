//! The versions of data that are here: in memory as far as there is room, otherwise in files.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::{
    ledger::{Arrival, Ledger, Relief, Use},
    room::{Room, shown},
};
use crate::{
    core::{Assignment, Held, Mark},
    failure::Failed,
    ids::{Argument, VersionId},
    value::Value,
};

/// The maximum size of a version that is small, in bytes. The head has a copy of each that is needed, so it must be
/// little even for a hundred thousand of them.
pub(super) const SMALL_BYTES_MAX: u64 = 1 << 10;

/// The versions of data that are here.
#[derive(Debug, Default)]
pub(crate) struct Store {
    versions: Mutex<FxHashMap<VersionId, Entry>>,
    /// What they take, if there is a limit of that. It is locked within the lock of the versions.
    limited: Option<(Room, Mutex<Ledger>)>,
}

#[derive(Debug)]
struct Entry {
    value: Value,
    mark: Mark,
    /// Its size, if that is of interest.
    bytes: u64,
}

/// What a call reads, in the order of its arguments.
pub(crate) struct Inputs {
    pub(crate) values: Vec<Value>,
    /// For what the store is to be told [when the call is over](Store::release).
    pub(crate) uses: Vec<Use>,
}

/// Why a call cannot have what it reads.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// This version is not here.
    Version(VersionId),
    /// It is too much.
    Room(Failed),
}

impl Store {
    /// Creates a store that takes no more memory than this.
    pub(crate) fn limited(room: Room) -> Self {
        let ledger = Ledger::new(room.now());
        Self { limited: Some((room, Mutex::new(ledger))), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<VersionId, Entry>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what counts, if anything does.
    fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        let (_, ledger) = self.limited.as_ref()?;
        Some(ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns its limit, in bytes, if it has one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limited.as_ref().map(|(room, _)| room.now())
    }

    /// Takes in a version; `is_copy` tells whether it was brought here for a call. It may now be time to
    /// [relieve](Self::relieve) the store.
    pub(crate) fn put(&self, version: VersionId, value: Value, mark: Mark, bytes: u64, is_copy: bool) {
        let mut versions = self.lock();
        if let Some(mut ledger) = self.ledger() {
            // A file takes no memory.
            let counted = if value.is_file() { 0 } else { bytes };
            let is_in_memory = !value.is_only_spilled();
            ledger.put(version, Arrival { bytes: counted, is_in_memory, is_copy });
        }
        let before = versions.insert(version, Entry { value, mark, bytes });
        drop(versions);
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

    /// Returns a version. What is in a file stays there.
    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.lock().get(&version).map(|entry| entry.value.apart())
    }

    /// Notes that a version was encoded for another node, and keeps that.
    pub(crate) fn is_encoded(&self, version: VersionId) {
        if let Some(mut ledger) = self.ledger() {
            ledger.is_encoded(version);
        }
    }

    /// Returns a version if it is small.
    pub(super) fn small(&self, version: VersionId) -> Option<Value> {
        let versions = self.lock();
        let entry = versions.get(&version).filter(|entry| entry.bytes <= SMALL_BYTES_MAX);
        entry.map(|entry| entry.value.clone())
    }

    /// Keeps a version also as another one. Returns whether it is here.
    pub(super) fn alias(&self, from: VersionId, to: VersionId, mark: Mark) -> bool {
        let known = self.lock().get(&from).map(|Entry { value, bytes, .. }| (value.apart(), *bytes));
        let Some((value, bytes)) = known else { return false };
        self.put(to, value, mark, bytes, false);
        true
    }

    /// Forgets a version, and returns it: to drop a large value takes a while.
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        let mut versions = self.lock();
        if let Some(mut ledger) = self.ledger() {
            ledger.remove(version);
        }
        versions.remove(&version).map(|entry| entry.value)
    }

    /// Returns what a call reads. What it changes in place is not here any more.
    ///
    /// # Errors
    /// What is lacking; then nothing is taken.
    pub(crate) fn inputs(&self, assignment: &Assignment) -> Result<Inputs, Lacking> {
        let mut versions = self.lock();
        let reads = || assignment.arguments.iter().flat_map(Argument::versions).copied();
        if let Some(missing) = reads().find(|version| !versions.contains_key(version)) {
            return Err(Lacking::Version(missing));
        }
        let Some(mut ledger) = self.ledger() else {
            let values = reads().map(|version| versions[&version].value.clone()).collect();
            for version in assignment.taken() {
                versions.remove(&version);
            }
            return Ok(Inputs { values, uses: Vec::new() });
        };
        let (all, limit) =
            (reads().map(|version| ledger.bytes(version)).sum(), self.limit().unwrap_or(u64::MAX));
        if all > limit {
            return Err(Lacking::Room(too_much(all, limit)));
        }
        ledger.set_limit(limit);
        let (mut values, mut uses) = (Vec::new(), Vec::new());
        for version in reads() {
            let used = ledger.begin(version);
            let value = &versions[&version].value;
            values.push(if matches!(used, Use::Shared(_)) { value.clone() } else { value.apart() });
            uses.push(used);
        }
        for version in assignment.taken() {
            // Instead of what was begun above.
            if let Some(place) = uses.iter().position(|used| *used == Use::Shared(version)) {
                ledger.end(uses.swap_remove(place));
                uses.push(ledger.take(version));
            } else {
                ledger.remove(version);
            }
            versions.remove(&version);
        }
        Ok(Inputs { values, uses })
    }

    /// Takes back what a call had in use.
    pub(crate) fn release(&self, uses: Vec<Use>) {
        if let Some(mut ledger) = self.ledger().filter(|_| !uses.is_empty()) {
            for used in uses {
                ledger.end(used);
            }
        }
    }

    /// Moves versions from memory to files, if they take too much.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(crate) fn relieve(&self) -> Result<(), Failed> {
        let Some(limit) = self.limit() else { return Ok(()) };
        while let Some(relief) = self.next_relief(limit) {
            match relief {
                Relief::ForgetEncoded(version) => {
                    let value = self.lock().get(&version).map(|entry| entry.value.clone());
                    value.inspect(Value::forget_encoded);
                }
                Relief::Spill(version) => self.spill(version, limit)?,
            }
        }
        Ok(())
    }

    fn next_relief(&self, limit: u64) -> Option<Relief> {
        let mut ledger = self.ledger()?;
        ledger.set_limit(limit);
        ledger.relief()
    }

    fn spill(&self, version: VersionId, limit: u64) -> Result<(), Failed> {
        let Some(value) = self.lock().get(&version).map(|entry| entry.value.clone()) else { return Ok(()) };
        let spilled = value.spill();
        let mut versions = self.lock();
        let has_left = self.ledger().is_some_and(|mut ledger| ledger.has_left(version, spilled.is_ok()));
        match spilled {
            Ok(spilled) => {
                // Who has it still keeps it in memory; nobody else does.
                let entry = versions.get_mut(&version).filter(|_| has_left);
                let before =
                    entry.map(|entry| std::mem::replace(&mut entry.value, Value::from_spilled(spilled)));
                drop(versions);
                drop((before, value));
                Ok(())
            }
            Err(failed) => {
                drop(versions);
                let used = self.ledger().map_or(0, |ledger| ledger.used());
                Err(full(&failed, limit, used))
            }
        }
    }

    /// Returns what is counted as used, and what is really in memory once.
    #[cfg(test)]
    pub(super) fn in_memory(&self) -> (u64, u64) {
        let in_memory = |entry: &Entry| if entry.value.is_only_spilled() { 0 } else { entry.bytes };
        let all = self.lock().values().map(in_memory).sum();
        (self.ledger().map_or(0, |ledger| ledger.used()), all)
    }

    /// Returns the copies of which it is to be asked now whether others have them, too, so that they can be dropped.
    pub(crate) fn copies_to_ask(&self) -> Vec<VersionId> {
        self.ledger().map_or_else(Vec::new, |mut ledger| ledger.copies_to_ask())
    }
}

fn too_much(all: u64, limit: u64) -> Failed {
    Failed::of_node(format!(
        "it reads {} of data at once, and the store takes {}: give nodes more (`--store`, or DATAFLOW_STORE), or divide \
         the data",
        shown(all),
        shown(limit)
    ))
}

fn full(failed: &Failed, limit: u64, used: u64) -> Failed {
    Failed::of_node(format!(
        "data takes {} of memory, the store {}, and nothing can be moved to a file: {}. Make room there, or give nodes \
         more memory (`--store`, or DATAFLOW_STORE) or another directory (DATAFLOW_WORK_DIR)",
        shown(used),
        shown(limit),
        failed.reason
    ))
}
