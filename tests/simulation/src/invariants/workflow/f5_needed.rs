//! F5 and F9: nothing that is needed is forgotten, and a clean drain has nothing made again. Both show in calls that run
//! to their ends twice although no node was lost. What makes that impossible to say, such as a node that stands still
//! until others take it for lost, is not among the faults of the plans in which it is checked.

use std::collections::BTreeSet;

use dataflow_framework::simulation::How;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct NothingTwice {
    /// The calls that have run to their ends.
    done: BTreeSet<u64>,
    /// Whether a member was lost.
    has_losses: bool,
}

impl Invariant for NothingTwice {
    fn name(&self) -> &'static str {
        "F5, F9 (nothing is made again)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        self.has_losses |= facts.losses > 0;
        if let Some((node, Step::Ran { call, how: How::Written | How::Ignored })) = step(seen) {
            let is_first = self.done.insert(*call);
            if !is_first && facts.only_leaves && !self.has_losses {
                return Err(format!("call {call} runs to its end again, on {node}, and no node was lost"));
            }
        }
        Ok(())
    }
}
