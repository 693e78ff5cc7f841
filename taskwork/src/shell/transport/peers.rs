//! The members that a node accepts as peers, according to the znode tree.
//!
//! In a large cluster, a node knows most members only by name. Their addresses and fingerprints are read by the seat
//! when the node first sends to them or they first connect to it; until then the sender or connection waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::{Notify, watch};

use super::Fingerprint;
use crate::id::NodeId;

/// A member's address, and the fingerprint of its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: Fingerprint,
}

/// The current members, except for this node.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    table: RwLock<Table>,
    /// Notified at each removal, so that connections can be closed.
    removals: watch::Sender<()>,
    /// Notified when a named member was read or has left. Wakes the waiting tasks in their order, so that runs can
    /// be replayed.
    answers: Notify,
    /// Notified when a member is requested in [`find`](Self::find).
    asked: Notify,
}

#[derive(Debug, Default)]
struct Table {
    peers: BTreeMap<NodeId, PeerAddress>,
    /// The members known only by name.
    unread: BTreeSet<NodeId>,
    /// The unread members whose records were requested.
    wanted: BTreeSet<NodeId>,
}

impl Peers {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member.
    pub(crate) fn set(&self, node: NodeId, address: PeerAddress) {
        let mut table = self.change();
        table.peers.insert(node, address);
        let was_named = table.forget_name(node);
        drop(table);
        if was_named {
            self.answers.notify_waiters();
        }
    }

    /// Adds a member of which only the name is known. It is not trusted until [`set`](Self::set) is called for
    /// it.
    pub(crate) fn name(&self, node: NodeId) {
        self.change().unread.insert(node);
    }

    /// Removes a member, which is then no longer trusted.
    pub(crate) fn remove(&self, node: NodeId) {
        let mut table = self.change();
        table.peers.remove(&node);
        let was_named = table.forget_name(node);
        drop(table);
        self.removals.send_replace(());
        if was_named {
            self.answers.notify_waiters();
        }
    }

    /// Waits for members whose records are needed, and returns all of them.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no request.
    pub(crate) async fn wanted(&self) -> BTreeSet<NodeId> {
        loop {
            let wanted = std::mem::take(&mut self.change().wanted);
            if !wanted.is_empty() {
                return wanted;
            }
            self.asked.notified().await;
        }
    }

    /// Returns a member whose record was read.
    pub(crate) fn get(&self, node: NodeId) -> Option<PeerAddress> {
        self.table().peers.get(&node).copied()
    }

    /// Returns a member. If only its name is known, waits until its record is read or the member leaves; this takes
    /// any time while `ZooKeeper` is unavailable.
    pub(crate) async fn find(&self, node: NodeId) -> Option<PeerAddress> {
        let mut is_asked = false;
        loop {
            // Registered before the lookup, so that no notification is missed.
            let answered = self.answers.notified();
            let peer = self.get(node);
            if peer.is_some() || !self.is_unread(node) {
                // The record may have been read in between.
                return peer.or_else(|| self.get(node));
            }
            if !std::mem::replace(&mut is_asked, true) {
                self.change().wanted.insert(node);
                self.asked.notify_one();
            }
            answered.await;
        }
    }

    /// Returns whether a member is known only by name.
    pub(crate) fn is_unread(&self, node: NodeId) -> bool {
        self.table().unread.contains(&node)
    }

    /// Returns whether this node may be a member, as far as known.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        let table = self.table();
        table.peers.contains_key(&node) || table.unread.contains(&node)
    }

    /// Returns whether this certificate may belong to a current member: always true while there are unread members.
    pub(super) fn may_know(&self, fingerprint: Fingerprint) -> bool {
        let table = self.table();
        !table.unread.is_empty() || table.peers.values().any(|peer| peer.fingerprint == fingerprint)
    }

    /// Returns whether a current member listens at this address. It dials from there as well, unless a NAT changes
    /// the address.
    pub(super) fn listens_at(&self, address: SocketAddr) -> bool {
        let canonical = |of: SocketAddr| (of.ip().to_canonical(), of.port());
        self.table().peers.values().any(|peer| canonical(peer.address) == canonical(address))
    }

    /// Returns whether this is a current member with this certificate.
    pub(super) fn is_member(&self, node: NodeId, fingerprint: Fingerprint) -> bool {
        self.get(node).is_some_and(|peer| peer.fingerprint == fingerprint)
    }

    /// Waits until no member has this id and certificate.
    pub(super) async fn gone(&self, node: NodeId, fingerprint: Fingerprint) {
        self.removed(|| !self.is_member(node, fingerprint)).await;
    }

    /// Waits until no member has this id.
    pub(crate) async fn absent(&self, node: NodeId) {
        self.removed(|| !self.has(node)).await;
    }

    async fn removed(&self, gone: impl Fn() -> bool) {
        let mut removals = self.removals.subscribe();
        while !gone() {
            // The sender lives as long as `self`.
            let _ = removals.changed().await;
        }
    }
}

impl Table {
    /// Returns whether the member was known only by name.
    fn forget_name(&mut self, node: NodeId) -> bool {
        self.wanted.remove(&node);
        self.unread.remove(&node)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, net::Ipv4Addr, pin::pin, task::Poll};

    use super::*;
    use crate::shell::transport::Identity;

    const NODE: NodeId = NodeId(7);

    fn address() -> PeerAddress {
        let fingerprint = Identity::generate(NODE).unwrap().fingerprint();
        PeerAddress { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), fingerprint }
    }

    /// Returns the output of a future that completes at the first poll.
    async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn named_member_is_read_once_it_is_needed() {
        let (peers, address) = (Peers::default(), address());
        assert_eq!(now(peers.find(NODE)).await, Some(None), "it is not a member");
        peers.name(NODE);
        assert!(peers.has(NODE) && !peers.is_member(NODE, address.fingerprint));
        assert_eq!(now(peers.wanted()).await, None, "it is not needed");
        let mut finding = pin!(peers.find(NODE));
        assert_eq!(now(finding.as_mut()).await, None);
        assert_eq!(now(peers.wanted()).await, Some(BTreeSet::from([NODE])));
        assert_eq!(now(peers.wanted()).await, None, "each member is returned once");
        peers.set(NODE, address);
        assert_eq!(finding.await, Some(address));
        assert!(peers.is_member(NODE, address.fingerprint));
    }

    #[tokio::test]
    async fn find_returns_when_the_member_leaves() {
        let peers = Peers::default();
        peers.name(NODE);
        let mut finding = pin!(peers.find(NODE));
        assert_eq!(now(finding.as_mut()).await, None);
        peers.remove(NODE);
        assert_eq!(finding.await, None);
        assert_eq!(now(peers.wanted()).await, None);
    }
}
