//! Permanent outcomes: completions of run-once calls, failures and cancellations.
//!
//! With a journal, such an outcome becomes visible only when it is recorded ([`Fact`]): dependent calls and the
//! program wait for it. Until then the call counts as running, and runs again if its member is lost.
//!
//! ```text
//!   runs ── has ended ──► small ─────────────────────────────────► Record ──► recorded ──► dependent calls
//!                └──────► large ──► a copy with another member ──► Record ──┘
//! ```
//!
//! The output of such a call is never recomputed. Small output is stored in the journal, and restored from
//! there when it is needed and no member has it. Large output stays with its members until the program ends; if
//! all of them are lost, the program fails.

pub(in crate::core) mod fact;
pub(in crate::core) mod history;
pub(in crate::core) mod recording;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::{
    fact::{Ended, Fact},
    history::History,
};
use super::{call::Within, mark::Mark};
use crate::{
    failure::Reason,
    ids::{CallId, VersionId},
};

/// The maximum total size of call output in the journal, in bytes. Later output counts as large.
const VALUES_BYTES_MAX: usize = 64 << 20;

/// The maximum size of all versions spilled to the journal when the last member leaves, in bytes. Slightly less
/// than that of an entry, so that one version fits into it.
const PRESERVED_BYTES_MAX: u64 = 63 << 20;

/// The encoded output of a call.
type Values = Vec<Arc<[u8]>>;

/// The recorded outcomes of calls, and the completed calls.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Whether facts are recorded.
    is_on: bool,
    /// The number that identifies the program.
    key: u128,
    /// The run-once calls.
    ended: BTreeMap<CallId, Once>,
    /// The size of their output in the journal.
    values_bytes: usize,
    preserved: Preserved,
    /// The completed calls, of this run of the program and earlier ones.
    history: History,
    /// The completed calls not yet reported to the other nodes.
    news: History,
}

/// The completion of a run-once call.
#[derive(Debug)]
pub(in crate::core) struct Once {
    pub(in crate::core) mark: Mark,
    /// The execution that counts.
    pub(in crate::core) by: u64,
    /// The output of the call in the journal.
    pub(in crate::core) values: Option<Values>,
}

/// The data written to the journal since all members leave.
#[derive(Debug, Default)]
struct Preserved {
    versions: BTreeSet<VersionId>,
    bytes: u64,
    /// The number of facts not written yet.
    unwritten: usize,
    /// The completed calls at the time of the last write.
    history: History,
}

impl Journal {
    pub(crate) fn enable(&mut self) {
        self.is_on = true;
    }

    pub(crate) fn set_key(&mut self, key: u128) {
        self.key = key;
    }

    pub(crate) fn key(&self) -> u128 {
        self.key
    }

    /// Returns whether the completion of a call is recorded, so that it does not run again.
    pub(in crate::core) fn is_permanent(&self, call: CallId) -> bool {
        self.ended.contains_key(&call)
    }

    /// Returns whether a version can neither be recomputed nor restored, so that its copies must be kept.
    pub(in crate::core) fn is_precious(&self, id: VersionId) -> bool {
        matches!(self.ended.get(&id.call), Some(Once { values: None, .. }))
    }

    /// Returns whether an execution of a call is the one that counts, and its output is only with members.
    pub(in crate::core) fn is_permanent_execution(&self, call: CallId, execution: u64) -> bool {
        let ended = self.ended.get(&call);
        ended.is_some_and(|Once { by, values, .. }| *by == execution && values.is_none())
    }

    pub(in crate::core) fn stands_in_journal(&self, call: CallId) -> bool {
        matches!(self.ended.get(&call), Some(Once { values: Some(_), .. }))
    }

    pub(in crate::core) fn on_durable(&mut self, ended: Ended) {
        let Ended { call, mark, by, values } = ended;
        let values = values.map(|values| values.into_iter().map(Arc::from).collect::<Values>());
        let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
        if self.ended.insert(call, Once { mark, by, values }).is_none() {
            self.values_bytes += bytes;
        }
    }

    /// Handles a version that is written to the journal, or no longer readable.
    pub(crate) fn on_preserved(&mut self) {
        self.preserved.unwritten -= 1;
    }

    pub(in crate::core) fn history_has(&self, id: CallId, within: Option<Within>) -> bool {
        match within {
            Some(within) => self.history.has_ended_within(within.root, id),
            None => self.history.has_ended(id),
        }
    }

    /// Returns whether an ignored failure on a member is not recorded, so that its output is not the visible
    /// one.
    pub(in crate::core) fn is_only_there(&self, call: CallId) -> bool {
        self.is_on && !self.history.is_ignored(call)
    }

    pub(in crate::core) fn add_ignored(&mut self, id: CallId) {
        self.history.add_ignored(id);
        self.news.add_ignored(id);
    }

    /// Adds calls completed in earlier runs, before this run has made them. New ones are forwarded to the other
    /// nodes: the reporting member may be the only one that knows them, and may leave.
    pub(crate) fn add_history(&mut self, history: History) {
        let news = history.without(&self.history);
        self.history.add(news.clone());
        self.news.add(news);
    }

    pub(crate) fn take_news(&mut self) -> History {
        std::mem::take(&mut self.news)
    }

    /// Returns all completed calls, of this run and earlier ones.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(in crate::core) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(in crate::core) fn once(&self, call: CallId) -> Option<&Once> {
        self.ended.get(&call)
    }

    /// Returns the idempotency token of a call, by which external systems detect another execution.
    pub(in crate::core) fn token(&self, id: CallId, mark: Mark) -> u128 {
        mark.token(self.key, id)
    }

    pub(in crate::core) fn has_room(&self, bytes: usize) -> bool {
        self.values_bytes + bytes <= VALUES_BYTES_MAX
    }

    /// Adds a call that has written its output: one within `root`, or one of the program.
    pub(in crate::core) fn add_end(&mut self, id: CallId, root: Option<CallId>) {
        for history in [&mut self.history, &mut self.news] {
            match root {
                Some(root) => history.add_end_within(root, id),
                None => history.add_end(id),
            }
        }
    }

    pub(in crate::core) fn add_failure(&mut self, id: CallId, reason: Reason) {
        self.history.add_failure(id, reason.clone());
        self.news.add_failure(id, reason);
    }

    /// Returns whether a version must be spilled to the journal. A version that `is_here` counts as being written.
    pub(in crate::core) fn preserve(&mut self, version: VersionId, bytes: u64, is_here: bool) -> bool {
        let bytes = self.preserved.bytes + bytes;
        let is_in_journal =
            self.stands_in_journal(version.call) || self.preserved.versions.contains(&version);
        if !self.is_on || is_in_journal || bytes > PRESERVED_BYTES_MAX {
            return false;
        }
        if is_here {
            self.preserved.versions.insert(version);
            self.preserved.bytes = bytes;
            self.preserved.unwritten += 1;
        }
        true
    }

    /// Returns the history in pieces to be written, if it has grown since the last time.
    pub(in crate::core) fn preserve_history(&mut self) -> Vec<History> {
        if self.preserved.history == self.history {
            return Vec::new();
        }
        self.preserved.history = self.history.clone();
        let pieces = self.history.pieces();
        self.preserved.unwritten += pieces.len();
        pieces
    }

    pub(in crate::core) fn is_preserving(&self) -> bool {
        self.preserved.unwritten > 0
    }

    pub(in crate::core) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.ended.iter().map(|(call, Once { mark, by, values })| {
            let values = values.as_ref().map(|values| values.iter().map(|value| value.to_vec()).collect());
            Fact::Ended(Ended { call: *call, mark: *mark, by: *by, values })
        })
    }
}
