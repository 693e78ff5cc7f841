//! Turns changes of the seat's roster into events for a job.

use std::{collections::BTreeSet, sync::Arc};

use zk::{Labels, Store as _};

use super::Coordination;
use crate::{
    core::Event,
    id::{Attempt, NodeId},
    shell::roster::Roster,
};

impl Coordination {
    pub(super) async fn follow_members(self: Arc<Self>) {
        let mut known = BTreeSet::new();
        loop {
            let (changes, all) = self.others.now();
            self.tell(Event::Roster { nodes: all.len() }).await;
            let now = with_a_part(&all, &self.require);
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
            self.others.changed(changes).await;
        }
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

/// Returns the members that work on jobs which require these labels.
fn with_a_part(roster: &Roster, require: &Labels) -> BTreeSet<NodeId> {
    roster.iter().filter(|(_, member)| member.has(require).is_ok()).map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests {
    use zk::membership::Member;

    use super::*;

    #[test]
    fn nodes_without_the_labels_or_without_workers_have_no_part() {
        let member = |labels: &str, workers: u32| Member {
            node: String::new(),
            address: None,
            fingerprint: String::new(),
            workers,
            memory_bytes: 0,
            labels: labels.parse().unwrap(),
            program: String::new(),
            program_version: String::new(),
            started_ms: 0,
        };
        let members = [member("zone=a,gpu=yes", 1), member("zone=b", 1), member("zone=a", 0)];
        let roster: Roster = Arc::new((1..).map(NodeId).zip(members.into_iter().map(Arc::new)).collect());
        assert_eq!(with_a_part(&roster, &"zone=a".parse().unwrap()), BTreeSet::from([NodeId(1)]));
        assert_eq!(with_a_part(&roster, Labels::NONE), BTreeSet::from([NodeId(1), NodeId(2)]));
    }
}
