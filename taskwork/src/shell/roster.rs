//! The roster: the other members that may be of the same release, with a seat's knowledge of them, for all of its
//! jobs.
//!
//! Tasks waiting for a change are woken in the order in which they started to wait, so that the simulator can replay
//! runs.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use zk::membership::Member;

use crate::id::NodeId;

/// A node's knowledge of another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its name only; its record is read on demand.
    Name,
    /// The member runs the same release.
    Peer {
        member: Arc<Member>,
        /// Whether the member has the same value of the proximity label.
        near: bool,
    },
    /// The member was named, but cannot be a peer, for example because it runs another release.
    Apart,
}

/// The other members that may be of the same release.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    members: BTreeMap<NodeId, Known>,
    /// The number of members that cannot be peers.
    apart: usize,
    /// The latest members that have joined, left or changed, in this order, so that a follower of a large roster
    /// does not have to compare all of it.
    changes: VecDeque<NodeId>,
    /// The number of changes that were dropped.
    forgotten: u64,
}

/// The maximum number of recorded changes.
const CHANGES_MAX: usize = 1024;

/// A position among the changes of a roster.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place(Option<u64>);

impl Roster {
    /// Adds a member, or updates the knowledge of it.
    pub(crate) fn set(&mut self, node: NodeId, known: Known) {
        self.note(node);
        self.apart += usize::from(known == Known::Apart);
        let before = self.members.insert(node, known);
        self.apart -= usize::from(before == Some(Known::Apart));
    }

    /// Removes a member, and returns the knowledge of it.
    pub(crate) fn remove(&mut self, node: NodeId) -> Option<Known> {
        self.note(node);
        let known = self.members.remove(&node);
        self.apart -= usize::from(known == Some(Known::Apart));
        known
    }

    fn note(&mut self, node: NodeId) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        self.changes.push_back(node);
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&Known> {
        self.members.get(&node)
    }

    /// Returns the member with the lowest id.
    pub(crate) fn first(&self) -> Option<NodeId> {
        self.members.keys().next().copied()
    }

    /// Returns the number of other nodes of the release, as far as known.
    pub(crate) fn others(&self) -> usize {
        self.members.len() - self.apart
    }

    /// Returns the nodes that may have changed since a place, and moves the place to the end. `None` if any member
    /// may have changed.
    pub(crate) fn changed_since(&self, place: &mut Place) -> Option<BTreeSet<NodeId>> {
        let end = self.forgotten + self.changes.len() as u64;
        let from = place.0.replace(end)?;
        let first = usize::try_from(from.checked_sub(self.forgotten)?).ok()?;
        Some(self.changes.iter().skip(first).copied().collect())
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.members.keys().copied()
    }
}

/// The current roster of a seat.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The number of changes so far, and the roster.
    now: Mutex<(u64, Roster)>,
    changed: Notify,
}

impl Members {
    /// Returns the number of changes so far, and the result of `look`.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Roster) -> R) -> (u64, R) {
        let now = self.lock();
        (now.0, look(&now.1))
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Roster) -> R) -> R {
        let mut now = self.lock();
        now.0 += 1;
        let done = change(&mut now.1);
        drop(now);
        self.changed.notify_waiters();
        done
    }

    /// Waits until the number of changes exceeds this one.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn changed(&self, changes: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().0 > changes {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Roster)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roster_changes_are_listed_until_too_many_have_passed() {
        let (mut roster, mut place) = (Roster::default(), Place::default());
        roster.set(NodeId(1), Known::Name);
        assert_eq!(roster.changed_since(&mut place), None, "it has seen nothing yet");
        assert_eq!(roster.changed_since(&mut place), Some(BTreeSet::new()));
        roster.set(NodeId(1), Known::Apart);
        roster.set(NodeId(2), Known::Name);
        roster.remove(NodeId(2));
        assert_eq!(roster.changed_since(&mut place), Some(BTreeSet::from([NodeId(1), NodeId(2)])));
        for node in 0..=CHANGES_MAX as u64 {
            roster.set(NodeId(node), Known::Name);
        }
        assert_eq!(roster.changed_since(&mut place), None);
        assert_eq!(roster.changed_since(&mut place), Some(BTreeSet::new()));
    }

    #[test]
    fn non_peers_are_not_counted() {
        let mut roster = Roster::default();
        for (node, known) in [(1, Known::Name), (2, Known::Apart), (3, Known::Name)] {
            roster.set(NodeId(node), known);
        }
        assert_eq!((roster.others(), roster.first()), (2, Some(NodeId(1))));
        roster.set(NodeId(3), Known::Apart);
        roster.remove(NodeId(2));
        assert_eq!(roster.others(), 1);
    }
}
