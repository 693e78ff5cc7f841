//! F5 and F9: no needed data is dropped, and a clean drain causes no recomputation. Both are violated by
//! calls that run to their ends twice although no node was lost. Faults that make this undecidable, such as a
//! node that stalls until others consider it lost, are not part of the checked plans.
//!
//! One recomputation is allowed: a call that fails, or whose failure is ignored, while the coordinator
//! leaves. The failure may be unrecorded, so the call may run again, and so may the calls that computed its inputs.

use std::collections::{BTreeMap, BTreeSet};

use dataflow_framework::simulation::How;
use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct NothingTwice {
    /// The calls that have run to their ends.
    done: BTreeSet<u64>,
    /// The calls whose versions each one reads.
    reads: BTreeMap<u64, BTreeSet<u64>>,
    /// The calls that have failed while a coordinator was leaving, with all their dependencies.
    may_run_again: BTreeSet<u64>,
    /// The nodes that were asked to leave.
    leaving: BTreeSet<NodeId>,
    /// Whether the node that leads is leaving.
    coordinator_leaves: bool,
    /// Whether a member was lost.
    has_losses: bool,
}

impl NothingTwice {
    /// Records that a call may run again, which may require all its dependencies again.
    fn allow_rerun(&mut self, call: u64) {
        let mut next = vec![call];
        while let Some(call) = next.pop() {
            if self.may_run_again.insert(call) {
                next.extend(self.reads.get(&call).into_iter().flatten());
            }
        }
    }
}

impl Invariant for NothingTwice {
    fn name(&self) -> &'static str {
        "F5, F9 (nothing is made again)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        self.has_losses |= facts.losses > 0;
        if let Seen::ToldToLeave { node } = seen {
            self.leaving.insert(*node);
            self.coordinator_leaves |= facts.coordinator == Some(*node);
        }
        let Some((node, step)) = step(seen) else { return Ok(()) };
        match step {
            Step::Leads { .. } => self.coordinator_leaves = self.leaving.contains(&node),
            Step::Begins { call, reads, .. } => {
                self.reads.entry(*call).or_default().extend(reads.iter().map(|(version, _)| version.call));
            }
            Step::Ran { call, how: How::Failed | How::Ignored } if self.coordinator_leaves => {
                self.allow_rerun(*call);
            }
            _ => {}
        }
        if let Step::Ran { call, how: How::Written | How::Ignored } = step {
            let is_first = self.done.insert(*call);
            if !is_first && facts.only_leaves && !self.has_losses && !self.may_run_again.contains(call) {
                return Err(format!("call {call} runs to its end again, on {node}, and no node was lost"));
            }
        }
        Ok(())
    }
}
