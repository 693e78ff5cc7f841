//! F4: the end of a call is taken in once each time that the call was assigned, and only from the member to which it is
//! assigned, or on which it was found to run when the program began anew.

use std::collections::BTreeMap;

use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct TakenInOnce {
    /// Where each call runs whose end was not taken in yet, as far as each node that leads knows.
    assigned: BTreeMap<(NodeId, u64), u32>,
}

impl Invariant for TakenInOnce {
    fn name(&self) -> &'static str {
        "F4 (taken in once)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Some((node, step)) = step(seen) else { return Ok(()) };
        match step {
            Step::Ends => self.assigned.retain(|(head, _), _| *head != node),
            Step::Assigns { call, to } => {
                self.assigned.insert((node, *call), *to);
            }
            // It was given back, or its member is gone: what was assigned counts no longer.
            Step::Waits { call } => drop(self.assigned.remove(&(node, *call))),
            Step::TakesIn { call, from } => {
                let to = self.assigned.remove(&(node, *call));
                if to != Some(*from) {
                    let runs = to.map_or("runs nowhere".to_owned(), |to| format!("runs on member {to}"));
                    return Err(format!(
                        "{node} takes in the end of call {call} from member {from}, and it {runs}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
