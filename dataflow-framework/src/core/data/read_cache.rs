//! The cache of versions that no call needs, but that the program has read and would read again after a restart.

use std::collections::BTreeMap;

use crate::{
    core::{mark::Mark, members::Member},
    ids::VersionId,
};

/// The maximum size of all versions that are kept because the program has read them, in bytes.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// A version that is not needed, but was read by the program.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct Kept {
    pub(in crate::core) member: Member,
    pub(in crate::core) mark: Mark,
    pub(in crate::core) bytes: u64,
}

/// The versions that are not needed, but were read by the program.
#[derive(Debug, Default)]
pub(in crate::core) struct ReadCache {
    versions: BTreeMap<VersionId, Kept>,
    bytes: u64,
}

impl ReadCache {
    pub(in crate::core) fn get(&self, id: VersionId) -> Option<Kept> {
        self.versions.get(&id).copied()
    }

    /// Moves a version to another member. Returns the previous one.
    pub(in crate::core) fn move_to(&mut self, id: VersionId, member: Member) -> Option<Member> {
        let kept = self.versions.get_mut(&id).filter(|kept| kept.member != member)?;
        Some(std::mem::replace(&mut kept.member, member))
    }

    /// Adds a version, and returns the member that has kept it before.
    pub(in crate::core) fn insert(&mut self, id: VersionId, kept: Kept) -> Option<Member> {
        let before = self.remove(id);
        self.bytes += kept.cost();
        self.versions.insert(id, kept);
        before.map(|before| before.member)
    }

    /// Removes the first version if their total size is too large.
    pub(in crate::core) fn pop_too_many(&mut self) -> Option<(VersionId, Kept)> {
        let popped = (self.bytes > KEPT_BYTES_MAX).then(|| self.versions.pop_first()).flatten();
        self.bytes -= popped.map_or(0, |(_, kept)| kept.cost());
        popped
    }

    pub(in crate::core) fn remove(&mut self, id: VersionId) -> Option<Kept> {
        let removed = self.versions.remove(&id);
        self.bytes -= removed.as_ref().map_or(0, Kept::cost);
        removed
    }

    pub(in crate::core) fn on_lost(&mut self, member: Member) {
        self.versions.retain(|_, kept| kept.member != member);
        self.bytes = self.versions.values().map(Kept::cost).sum();
    }

    pub(in crate::core) fn on_gone(&mut self, id: VersionId, member: Member) {
        if self.has(id, member) {
            self.remove(id);
        }
    }

    pub(in crate::core) fn with(&self, member: Member) -> Vec<VersionId> {
        let kept = self.versions.iter().filter(|(_, kept)| kept.member == member);
        kept.map(|(id, _)| *id).collect()
    }

    pub(in crate::core) fn has(&self, id: VersionId, member: Member) -> bool {
        self.versions.get(&id).is_some_and(|kept| kept.member == member)
    }
}

impl Kept {
    /// Returns its size, including bookkeeping.
    fn cost(&self) -> u64 {
        self.bytes + size_of::<(VersionId, Self)>() as u64
    }
}
