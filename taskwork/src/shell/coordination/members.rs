//! Turns changes of the seat's roster into events for a job.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use zk::{Labels, Store as _};

use super::Coordination;
use crate::{
    core::Event,
    id::{Attempt, NodeId},
    shell::roster::{Known, Place, Roster},
};

/// A member that may work on the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its record was not read yet, so it may turn out to be ineligible.
    Unread,
    Known {
        near: bool,
    },
}

/// A change to report to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The node is no longer a member.
    Left(NodeId),
    /// The node is a member, but cannot take part in the job.
    Apart(NodeId),
    /// The node's part has changed to this one.
    Is(NodeId, Part),
}

impl Coordination {
    pub(super) async fn follow_members(self: Arc<Self>) {
        let (mut place, mut reported) = (Place::default(), BTreeMap::new());
        loop {
            let (changes, (others, changed)) = self.others.look(|roster| {
                let changed = roster.changed_since(&mut place);
                let changed =
                    changed.unwrap_or_else(|| roster.nodes().chain(reported.keys().copied()).collect());
                let changes = changes(roster, &changed, &mut reported, &self.require);
                self.notify_companion(&changes);
                (roster.others(), changes)
            });
            self.notify_driver(Event::Roster { nodes: others }).await;
            for change in changed {
                self.notify_driver(match change {
                    Change::Left(node) => {
                        let clean_in = self.left_cleanly(node).await;
                        Event::Left { node, clean_in }
                    }
                    Change::Apart(node) => Event::Apart { node },
                    Change::Is(node, Part::Unread) => Event::Joined { node },
                    Change::Is(node, Part::Known { near }) => Event::Known { node, near },
                })
                .await;
            }
            // After any change: a node that came and went unseen may have taken part.
            self.member_gone.notify_one();
            self.others.changed(changes).await;
        }
    }

    fn notify_companion(&self, changes: &[Change]) {
        let Some(host) = &self.companion else { return };
        for change in changes {
            match *change {
                Change::Left(node) | Change::Apart(node) => host.desk.node(node, false),
                Change::Is(node, _) => host.desk.node(node, true),
            }
        }
    }

    /// Returns the current attempt if a node has left it cleanly.
    async fn left_cleanly(&self, node: NodeId) -> Option<Attempt> {
        let attempt = self.current_attempt().await?;
        let (paths, name) = (self.job_paths().attempt(attempt.0), node.to_string());
        let asking = || zk::accounting::left_cleanly(&*self.store, &paths, &name);
        self.persist("asking whether a node left cleanly", asking).await?.then_some(attempt)
    }

    async fn current_attempt(&self) -> Option<Attempt> {
        let reading = || async {
            // The answering server may lag behind the server that reported the member.
            self.store.sync(&self.job_paths().record()).await?;
            zk::job::read(&*self.store, &self.cluster, &self.job.0).await
        };
        let (record, _) = self.persist("reading the job's record", reading).await?;
        Some(Attempt(record.attempt))
    }
}

/// Returns the changes for the job, departures first, and updates the reported state.
fn changes(
    roster: &Roster,
    changed: &BTreeSet<NodeId>,
    reported: &mut BTreeMap<NodeId, Part>,
    require: &Labels,
) -> Vec<Change> {
    let (mut gone, mut here) = (Vec::new(), Vec::new());
    for &node in changed {
        let known = roster.get(node);
        match known.and_then(|known| part(known, require)) {
            Some(part) if reported.insert(node, part) != Some(part) => here.push(Change::Is(node, part)),
            Some(_) => {}
            None if reported.remove(&node).is_none() => {}
            None if known.is_some() => gone.push(Change::Apart(node)),
            None => gone.push(Change::Left(node)),
        }
    }
    gone.extend(here);
    gone
}

/// Returns a member's part in jobs that require these labels; `Unread` if its record was not read.
fn part(known: &Known, require: &Labels) -> Option<Part> {
    match known {
        Known::Name => Some(Part::Unread),
        Known::Peer { member, near } => member.has(require).is_ok().then_some(Part::Known { near: *near }),
        Known::Apart => None,
    }
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
            host: "gpu-17".to_owned(),
            pid: 17,
        };
        let members = [member("zone=a,gpu=yes", 1), member("zone=b", 1), member("zone=a", 0)];
        let mut roster = Roster::default();
        for (node, member) in (1..).zip(members) {
            roster.set(NodeId(node), Known::Peer { member: Arc::new(member), near: node == 1 });
        }
        let all: BTreeSet<NodeId> = roster.nodes().collect();
        let changes = |require: &Labels| changes(&roster, &all, &mut BTreeMap::new(), require);
        let known = |node, near| Change::Is(NodeId(node), Part::Known { near });
        assert_eq!(changes(&"zone=a".parse().unwrap()), [known(1, true)]);
        assert_eq!(changes(Labels::NONE), [known(1, true), known(2, false)]);
    }

    #[test]
    fn unread_member_counts_until_its_record_excludes_it() {
        let (mut roster, mut reported) = (Roster::default(), BTreeMap::new());
        let [a, b] = [NodeId(1), NodeId(2)];
        let all = BTreeSet::from([a, b]);
        let mut changes = |roster: &Roster| changes(roster, &all, &mut reported, Labels::NONE);
        for node in &all {
            roster.set(*node, Known::Name);
        }
        assert_eq!(changes(&roster), [Change::Is(a, Part::Unread), Change::Is(b, Part::Unread)]);
        assert_eq!(changes(&roster), []);
        roster.set(a, Known::Apart);
        roster.remove(b);
        assert_eq!(changes(&roster), [Change::Apart(a), Change::Left(b)]);
        roster.remove(a);
        assert_eq!(changes(&roster), [], "it had no part any more");
    }
}
