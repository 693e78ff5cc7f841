//! Who is there: membership becomes events, and the table of peers that the transport trusts.

use std::sync::Arc;

use zk::membership::{Change, Member, Roll};

use super::Coordination;
use crate::{
    core::Event,
    id::{Attempt, NodeId},
    shell::transport::PeerAddress,
};

impl Coordination {
    pub(super) async fn follow_members(self: Arc<Self>) {
        let open = || Roll::open(Arc::clone(&self.store), &self.cluster);
        let Some(mut roll) = self.persist("watching the members", open).await else { return };
        loop {
            match roll.next().await {
                Ok(Change::Joined(member)) => self.joined(&member).await,
                Ok(Change::Left(name)) => self.left(&name).await,
                Err(zk::Error::SessionExpired) => return,
                Err(error) => {
                    tracing::debug!(node = %self.node, %error, "the members could not be read; it is tried again");
                    tokio::time::sleep(super::RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn joined(&self, member: &Member) {
        let Some(node) = self.other(&member.node) else { return };
        let (Some(address), Ok(fingerprint)) = (member.address, member.fingerprint.parse()) else {
            tracing::warn!(node = %self.node, member = %node, "a member without a usable address is passed over");
            return;
        };
        self.peers.set(node, PeerAddress { address, fingerprint });
        tracing::debug!(node = %self.node, member = %node, "a node has joined");
        self.tell(Event::Joined { node }).await;
    }

    async fn left(&self, name: &str) {
        let Some(node) = self.other(name) else { return };
        self.peers.remove(node);
        let clean = self.left_cleanly(name).await;
        tracing::debug!(node = %self.node, member = %node, clean, "a node has left");
        self.tell(Event::Left { node, clean }).await;
        self.member_gone.notify_one();
    }

    /// Whether a node has left the current attempt with nothing in its hands.
    async fn left_cleanly(&self, name: &str) -> bool {
        let Some(attempt) = self.current_attempt().await else { return false };
        let paths = self.job_paths().attempt(attempt.0);
        let asking = || zk::accounting::left_cleanly(&*self.store, &paths, name);
        self.persist("asking whether a node left cleanly", asking).await.unwrap_or(false)
    }

    async fn current_attempt(&self) -> Option<Attempt> {
        let reading = || zk::job::read(&*self.store, &self.cluster, &self.job.0);
        let (record, _) = self.persist("reading the job's record", reading).await?;
        Some(Attempt(record.attempt))
    }

    /// The id of a member that is not this node.
    fn other(&self, name: &str) -> Option<NodeId> {
        match name.parse() {
            Ok(node) if node == self.node => None,
            Ok(node) => Some(node),
            Err(error) => {
                tracing::warn!(node = %self.node, %error, "a member with a name that is none is passed over");
                None
            }
        }
    }
}
