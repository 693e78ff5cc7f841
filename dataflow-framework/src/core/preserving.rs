//! What goes to the journal when nobody is left who could have it: the program goes on with it when others come.

use std::collections::BTreeSet;

use super::{
    fact::Fact,
    graph::{Action, Graph},
    history::History,
    members::Member,
    version::{Source, State, VersionId},
};

/// The maximum size of all versions that go to the journal when the last member leaves, in bytes. A little less than that
/// of an entry, so that one version has room there.
const PRESERVED_BYTES_MAX: u64 = 63 << 20;

/// What was written to the journal since everybody leaves.
#[derive(Debug, Default)]
pub(super) struct Preserved {
    versions: BTreeSet<VersionId>,
    bytes: u64,
    /// Which calls had ended when that was written last.
    history: History,
}

impl Graph {
    /// Has a version written to the journal, since all members leave.
    pub(super) fn preserve(&mut self, id: VersionId) {
        let Some(version) = self.versions.get(&id).filter(|_| self.durable.is_on) else { return };
        let State::Present(copies) = &version.state else { return };
        let is_in_journal = self.durable.ended.get(&id.call).is_some_and(|(_, values)| values.is_some());
        let bytes = self.durable.preserved.bytes + copies.bytes;
        if is_in_journal || self.durable.preserved.versions.contains(&id) || bytes > PRESERVED_BYTES_MAX {
            return;
        }
        let source = Source { version: id, mark: version.mark, members: copies.members.clone() };
        if copies.members.contains(&Member::HERE) {
            self.durable.preserved.versions.insert(id);
            self.durable.preserved.bytes = bytes;
            self.actions.push(Action::Preserve { version: id, mark: source.mark });
        } else {
            self.copy(source, Member::HERE);
        }
    }

    /// Has the history recorded if nobody is left to remember it, and there is more of it than before.
    pub(super) fn records_history(&mut self) {
        let is_to_be = self.durable.is_on && !self.members.anybody_stays();
        if is_to_be && self.durable.preserved.history != self.history {
            self.durable.preserved.history = self.history.clone();
            let pieces: Vec<History> = self.history.pieces();
            self.actions.extend(pieces.into_iter().map(|piece| Action::Record(Fact::History(piece))));
        }
    }
}
