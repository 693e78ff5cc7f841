//! Turns changes of the seat's roster into events for the current job.

use std::{collections::BTreeSet, sync::Arc};

use zk::{Store as _, membership::Member};

use super::{Coordination, Roster};
use crate::{
    core::Event,
    id::{Attempt, NodeId},
};

impl Coordination {
    pub(super) async fn follow_members(self: Arc<Self>) {
        let (mut roster, mut known) = (self.roster.clone(), BTreeSet::new());
        loop {
            let now = self.with_a_part(&roster.borrow_and_update());
            for &gone in known.difference(&now) {
                let clean_in = self.left_cleanly(gone).await;
                self.tell(Event::Left { node: gone, clean_in }).await;
            }
            for &new in now.difference(&known) {
                self.tell(Event::Joined { node: new }).await;
            }
            known = now;
            // After any change: a node that came and went unseen may have taken part.
            self.member_gone.notify_one();
            if roster.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the members that work on the job.
    fn with_a_part(&self, roster: &Roster) -> BTreeSet<NodeId> {
        let works =
            |member: &Member| member.workers > 0 && self.require.missing_from(&member.labels).is_empty();
        roster.iter().filter(|(_, member)| works(member)).map(|(node, _)| *node).collect()
    }

    /// Returns the current attempt, if a node has left it cleanly.
    async fn left_cleanly(&self, node: NodeId) -> Option<Attempt> {
        let attempt = self.current_attempt().await?;
        let (paths, name) = (self.job_paths().attempt(attempt.0), node.to_string());
        let asking = || zk::accounting::left_cleanly(&*self.store, &paths, &name);
        self.persist("asking whether a node left cleanly", asking).await?.then_some(attempt)
    }

    async fn current_attempt(&self) -> Option<Attempt> {
        let reading = || async {
            // The server that answers may lag behind the one that reported the member.
            self.store.sync(&self.job_paths().record()).await?;
            zk::job::read(&*self.store, &self.cluster, &self.job.0).await
        };
        let (record, _) = self.persist("reading the job's record", reading).await?;
        Some(Attempt(record.attempt))
    }
}
