//! The checks at the end of a run: every job is over as it may be, and every node leaves when asked to.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use zk::job::{JobRecord, JobState};

use super::{LEAVE_MS, Stage};
use crate::{invariants::JobFacts, plan::Kind, workload::Shape};

impl Stage<'_> {
    /// Returns whether every job is submitted and over. A job that was never completely submitted does not
    /// count.
    pub(super) fn all_over(&mut self) -> bool {
        if self.submitted.load(Relaxed) < self.plan.later.len() {
            return false;
        }
        for job in self.jobs() {
            if self.over.contains(&job) {
                continue;
            }
            let Some(record) = self.record_of(&job) else { continue };
            if record.state == JobState::Incomplete {
                self.judge(&job, &record);
                if self.retry_if_planned(&job, record.attempt) {
                    return false;
                }
            }
            if record.state.is_over() {
                self.judge(&job, &record);
                self.over.insert(job);
            } else if record.state != JobState::Submitting {
                return false;
            }
        }
        true
    }

    /// Checks whether a job was allowed to end as it did.
    fn judge(&self, job: &str, record: &JobRecord) {
        let lost = self.world.with(|state| state.counts.members_lost);
        let given_up = record.attempt >= record.attempts_max && lost >= u64::from(record.attempts_max);
        let deadly = |facts: &JobFacts| matches!(facts.shape, Shape::Deadly { .. });
        let deadly = self.world.with(|state| state.invariants.facts.job(job).is_some_and(deadly));
        let fails = |facts: &JobFacts| matches!(&facts.shape, Shape::Workflow(recipe) if recipe.fails());
        let fails = self.world.with(|state| state.invariants.facts.job(job).is_some_and(fails));
        let crashes_max = u64::from(record.crashes_max);
        let fine = match record.state {
            JobState::Done => !deadly && !fails,
            // A machine may repeatedly be lost with an innocent task too.
            JobState::Incomplete => crashes_max > 0 && (deadly || lost >= crashes_max),
            JobState::Cancelled => self.stopped.contains(job),
            JobState::Failed => given_up || fails,
            _ => false,
        };
        if !fine {
            let JobRecord { state, attempt, reason, .. } = record;
            self.violate(format!(
                "{job} is {state:?} in attempt {attempt}: {reason:?}; {lost} members were lost"
            ));
        }
    }

    pub(super) fn check_end(&mut self, now: u64) {
        if self.plan.kind == Kind::Weights
            && let Some(what) = self.world.with(|state| state.invariants.shares.unfair())
        {
            self.violate(what);
        }
        if self.failed() || self.all_over() {
            return;
        }
        for job in self.jobs() {
            let Some(record) = self.record_of(&job) else { continue };
            let is_retried = self.retried.get(&job).is_some_and(|after| after.contains(&record.attempt));
            if record.state.is_over() && !(record.state == JobState::Incomplete && is_retried) {
                continue;
            }
            let open = self
                .world
                .with(|state| state.invariants.facts.job(&job).map_or(0, |facts| facts.open(facts.latest)));
            let JobRecord { state, attempt, .. } = record;
            self.violate(format!(
                "after {now} ms, long after the faults, {open} states of {job} are open and it is {state:?} \
                 in attempt {attempt}"
            ));
        }
    }

    /// Checks that every node leaves when asked to, after all jobs are over.
    pub(super) async fn leave(&mut self) {
        let told = self.world.now();
        for machine in self.world.with(|state| state.machines.living()) {
            self.request_leave(machine);
        }
        for (machine, process) in std::mem::take(&mut self.processes) {
            if self.world.with(|state| state.machines.is_dead(machine)) {
                continue;
            }
            let left = Duration::from_millis((told + LEAVE_MS).saturating_sub(self.world.now()));
            match tokio::time::timeout(left, process).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.violate(format!("{machine} has failed: {error}")),
                Err(_) => self.violate(format!("{machine} does not leave although the job is over")),
            }
        }
        self.check_left();
    }

    /// Checks that nodes that closed their sessions have removed the requests to leave. Lost nodes have not.
    fn check_left(&self) {
        for name in self.world.with(|state| state.servers.names(&self.setup.cluster.drains())) {
            let closed = |node| self.world.with(|state| state.closed.contains(&node));
            if name.parse().is_ok_and(closed) {
                self.violate(format!("{name} has left, and its request to leave remains"));
            }
        }
    }
}
