//! All nodes know the members: a few seconds after the last fault no node sends messages to departed nodes,
//! and every member gets a share of the work as long as there is plenty.
//!
//! A node ignores steal requests of unknown nodes, so a node that joins unnoticed never gets any work.
//!
//! In addition, a job without remaining work is soon declared done, as long as a member can do so, regardless
//! of its leader's pending operations.

use std::collections::BTreeMap;

use taskwork::NodeId;
use zk::{Op, membership, tree::SessionId};

use super::{Facts, Invariant, Seen, place};
use crate::workload::Shape;

/// The time without faults after which all nodes know each other and have work, in milliseconds.
const HEARD_MS: u64 = 5_000;

/// The time after which a job without remaining work must be over, in milliseconds. Only an outage of the
/// servers, or a lack of nodes, may delay it further: other faults pass sooner.
const DECLARED_MS: u64 = 20_000;

#[derive(Default)]
pub(super) struct EverybodyIsKnown {
    /// The time since which no new faults occur.
    calm_since: Option<u64>,
    away: bool,
    stalled: bool,
    /// The time since which there is plenty of work.
    plenty_since: Option<u64>,
    members: BTreeMap<NodeId, Member>,
    gone: BTreeMap<NodeId, u64>,
    looked_at: u64,
    /// The time since which the first job is the only one of its program: nodes detect lost nodes of another
    /// job when they start on it.
    one_job_since: Option<u64>,
    /// The time since which each job has no remaining work.
    idle_since: BTreeMap<String, u64>,
}

struct Member {
    session: SessionId,
    says: membership::Member,
    /// The time of its last work, or of its start.
    worked_at: u64,
    leaves: bool,
}

impl Invariant for EverybodyIsKnown {
    fn name(&self) -> &'static str {
        "membership"
    }

    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Calm => self.calm_since = Some(now),
            Seen::ServersAway { away } => {
                self.away = *away;
                self.idle_since.clear();
                self.calm_since = self.calm_since.map(|_| now);
            }
            Seen::Stalled { stalled } => {
                self.stalled = *stalled;
                self.idle_since.clear();
                self.calm_since = self.calm_since.map(|_| now);
            }
            Seen::ToldToLeave { node } => {
                if let Some(member) = self.members.get_mut(node) {
                    member.leaves = true;
                }
            }
            // No node can know while no server answers.
            _ if self.away || self.stalled => {
                if let Seen::Wrote { session, ops, .. } = seen {
                    self.note(facts, now, *session, ops);
                }
            }
            Seen::Wrote { session, ops, .. } => {
                self.note(facts, now, *session, ops);
                self.one_job_since = facts.only_job().and(self.one_job_since.or(Some(now)));
                self.nothing_waits_for_its_end(facts, now)?;
                return self.nobody_starves(facts, now);
            }
            Seen::Worked { node, .. } => {
                if let Some(member) = self.members.get_mut(node) {
                    member.worked_at = now;
                }
                return self.nobody_starves(facts, now);
            }
            Seen::Sent { from, to, .. } if self.members.contains_key(from) => {
                let gone = self.gone.get(to).copied().max(self.calm_since).max(self.one_job_since);
                if self.gone.contains_key(to)
                    && self.calm_since.is_some()
                    && self.one_job_since.is_some()
                    && gone.is_some_and(|gone| now > gone + HEARD_MS)
                {
                    return Err(format!("{from} sends to {to}, which left long ago"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl EverybodyIsKnown {
    fn note(&mut self, facts: &Facts, now: u64, session: SessionId, ops: &[Op]) {
        if ops.is_empty() {
            let gone = self.members.iter().filter(|(_, member)| member.session == session);
            let gone: Vec<NodeId> = gone.map(|(&node, _)| node).collect();
            for node in gone {
                self.leave(node, now);
            }
        }
        for op in ops {
            if let Op::Create { path, .. } = op
                && place(&facts.cluster, path).is_some_and(|at| at.attempt.is_some() && at.rest.is_empty())
            {
                // All work starts from the root again.
                self.plenty_since = None;
            }
            let folder = facts.cluster.members();
            let name = op.path().strip_prefix(&folder).and_then(|name| name.strip_prefix('/'));
            let Some(node) = name.and_then(|name| name.parse::<NodeId>().ok()) else { continue };
            match op {
                Op::Create { data, .. } => {
                    // An unreadable record was written by a stranger.
                    let Ok(says) = serde_json::from_slice(data) else { continue };
                    self.members.insert(node, Member { session, says, worked_at: now, leaves: false });
                }
                Op::Delete { .. } => self.leave(node, now),
                _ => {}
            }
        }
    }

    fn leave(&mut self, node: NodeId, now: u64) {
        if self.members.remove(&node).is_some() {
            self.gone.insert(node, now);
        }
    }

    fn nothing_waits_for_its_end(&mut self, facts: &Facts, now: u64) -> Result<(), String> {
        for (id, record, is_idle) in facts.idle() {
            let leads = |member: &Member| !member.leaves && member.says.takes(record).is_ok();
            let is_led = self.members.values().any(leads);
            if !is_idle || !is_led {
                self.idle_since.remove(id);
                continue;
            }
            let since = *self.idle_since.entry(id.to_owned()).or_insert(now);
            if now > since + DECLARED_MS {
                return Err(format!("job {id} has no remaining work since {since} ms, and is not over"));
            }
        }
        Ok(())
    }

    fn nobody_starves(&mut self, facts: &Facts, now: u64) -> Result<(), String> {
        let spreads =
            facts.first().is_some_and(|job| matches!(job.shape, Shape::Random { .. } | Shape::Uts { .. }));
        let job = facts.only_job();
        let plenty = spreads && job.is_some() && facts.open() > 4 * facts.workers;
        self.plenty_since = plenty.then(|| self.plenty_since.unwrap_or(now));
        let (Some(calm), Some(plenty)) = (self.calm_since, self.plenty_since) else { return Ok(()) };
        if now < calm.max(plenty) + HEARD_MS || now == self.looked_at {
            return Ok(());
        }
        self.looked_at = now;
        let starves = |member: &Member| {
            let takes_part = job.is_some_and(|job| member.says.takes(job).is_ok());
            !member.leaves && takes_part && now > member.worked_at.max(calm).max(plenty) + HEARD_MS
        };
        match self.members.iter().find(|(_, member)| starves(member)) {
            Some((node, member)) => {
                let (since, open) = (member.worked_at, facts.open());
                Err(format!("{node} has done nothing since {since} ms, while {open} states are open"))
            }
            None => Ok(()),
        }
    }
}
