//! The members that a node accepts as peers, according to the znode tree.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{PoisonError, RwLock},
};

use tokio::sync::watch;

use super::Fingerprint;
use crate::id::NodeId;

/// A member's address, and the fingerprint of its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: Fingerprint,
}

/// The current members besides this node.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    table: RwLock<BTreeMap<NodeId, PeerAddress>>,
    /// Notified at each removal, so that connections can end.
    removals: watch::Sender<()>,
}

impl Peers {
    /// Adds a member.
    pub(crate) fn set(&self, node: NodeId, address: PeerAddress) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(node, address);
    }

    /// Removes a member, which is then no longer trusted.
    pub(crate) fn remove(&self, node: NodeId) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&node);
        self.removals.send_replace(());
    }

    pub(super) fn get(&self, node: NodeId) -> Option<PeerAddress> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    /// Returns whether this certificate is that of a current member.
    pub(super) fn knows(&self, fingerprint: Fingerprint) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().any(|peer| peer.fingerprint == fingerprint)
    }

    /// Returns whether a current member listens at this address, so that it also dials from there, unless a
    /// NAT changes the address.
    pub(super) fn listens_at(&self, address: SocketAddr) -> bool {
        let canonical = |of: SocketAddr| (of.ip().to_canonical(), of.port());
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().any(|peer| canonical(peer.address) == canonical(address))
    }

    /// Returns whether this is a current member with this certificate.
    pub(super) fn is_member(&self, node: NodeId, fingerprint: Fingerprint) -> bool {
        self.get(node).is_some_and(|peer| peer.fingerprint == fingerprint)
    }

    /// Waits until there is no member with this id and certificate.
    pub(super) async fn gone(&self, node: NodeId, fingerprint: Fingerprint) {
        self.removed(|| !self.is_member(node, fingerprint)).await;
    }

    /// Waits until there is no such member.
    pub(super) async fn absent(&self, node: NodeId) {
        self.removed(|| self.get(node).is_none()).await;
    }

    async fn removed(&self, gone: impl Fn() -> bool) {
        let mut removals = self.removals.subscribe();
        while !gone() {
            // The sender lives as long as `self`.
            let _ = removals.changed().await;
        }
    }
}
