//! I2: the job is never declared done while a task of its current attempt is unfinished.
//!
//! In addition, no attempt's list is ever empty while a state of the attempt is open, or a task of it is in
//! the tree.

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
            if let Some((job, record)) = record(&facts.cluster, op)
                && matches!(record.state, JobState::Done | JobState::Incomplete)
            {
                let open = facts.job(job).map_or(0, |job| job.unfinished(job.latest));
                if open > 0 {
                    return Err(format!("the job is done, and {open} states or tasks are open"));
                }
                if facts.job(job).is_some_and(|job| job.is_open) {
                    return Err("the job is done, although tasks may be added".to_owned());
                }
                let set_aside = facts.job(job).map_or(0, |job| job.durable.set_aside(job.latest).0);
                if (set_aside > 0) != (record.state == JobState::Incomplete) {
                    return Err(format!(
                        "the job is {:?}, and {set_aside} tasks are set aside",
                        record.state
                    ));
                }
            }
            let Op::Delete { path, .. } = op else { continue };
            let Some(at) = place(&facts.cluster, path) else { continue };
            let (Some(attempt), ["list", _]) = (at.attempt, &at.rest[..]) else { continue };
            // All znodes of a cancelled job are removed when it is forgotten.
            let job = facts.job(at.job).filter(|job| !job.state.is_over());
            let open = job.map_or(0, |job| job.unfinished(attempt));
            if open == 0 {
                continue;
            }
            let list = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if servers.count(list) == Some(0) {
                return Err(format!(
                    "the list of attempt {attempt} is empty, and {open} states or tasks are open"
                ));
            }
        }
        Ok(())
    }
}
