//! The calls that an executor runs, and their outcomes that may not be recorded yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Weak,
};

use super::{messages::Report, store::Store};
use crate::{
    core::{Mark, Outcome},
    ids::{CallId, VersionId},
};

/// The current state of an executor.
#[derive(Default)]
pub(super) struct Assignments {
    pub(super) epoch: u64,
    /// None before the first run.
    pub(super) report: Option<Weak<dyn Report>>,
    /// The running calls, if there are other nodes.
    pub(super) running: BTreeMap<CallId, Mark>,
    /// The running calls that have made calls: a new run of the program has to run them again.
    pub(super) nesting: BTreeSet<CallId>,
    /// The completed calls whose outcomes take effect only when they are recorded.
    pub(super) unseen: BTreeMap<CallId, (Mark, Outcome)>,
    /// The versions that were fetched although this node has its own execution of their call, in `running` or
    /// `unseen`.
    pub(super) brought: BTreeSet<VersionId>,
    /// The calls that were cancelled in this run when they were not found here: they were about to be queued, or have ended.
    pub(super) cancelled: BTreeSet<CallId>,
    /// The number of calls with a permanent outcome that completed here.
    pub(super) executions: u64,
}

/// Whether an assigned call starts.
pub(super) enum Begins {
    Now,
    /// It ends as soon as it starts, since it was cancelled.
    Cancelled,
    /// Its run of the program is over.
    No,
    /// An earlier execution is valid.
    Before,
}

impl Assignments {
    /// Returns whether the call is running here, or has an outcome that may not be recorded yet.
    pub(super) fn has_execution(&self, call: CallId) -> bool {
        self.running.contains_key(&call) || self.unseen.contains_key(&call)
    }

    /// Removes the fetched versions of calls without an execution here.
    pub(super) fn forget_brought(&mut self) {
        let Self { running, unseen, brought, .. } = self;
        brought.retain(|version| running.contains_key(&version.call) || unseen.contains_key(&version.call));
    }

    /// Removes the outcomes of calls whose output is no longer complete here, and the rest of that output.
    pub(super) fn forget_halves(&mut self, store: &Store) {
        let Self { unseen, brought, .. } = self;
        unseen.retain(|call, (_, outcome)| {
            let Outcome::Durable { bytes, .. } = outcome else { return true };
            let versions = (0..).zip(&*bytes).map(|(slot, _)| VersionId { call: *call, slot });
            let is_whole = versions.clone().all(|version| store.has(version));
            for version in versions.filter(|version| !is_whole && !brought.contains(version)) {
                drop(store.forget(version));
            }
            is_whole
        });
        self.forget_brought();
    }
}
