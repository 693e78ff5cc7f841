//! Companions: a node has at most one for a job; it receives only messages that another companion of the same
//! job has sent to it; an object that it fetches has the offered content; and it is asked to rescue its data before its node leaves the job.

use std::collections::BTreeSet;

use taskwork::NodeId;
use zk::Op;

use super::{Facts, Invariant, Place, Seen, place};
use crate::workload::companion::Step;

#[derive(Debug, Default)]
pub(super) struct CompanionsAreKept {
    /// The running companions, and whether each reads its messages at once.
    run: BTreeSet<(NodeId, String)>,
    willing: BTreeSet<(NodeId, String)>,
    asked: BTreeSet<(NodeId, String)>,
    /// The messages: sender, receiver, job and content.
    sent: BTreeSet<(NodeId, NodeId, String, u64)>,
}

impl Invariant for CompanionsAreKept {
    fn name(&self) -> &'static str {
        "companions"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Companion { node, job, step } => self.step(*node, job, *step),
            Seen::Wrote { ops, .. } => {
                for op in *ops {
                    if let Op::Create { path, .. } = op
                        && let Some(Place { job, attempt: Some(_), rest }) = place(&facts.cluster, path)
                        && let ["left", node] = rest[..]
                        && let Ok(node) = node.parse()
                    {
                        self.check_leave(node, job)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl CompanionsAreKept {
    fn step(&mut self, node: NodeId, job: &str, step: Step) -> Result<(), String> {
        let its = (node, job.to_owned());
        match step {
            Step::Begins { willing } => {
                if willing {
                    self.willing.insert(its.clone());
                }
                if !self.run.insert(its) {
                    return Err(format!("{node} has two companions for {job}"));
                }
            }
            Step::Sends { to, content } => drop(self.sent.insert((node, to, its.1, content))),
            Step::Hears { from, content } => {
                if !self.sent.contains(&(from, node, its.1, content)) {
                    return Err(format!("{node} hears {content} of {from} for {job}, which was not sent"));
                }
            }
            Step::Fetches { from, is_right } => {
                if !is_right {
                    return Err(format!("{node} has fetched another content than {from} offers for {job}"));
                }
            }
            Step::Rescues => drop(self.asked.insert(its)),
            Step::Ends => {
                self.run.remove(&its);
                self.willing.remove(&its);
                self.asked.remove(&its);
            }
        }
        Ok(())
    }

    fn check_leave(&self, node: NodeId, job: &str) -> Result<(), String> {
        let its = (node, job.to_owned());
        if self.willing.contains(&its) && !self.asked.contains(&its) {
            return Err(format!("{node} leaves {job}, and its companion was not asked to rescue anything"));
        }
        Ok(())
    }
}
