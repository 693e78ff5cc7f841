//! Every candidate can lead: a node has one candidate for a job, and none for a job that is over.
//!
//! If a node had two candidates, the later one would wait for the earlier one, which the node does not
//! follow, and all others would wait too. A candidate that remains after the end of a job would prevent
//! others from leading it when it is retried.

use std::collections::BTreeMap;

use zk::{ClusterPaths, Op};

use super::{Facts, Invariant, Seen};
use crate::world::Servers;

/// The time after the end of a job for which a node may remain a candidate for it, in milliseconds: less than
/// it waits for workers that do not return.
const STANDS_MS: u64 = 3_000;

#[derive(Default)]
pub(super) struct CandidatesCanLead {
    /// The candidates, by the names of their znodes, with their jobs.
    standing: BTreeMap<String, String>,
    /// The times at which jobs ended.
    over_since: BTreeMap<String, u64>,
    /// The time since which no new faults occur.
    calm_since: Option<u64>,
}

impl Invariant for CandidatesCanLead {
    fn name(&self) -> &'static str {
        "candidates"
    }

    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Calm => self.calm_since = Some(now),
            Seen::Wrote { ops, servers, .. } => {
                check_single_candidate(&facts.cluster, ops, servers)?;
                let folder = facts.cluster.election();
                // An empty list means that a session has ended, and its candidate is deleted with it.
                if ops.is_empty() || ops.iter().any(|op| op.path().starts_with(&folder)) {
                    let names = servers.names(&folder).into_iter();
                    self.standing = names
                        .filter_map(|name| Some((job_of(&name)?, name)))
                        .map(|(job, name)| (name, job))
                        .collect();
                }
            }
            _ => {}
        }
        self.nobody_stands_for_what_is_over(facts, now)
    }
}

/// Checks the candidates that are created.
fn check_single_candidate(cluster: &ClusterPaths, ops: &[Op], servers: &Servers) -> Result<(), String> {
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

/// Returns the job of a candidate's name: `<job>~<node>~<number>`.
fn job_of(name: &str) -> Option<String> {
    let (job, rest) = name.split_once('~')?;
    rest.contains('~').then(|| job.to_owned())
}

impl CandidatesCanLead {
    fn nobody_stands_for_what_is_over(&mut self, facts: &Facts, now: u64) -> Result<(), String> {
        self.over_since.retain(|job, _| self.standing.values().any(|stands| stands == job));
        let is_over = |job: &String| facts.job(job).is_none_or(|job| job.state.is_over());
        for job in self.standing.values() {
            if is_over(job) {
                self.over_since.entry(job.clone()).or_insert(now);
            } else {
                self.over_since.remove(job);
            }
        }
        // A machine that is frozen, or does not reach the servers, cannot withdraw its candidate.
        let Some(calm) = self.calm_since.filter(|_| facts.machines_run) else { return Ok(()) };
        for (name, job) in &self.standing {
            if let Some(since) = self.over_since.get(job)
                && now > calm.max(*since) + STANDS_MS
            {
                return Err(format!("{name} stands for election although the job is over since {since} ms"));
            }
        }
        Ok(())
    }
}
