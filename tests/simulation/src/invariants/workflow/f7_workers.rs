//! F7: a node never runs more calls at a time, except for futures, than it has workers: otherwise it would use more memory and
//! processors than its operator allowed. (Messages are bounded by I6, and everything else by the framework's
//! own limits.)

use std::collections::{BTreeMap, BTreeSet};

use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct WorkersAtMost {
    workers: BTreeMap<NodeId, u32>,
    /// The running calls.
    running: BTreeMap<NodeId, BTreeSet<u64>>,
}

impl Invariant for WorkersAtMost {
    fn name(&self) -> &'static str {
        "F7 (bounds)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match step(seen) {
            Some((node, Step::Leads { workers, .. } | Step::Follows { workers, .. })) => {
                self.workers.insert(node, *workers);
            }
            Some((node, Step::Begins { call, takes_worker: true, .. })) => {
                let running = self.running.entry(node).or_default();
                if !running.insert(*call) {
                    return Err(format!("{node} runs call {call} twice at the same time"));
                }
                let workers = self.workers.get(&node).copied().unwrap_or(0);
                if running.len() > workers as usize {
                    return Err(format!("{node} runs {} calls on {workers} workers", running.len()));
                }
            }
            Some((node, Step::Ran { call, .. })) => {
                if let Some(running) = self.running.get_mut(&node) {
                    running.remove(call);
                }
            }
            // The runtime may restart the job on this node.
            Some((node, Step::Ends)) => drop(self.running.remove(&node)),
            _ => {}
        }
        Ok(())
    }
}
