//! F8: a stale coordinator changes nothing: once a node follows a run of the program, it does not return to
//! an earlier run, as long as the coordinator that it follows is a member. Otherwise two runs would give it
//! conflicting instructions on data to drop.

use std::collections::BTreeMap;

use dataflow_framework::simulation::Run;
use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct NeverBack {
    /// The run that each node follows, or leads.
    runs: BTreeMap<NodeId, Run>,
    /// The node that leads each run.
    coordinators: BTreeMap<Run, NodeId>,
}

impl Invariant for NeverBack {
    fn name(&self) -> &'static str {
        "F8 (stale coordinator)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match step(seen) {
            Some((node, Step::Leads { run, .. })) => {
                self.coordinators.insert(*run, node);
                self.runs.insert(node, *run);
            }
            Some((node, Step::Follows { run, .. })) => {
                let before = self.runs.insert(node, *run);
                let goes_back = before.filter(|before| before.0 > run.0);
                let coordinator = goes_back.and_then(|before| self.coordinators.get(&before).copied());
                if let Some(coordinator) = coordinator.filter(|coordinator| facts.is_member(*coordinator)) {
                    return Err(format!(
                        "{node} returns to the run {run:?}, although {coordinator} is a member"
                    ));
                }
            }
            // It may have left the job, and still be a member.
            Some((node, Step::Ends)) => {
                self.runs.remove(&node);
                self.coordinators.retain(|_, coordinator| *coordinator != node);
            }
            _ => {}
        }
        Ok(())
    }
}
