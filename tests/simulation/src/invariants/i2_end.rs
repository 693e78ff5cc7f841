//! I2: the job is never declared done while a task of its current attempt is unfinished.
//!
//! More than that: no attempt's list is ever empty while a state of the attempt is open.

use zk::{Op, job::JobState};

use super::{Facts, Invariant, Seen, place, record};

pub(super) struct NeverTooEarly;

impl Invariant for NeverTooEarly {
    fn name(&self) -> &'static str {
        "I2 (end)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { ops, servers, .. } = seen else { return Ok(()) };
        for op in *ops {
            if record(&facts.cluster, op).is_some_and(|record| record.state == JobState::Done) {
                let open = facts.open(facts.latest);
                if open > 0 {
                    return Err(format!("the job is done, and {open} states are open"));
                }
            }
            let Op::Delete { path, .. } = op else { continue };
            let Some(at) = place(&facts.cluster, path) else { continue };
            let (Some(attempt), ["list", _]) = (at.attempt, &at.rest[..]) else { continue };
            let open = facts.open(attempt);
            if open == 0 {
                continue;
            }
            let list = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if servers.count(list) == Some(0) {
                return Err(format!("the list of attempt {attempt} is empty, and {open} states are open"));
            }
        }
        Ok(())
    }
}
