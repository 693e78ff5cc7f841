//! F3: a call starts with all of its inputs, unchanged, on the node where it runs: otherwise it would read
//! missing data, or data that another call is changing.

use std::collections::{BTreeMap, BTreeSet};

use dataflow_framework::simulation::Version;
use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct AllInputs {
    /// The hash of each version.
    values: BTreeMap<Version, u128>,
    /// The nodes that have held each version.
    held: BTreeSet<(NodeId, Version)>,
}

impl Invariant for AllInputs {
    fn name(&self) -> &'static str {
        "F3 (inputs)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match step(seen) {
            Some((node, Step::Holds { version, value, .. })) => {
                self.values.entry(*version).or_insert(*value);
                self.held.insert((node, *version));
            }
            Some((node, Step::Begins { call, reads, .. })) => {
                for (version, value) in reads {
                    if !self.held.contains(&(node, *version)) {
                        return Err(format!("call {call} starts on {node}, which never had {version:?}"));
                    }
                    if self.values.get(version) != Some(value) {
                        return Err(format!(
                            "call {call} reads another value of {version:?} than was written"
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
