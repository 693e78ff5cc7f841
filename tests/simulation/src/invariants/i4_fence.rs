//! I4: a node that has lost its ZooKeeper session changes nothing from then on: every write carries a fence.
//! Only the leader starts an attempt or writes a result.

use std::collections::{BTreeMap, BTreeSet};

use zk::{Op, tree::SessionId};

use super::{Facts, Invariant, Seen, place};
use crate::world::Servers;

#[derive(Default)]
pub(super) struct OnlyMembersAndLeadersWrite {
    /// The node that each session has made a member.
    nodes: BTreeMap<SessionId, String>,
    members: BTreeSet<String>,
}

impl Invariant for OnlyMembersAndLeadersWrite {
    fn name(&self) -> &'static str {
        "I4 (fence)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { session, ops, servers, .. } = seen else { return Ok(()) };
        let checked = self.check(facts, *session, ops, servers);
        for op in *ops {
            if let Some(node) =
                op.path().strip_prefix(&facts.cluster.members()).and_then(|it| it.strip_prefix('/'))
            {
                match op {
                    // An unreadable znode is not a member.
                    Op::Create { data, .. } if data.first() == Some(&b'{') => {
                        self.nodes.insert(*session, node.to_owned());
                        self.members.insert(node.to_owned());
                    }
                    Op::Delete { .. } => {
                        self.members.remove(node);
                    }
                    _ => {}
                }
            }
        }
        if ops.is_empty()
            && let Some(node) = self.nodes.get(session)
        {
            self.members.remove(node);
        }
        checked
    }
}

/// The folders that only members write to.
const OF_MEMBERS: [&str; 7] = ["list", "parked", "held", "transit", "txns", "outputs", "left"];

impl OnlyMembersAndLeadersWrite {
    fn check(&self, facts: &Facts, session: SessionId, ops: &[Op], servers: &Servers) -> Result<(), String> {
        // Any other session belongs to the submitter or to an operator.
        let Some(node) = self.nodes.get(&session) else { return Ok(()) };
        let (mut leads, mut takes_part) = (false, false);
        for op in ops {
            let Some(at) = place(&facts.cluster, op.path()) else { continue };
            if matches!(op, Op::Check { .. }) {
                continue;
            }
            // Nothing depends on an earlier attempt, or on any attempt of a job that is over: every member may remove it.
            let is_needed =
                |attempt| facts.job(at.job).is_none_or(|job| attempt >= job.latest && !job.state.is_over());
            match (at.attempt, &at.rest[..]) {
                (Some(attempt), []) if matches!(op, Op::Delete { .. }) && !is_needed(attempt) => {
                    takes_part = true;
                }
                (Some(_), []) | (None, ["result"]) => leads = true,
                (Some(_), [folder, ..]) if OF_MEMBERS.contains(folder) => takes_part = true,
                _ => {}
            }
        }
        if leads {
            return led_by_the_first(facts, ops, servers);
        }
        // A leader that is no longer a member continues to lead until its session ends; then its writes carry
        // the leader's fence.
        if takes_part && !self.members.contains(node) && led_by_the_first(facts, ops, servers).is_err() {
            return Err(format!("{node} is not a member, and has written {}", ops[0].path()));
        }
        Ok(())
    }
}

/// Checks that the write depends on the candidate with the lowest number.
fn led_by_the_first(facts: &Facts, ops: &[Op], servers: &Servers) -> Result<(), String> {
    let election = facts.cluster.election();
    let number = |name: &str| name.rsplit('~').next().and_then(|digits| digits.parse::<u64>().ok());
    let fence = ops.iter().find_map(|op| match op {
        Op::Check { path, .. } => path.strip_prefix(&election)?.strip_prefix('/'),
        _ => None,
    });
    // The candidates for the job of the write.
    let job = ops.iter().find_map(|op| Some(place(&facts.cluster, op.path())?.job));
    let group = job.unwrap_or_default();
    let candidates = servers.names(&election).into_iter();
    let rivals = candidates.filter(|name| number(name).is_some() && name.split('~').next() == Some(group));
    let first = rivals.min_by_key(|name| number(name));
    if fence.is_some() && fence == first.as_deref() {
        return Ok(());
    }
    Err(format!("only the leader may write this: fenced by {fence:?}, the leader is {first:?}"))
}
