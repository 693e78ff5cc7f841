//! I7: a peer that is not an authenticated member is never given a task nor believed.
//!
//! A stranger gets messages into the inboxes of nodes, as if the transport had let it in: steal requests, and
//! grants of a task that nobody split off. That no such task is worked on is seen by I1: its state never came
//! into being.

use taskwork::{NodeId, simulation::carries_tasks};

use super::{Facts, Invariant, Seen};

/// The name under which the stranger speaks. No node is ever given it.
pub(crate) const STRANGER: NodeId = NodeId(0xbad);

pub(super) struct StrangersGetNothing;

impl Invariant for StrangersGetNothing {
    fn name(&self) -> &'static str {
        "I7 (strangers)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Sent { from, to: STRANGER, payload } if carries_tasks(payload) => {
                Err(format!("{from} has granted a task to a stranger"))
            }
            _ => Ok(()),
        }
    }
}
