//! When the last node leaves, live data is spilled to the journal so that the program can resume later.

use super::{
    fact::Fact,
    graph::{Action, Graph},
    history::History,
    members::Member,
    state::durable::Durable,
    version::Source,
};

/// The maximum size of all versions spilled to the journal when the last member leaves, in bytes. Slightly less
/// than that of an entry, so that one version fits into it.
const PRESERVED_BYTES_MAX: u64 = 63 << 20;

impl Graph {
    /// Spills a version to the journal, since all members leave.
    pub(super) fn preserve(&mut self, source: Source, bytes: u64) {
        let Durable { is_on, ended, preserved, .. } = &mut self.durable;
        let Source { version, mark, .. } = source;
        let is_in_journal = ended.get(&version.call).is_some_and(|once| once.values.is_some())
            || preserved.versions.contains(&version);
        let bytes = preserved.bytes + bytes;
        if !*is_on || is_in_journal || bytes > PRESERVED_BYTES_MAX {
            return;
        }
        if source.members.contains(&Member::HERE) {
            preserved.versions.insert(version);
            preserved.bytes = bytes;
            preserved.unwritten += 1;
            self.actions.push(Action::Preserve { version, mark });
        } else {
            self.copy(source, Member::HERE);
        }
    }

    /// Handles a version that is written to the journal, or no longer readable.
    pub(crate) fn on_preserved(&mut self) {
        self.durable.preserved.unwritten -= 1;
    }

    /// Returns whether writes are pending that must finish before the last members go.
    pub(super) fn is_preserving(&self) -> bool {
        self.durable.preserved.unwritten > 0 && !self.members.anybody_stays()
    }

    /// Records the history if no other member remembers it, and it has grown.
    pub(super) fn record_history(&mut self) {
        let is_to_be = self.durable.is_on && !self.members.anybody_stays();
        if is_to_be && self.durable.preserved.history != self.history {
            self.durable.preserved.history = self.history.clone();
            let pieces: Vec<History> = self.history.pieces();
            self.durable.preserved.unwritten += pieces.len();
            self.actions.extend(pieces.into_iter().map(|piece| Action::Record(Fact::History(piece))));
        }
    }
}
