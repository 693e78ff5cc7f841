//! F4: the end of a call is taken in once each time that the call was assigned, and only from the member to which it is
//! assigned. What a run of the program takes over from the one before it has not assigned itself.

use std::collections::BTreeMap;

use taskwork::NodeId;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

#[derive(Default)]
pub(in crate::invariants) struct TakenInOnce {
    /// Where each call runs, as far as each node that leads knows; `None` since its end was taken in.
    assigned: BTreeMap<(NodeId, u64), Option<u32>>,
}

impl Invariant for TakenInOnce {
    fn name(&self) -> &'static str {
        "F4 (taken in once)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Some((node, step)) = step(seen) else { return Ok(()) };
        match step {
            Step::Leads { .. } => self.assigned.retain(|(head, _), _| *head != node),
            Step::Assigns { call, to } => {
                self.assigned.insert((node, *call), Some(*to));
            }
            Step::TakesIn { call, from } => match self.assigned.insert((node, *call), None) {
                Some(None) => {
                    return Err(format!("{node} takes in the end of call {call} again, from member {from}"));
                }
                Some(Some(to)) if to != *from => {
                    let where_it_runs = format!("which runs on member {to}");
                    return Err(format!(
                        "{node} takes in the end of call {call} from member {from}, {where_it_runs}"
                    ));
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}
