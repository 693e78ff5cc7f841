//! I5: while ZooKeeper is unavailable, workers continue to search and nodes continue to steal.
//!
//! This is only checked if there are no other faults. Then, as long as there is plenty of work, at least a
//! quarter of the possible work of all workers must be done. Without steals that would be impossible, because
//! the tree is too unbalanced.

use super::{Facts, Invariant, Seen};
use crate::workload::Shape;

#[derive(Default)]
pub(super) struct WorkGoesOn {
    away: Option<Away>,
    done: u64,
}

struct Away {
    since: u64,
    done_before: u64,
}

/// The duration below which an outage is not checked, in milliseconds.
const SHORT_MS: u64 = 300;

impl Invariant for WorkGoesOn {
    fn name(&self) -> &'static str {
        "I5 (autonomy)"
    }

    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Worked { done, .. } => self.done += done.consumed.len() as u64,
            Seen::ServersAway { away: true } => {
                let plenty = self.done > 100 && facts.open() > 4 * facts.workers;
                let judged = facts.only_servers
                    && plenty
                    && facts
                        .first()
                        .is_some_and(|job| matches!(job.shape, Shape::Random { .. } | Shape::Uts { .. }));
                self.away = judged.then_some(Away { since: now, done_before: self.done });
            }
            Seen::ServersAway { away: false } => {
                let Some(Away { since, done_before }) = self.away.take() else { return Ok(()) };
                let (ms, done) = (now - since, self.done - done_before);
                let could = facts.workers as u64 * facts.states_per_s * ms / 1000;
                let plenty = facts.open() > 4 * facts.workers;
                if ms >= SHORT_MS && plenty && done < could / 4 {
                    return Err(format!(
                        "in {ms} ms without servers {done} of {could} possible states were done"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
