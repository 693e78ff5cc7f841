//! F4: the end of a call is applied once per assignment, and only if it comes from the member to which the
//! call is assigned, or on which it was found running when the program restarted.

use std::collections::BTreeMap;

use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct TakenInOnce {
    /// The member that runs each call whose end was not applied yet, as known by each coordinator.
    assigned: BTreeMap<(NodeId, u64), u32>,
}

impl Invariant for TakenInOnce {
    fn name(&self) -> &'static str {
        "F4 (taken in once)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Some((node, step)) = step(seen) else { return Ok(()) };
        match step {
            Step::Ends => self.assigned.retain(|(coordinator, _), _| *coordinator != node),
            Step::Assigns { call, to } => {
                self.assigned.insert((node, *call), *to);
            }
            // It was returned, or its member is gone: the assignment is no longer valid.
            Step::Waits { call } => drop(self.assigned.remove(&(node, *call))),
            Step::TakesIn { call, from } => {
                let to = self.assigned.remove(&(node, *call));
                if to != Some(*from) {
                    let runs = to.map_or("runs nowhere".to_owned(), |to| format!("runs on member {to}"));
                    return Err(format!(
                        "{node} applies the end of call {call} from member {from}, and it {runs}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
