//! A running call, which has its inputs.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attempt, deadline::Deadline, executor::Executor, ledger::Use, nesting::Running, queue::Continues,
    stopwatch::Lap,
};
use crate::{
    core::{Assignment, Outcome},
    value::Value,
};

/// A running call.
pub(crate) struct RunningCall {
    pub(super) site: Arc<Executor>,
    /// The run of the program that has assigned it.
    pub(super) epoch: u64,
    pub(super) assignment: Assignment,
    pub(super) inputs: Vec<Value>,
    /// The uses of the inputs, for the store.
    pub(super) uses: Vec<Use>,
    /// The deadline, and its entry in the list of deadlines.
    pub(super) deadline: Option<Instant>,
    pub(super) watch: Option<Deadline>,
    pub(super) since: Instant,
    /// Present if the call is timed.
    pub(super) lap: Option<Lap>,
}

impl RunningCall {
    /// Runs it to its end, and reports the outcome.
    pub(crate) fn run(self) -> Continues {
        let Self { site, epoch, assignment, inputs, uses, deadline, mut watch, since, lap } = self;
        let Assignment { call, mark, tries, manner, .. } = assignment;
        let running =
            Running { site: Arc::clone(&site), epoch, call, mark, tries, is_checked: manner.is_checked };
        let (mut inputs, mut written) = (Some(inputs), None);
        let mut run = || {
            let inputs = inputs.take().expect("a task runs once");
            written = Some(attempt::run(&assignment, inputs, deadline, site.nesting));
        };
        let nest = site.nesting.within(running, &mut run);
        let written = written.expect("the task has run");
        site.store.release(uses);
        let is_late = watch.take().is_some_and(|deadline| !deadline.meet());
        if is_late {
            // Its worker is free again, although its thread is not.
            let _timing = lap.map(|lap| site.stopwatch.ends(&lap, 0, false));
            // The failure was reported when the deadline passed, and another thread has replaced this one.
            return Continues::Elsewhere;
        }
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let is_over = nest.is_some_and(|execution| !site.waits.goes_on(execution));
        let outcome = if is_over { None } else { Some(site.outcome(&assignment, nest, written, ns)) };
        let is_well = matches!(outcome, Some(Outcome::Written { .. }));
        // The inputs must be released before the next call is assigned.
        drop(assignment);
        if let Some(lap) = lap {
            site.tell_timing(epoch, site.stopwatch.ends(&lap, ns, is_well));
        }
        // Count the call before the report, so that all calls are counted when the program exits.
        if outcome.is_some() {
            site.queue.on_ended();
        }
        match outcome {
            Some(outcome) => site.tell(epoch, (call, mark), nest.is_some(), outcome),
            None => site.is_run_again(epoch, call),
        }
        // End only this execution: the call may already run again.
        if let Some(execution) = nest {
            site.waits.end(execution);
        }
        Continues::Here
    }

    /// Returns the name of its task.
    pub(crate) fn task(&self) -> &'static str {
        self.assignment.task.name
    }

    /// Returns its id.
    pub(crate) fn call(&self) -> u64 {
        self.assignment.call
    }
}
