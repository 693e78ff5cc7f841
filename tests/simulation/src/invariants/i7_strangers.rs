//! I7: a peer that is not an authenticated member never receives a task, and its messages have no effect.
//!
//! A stranger puts messages into the inboxes of nodes, as if the transport had admitted it: steal requests,
//! and grants of a task that was never split off. I1 detects if such a task is executed, because its state
//! was never created.

use taskwork::{NodeId, simulation::carries_tasks};

use super::{Facts, Invariant, Seen};

/// The stranger's id, which no node ever has.
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
