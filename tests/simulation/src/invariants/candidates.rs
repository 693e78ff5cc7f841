//! Every candidate can lead: a node has one candidate, and a node whose workers have not returned from a job
//! that is over has none.
//!
//! If a node had two candidates, the later one would wait for the earlier one, which the node does not
//! follow, and all others would wait, too. A node without workers cannot take the next job, and all
//! candidates behind it would wait for it to lead.

use std::collections::{BTreeMap, BTreeSet};

use taskwork::NodeId;
use zk::{ClusterPaths, Op};

use super::{Facts, Invariant, Seen};
use crate::world::Servers;

/// How long after the end of its job a node whose workers have not returned may remain a candidate, in
/// milliseconds: longer than the node waits for them, shorter than it keeps its seat without them.
const STANDS_MS: u64 = 3_000;

#[derive(Default)]
pub(super) struct CandidatesCanLead {
    /// The nodes that are candidates.
    standing: BTreeSet<NodeId>,
    /// The nodes with a task that does not stop.
    stuck: BTreeMap<NodeId, StuckTask>,
    /// The time since which no new faults occur.
    calm_since: Option<u64>,
}

/// A task that does not check whether it should stop.
struct StuckTask {
    job: String,
    /// The time at which it returns, in milliseconds.
    until: u64,
    /// The time at which its job was over, or the last time at which it was not.
    over_since: u64,
    over: bool,
}

impl Invariant for CandidatesCanLead {
    fn name(&self) -> &'static str {
        "candidates"
    }

    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Calm => self.calm_since = Some(now),
            Seen::Stuck { node, until } => {
                if let Some((job, _)) = facts.attempt_of.get(node) {
                    let task = StuckTask { job: job.clone(), until: *until, over_since: now, over: false };
                    self.stuck.insert(*node, task);
                }
            }
            Seen::Wrote { ops, servers, .. } => {
                stands_once(&facts.cluster, ops, servers)?;
                let folder = facts.cluster.election();
                // Without operations a session has ended, and its candidate is deleted with it.
                if ops.is_empty() || ops.iter().any(|op| op.path().starts_with(&folder)) {
                    self.standing = servers.names(&folder).iter().filter_map(|name| node_of(name)).collect();
                }
            }
            _ => {}
        }
        self.note_ends(facts, now);
        self.nobody_stands_without_workers(facts, now)
    }
}

/// Checks the candidates that are created.
fn stands_once(cluster: &ClusterPaths, ops: &[Op], servers: &Servers) -> Result<(), String> {
    let folder = cluster.election();
    for op in ops {
        let Op::Create { path, .. } = op else { continue };
        let Some(name) = path.strip_prefix(&folder).and_then(|name| name.strip_prefix('/')) else {
            continue;
        };
        // The number is assigned by the servers; the part before it identifies the node.
        let count = servers.names(&folder).iter().filter(|other| other.starts_with(name)).count();
        if name.ends_with('~') && count > 1 {
            return Err(format!("{name} stands for election {count} times"));
        }
    }
    Ok(())
}

/// Returns the node of a candidate's name: `<program>@<version>~<node>~<number>`.
fn node_of(name: &str) -> Option<NodeId> {
    name.rsplit('~').nth(1)?.parse().ok()
}

impl CandidatesCanLead {
    fn note_ends(&mut self, facts: &Facts, now: u64) {
        self.stuck.retain(|_, task| now < task.until);
        for task in self.stuck.values_mut().filter(|task| !task.over) {
            task.over_since = now;
            task.over = facts.job(&task.job).is_none_or(|job| job.state.is_over());
        }
    }

    fn nobody_stands_without_workers(&self, facts: &Facts, now: u64) -> Result<(), String> {
        // A machine that is frozen, or does not reach the servers, cannot withdraw its candidate.
        let Some(calm) = self.calm_since.filter(|_| facts.machines_run) else { return Ok(()) };
        let stands = |(node, task): &(&NodeId, &StuckTask)| {
            task.over && now > task.over_since.max(calm) + STANDS_MS && self.standing.contains(node)
        };
        match self.stuck.iter().find(stands) {
            Some((node, StuckTask { job, over_since, .. })) => Err(format!(
                "{node} stands for election, though job {job} is over since {over_since} ms and a task of it \
                 goes on"
            )),
            None => Ok(()),
        }
    }
}
