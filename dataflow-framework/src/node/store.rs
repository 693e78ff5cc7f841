//! The versions of data on this node: in memory as long as there is room, otherwise in files.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use taskwork::companion::{ObjectName, Offer};

use super::{
    ledger::{Arrival, Ledger, Relief, Use},
    room::Room,
};
use crate::{
    core::{Assignment, Held, Mark},
    failure::{Failed, Trouble},
    ids::{Argument, VersionId},
    size::shown,
    value::Value,
};

/// The maximum size of a version that is small, in bytes. The coordinator has a copy of each that is needed, so it must be
/// little even for a hundred thousand of them.
pub(super) const SMALL_BYTES_MAX: u64 = 1 << 10;

/// The versions of data that are here.
#[derive(Debug, Default)]
pub(crate) struct Store {
    versions: Mutex<FxHashMap<VersionId, Entry>>,
    /// The memory limit and the accounting, if there is a limit. The ledger is locked while `versions` is.
    limited: Option<(Room, Mutex<Ledger>)>,
}

#[derive(Debug)]
struct Entry {
    value: Value,
    mark: Mark,
    /// The size in bytes, 0 if sizes are not needed.
    bytes: u64,
    /// Offers it to other nodes, once one of them has requested it.
    offer: Option<Offer>,
}

/// The inputs of a call, in the order of its arguments.
pub(crate) struct Inputs {
    pub(crate) values: Vec<Value>,
    /// The uses to [release](Store::release) when the call is over.
    pub(crate) uses: Vec<Use>,
}

/// The reason why the inputs of a call are not available.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// This version is not here.
    Version(VersionId),
    /// The inputs exceed the limit.
    Room(Failed),
}

impl Store {
    pub(crate) fn limited(room: Room) -> Self {
        let ledger = Ledger::new(room.now());
        Self { limited: Some((room, Mutex::new(ledger))), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<VersionId, Entry>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the accounting, if there is a limit.
    fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        let (_, ledger) = self.limited.as_ref()?;
        Some(ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the limit, in bytes, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limited.as_ref().map(|(room, _)| room.now())
    }

    /// Stores a version; `is_copy` is true if it was fetched for a call. The store may exceed its limit until it is
    /// [relieved](Self::relieve).
    pub(crate) fn put(&self, version: VersionId, value: Value, mark: Mark, bytes: u64, is_copy: bool) {
        let mut versions = self.lock();
        if let Some(mut ledger) = self.ledger() {
            // A file takes no memory.
            let counted = if value.is_file() { 0 } else { bytes };
            let is_in_memory = !value.is_only_spilled();
            ledger.put(version, Arrival { bytes: counted, is_in_memory, is_copy });
        }
        let before = versions.insert(version, Entry { value, mark, bytes, offer: None });
        drop(versions);
        // Dropping it may be slow.
        drop(before);
    }

    /// Returns all versions, in order.
    pub(crate) fn held(&self) -> Vec<Held> {
        let versions = self.lock();
        let held = versions.iter().map(|(version, Entry { mark, bytes, .. })| Held {
            version: *version,
            mark: *mark,
            bytes: *bytes,
        });
        let mut held: Vec<_> = held.collect();
        // The iteration order of a hash table is not deterministic.
        held.sort_unstable_by_key(|held| held.version);
        held
    }

    /// Returns the size of a version, in bytes.
    pub(crate) fn size(&self, version: VersionId) -> Option<u64> {
        self.lock().get(&version).map(|entry| entry.bytes)
    }

    pub(crate) fn has(&self, version: VersionId) -> bool {
        self.lock().contains_key(&version)
    }

    /// Returns a version without loading it from its file.
    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.lock().get(&version).map(|entry| entry.value.apart())
    }

    /// Offers a version to other nodes under this name as long as it is here, unless it is offered already.
    pub(super) fn offer(&self, version: VersionId, name: ObjectName, offer: impl FnOnce() -> Offer) {
        if let Some(entry) = self.lock().get_mut(&version)
            && entry.offer.as_ref().is_none_or(|offer| offer.name() != name)
        {
            entry.offer = Some(offer());
        }
    }

    /// Records that the encoded form of a version, made for another node, is kept, too.
    pub(crate) fn on_encoded(&self, version: VersionId) {
        if let Some(mut ledger) = self.ledger() {
            ledger.on_encoded(version);
        }
    }

    /// Returns a version if it is small.
    pub(super) fn small(&self, version: VersionId) -> Option<Value> {
        let versions = self.lock();
        let entry = versions.get(&version).filter(|entry| entry.bytes <= SMALL_BYTES_MAX);
        entry.map(|entry| entry.value.clone())
    }

    /// Stores a version under a second id. Returns whether it is here.
    pub(super) fn alias(&self, from: VersionId, to: VersionId, mark: Mark) -> bool {
        let known = self.lock().get(&from).map(|Entry { value, bytes, .. }| (value.apart(), *bytes));
        let Some((value, bytes)) = known else { return false };
        self.put(to, value, mark, bytes, false);
        true
    }

    /// Removes a version and returns it, because dropping a large value is slow.
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        let mut versions = self.lock();
        if let Some(mut ledger) = self.ledger() {
            ledger.remove(version);
        }
        versions.remove(&version).map(|entry| entry.value)
    }

    /// Returns the inputs of a call, and removes those that it changes in place.
    ///
    /// # Errors
    /// If an input is missing or the inputs are too large; then nothing is removed.
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
            // Replaces the use from the loop above.
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

    /// Ends the uses of a call.
    pub(crate) fn release(&self, uses: Vec<Use>) {
        if let Some(mut ledger) = self.ledger().filter(|_| !uses.is_empty()) {
            for used in uses {
                ledger.end(used);
            }
        }
    }

    /// Moves versions from memory to files until the limit is met.
    ///
    /// # Errors
    /// If a file cannot be written.
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
                // Calls that use the value keep it in memory.
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

    /// Returns the memory that is accounted for, and the size of all values in memory, each counted once.
    #[cfg(test)]
    pub(super) fn in_memory(&self) -> (u64, u64) {
        let in_memory = |entry: &Entry| if entry.value.is_only_spilled() { 0 } else { entry.bytes };
        let all = self.lock().values().map(in_memory).sum();
        (self.ledger().map_or(0, |ledger| ledger.used()), all)
    }

    /// Returns copies to ask the coordinator about: those that other nodes have, too, can be dropped.
    pub(crate) fn copies_to_ask(&self) -> Vec<VersionId> {
        self.ledger().map_or_else(Vec::new, |mut ledger| ledger.copies_to_ask())
    }
}

fn too_much(all: u64, limit: u64) -> Failed {
    let reason = format!(
        "it reads {} of data at once, and the store takes {}: give nodes more (`--store`, or DATAFLOW_STORE), or split \
         the data",
        shown(all),
        shown(limit)
    );
    Failed { trouble: Trouble::Store(all), ..Failed::of_runtime(reason) }
}

fn full(failed: &Failed, limit: u64, used: u64) -> Failed {
    Failed::of_node(format!(
        "data takes {} of memory, the store {}, and nothing can be moved to a file: {}. Free space there, or give nodes \
         more memory (`--store`, or DATAFLOW_STORE) or another directory (DATAFLOW_WORK_DIR)",
        shown(used),
        shown(limit),
        failed.reason
    ))
}
