//! I10: at every moment, the state in the tree of an attempt is a partition of the whole work: the states
//! below its tasks and the states in the committed outputs are exactly the states of the job's tree.
//!
//! In addition, a new attempt starts only if a node was lost that held more than it had written, and no task
//! counts more crashes than nodes were lost.

use std::collections::BTreeMap;

use zk::job::JobState;

use super::{Facts, Invariant, JobFacts, Seen, place, record};
use crate::workload::Truth;

#[derive(Default)]
pub(super) struct NothingIsLost {
    /// The most recent attempt at each job whose start was checked: later less is visible.
    begun: BTreeMap<String, u32>,
}

impl Invariant for NothingIsLost {
    fn name(&self) -> &'static str {
        "I10 (partition)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { ops, .. } = seen else { return Ok(()) };
        for op in *ops {
            if let Some((job, record)) = record(&facts.cluster, op)
                && record.attempt > 1
                && record.state == JobState::Running
                && let Some(known) = facts.job(job)
                && known.retried != Some(record.attempt)
                && self.begun.insert(job.to_owned(), record.attempt) != Some(record.attempt)
            {
                let before = record.attempt - 1;
                let lost = record.lost.iter().filter(|lost| lost.attempt == before);
                let unprotected = |node: &str| known.durable.is_unprotected(before, node);
                if known.latest == record.attempt && !lost.clone().any(|lost| unprotected(&lost.node)) {
                    let lost: Vec<&str> = lost.map(|lost| lost.node.as_str()).collect();
                    return Err(format!("attempt {before} ended although everything was written: {lost:?}"));
                }
            }
            let Some(at) = place(&facts.cluster, op.path()) else { continue };
            let (Some(attempt), Some(job)) = (at.attempt, facts.job(at.job)) else { continue };
            check(job, attempt)
                .and_then(|()| check_crashes(job, attempt, op.path()))
                .map_err(|what| format!("{}: {what}, after a write to {}", at.job, op.path()))?;
        }
        Ok(())
    }
}

fn check(job: &JobFacts, attempt: u32) -> Result<(), String> {
    // An attempt that is over is removed znode by znode.
    if attempt != job.latest || job.state.is_over() {
        return Ok(());
    }
    let Truth::Done(whole) = job.truth else { return Ok(()) };
    match job.durable.states(attempt) {
        Some(states) if states != whole.without(job.not_begun(attempt)) => {
            Err(format!("{} of {} states stand in the tree", states.states, whole.states))
        }
        _ => Ok(()),
    }
}

fn check_crashes(job: &JobFacts, attempt: u32, path: &str) -> Result<(), String> {
    match job.durable.crashes(attempt, path) {
        crashes if crashes > job.losses => {
            Err(format!("a task has {crashes} crashes, and {} nodes were lost", job.losses))
        }
        _ => Ok(()),
    }
}
