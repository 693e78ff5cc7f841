//! A running call, which has its inputs: its start, its deadline and its run.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    assignments::Begins,
    attempt::{self, Written},
    cancellation::{Cancellation, cancelled},
    context::Context,
    deadline::{self, Deadline},
    executor::Executor,
    futures::Place,
    ledger::Use,
    messages::News,
    nesting::Running,
    queue::{Continues, Waiting},
    seat::Seat,
    stopwatch::Lap,
    store::{Inputs, Lacking},
};
use crate::{
    cache::{Found, Key},
    core::{Assignment, Outcome, Seen},
    failure::Failed,
    ids::Execution,
    invocation::Put,
    platform::Simulated,
    value::Value,
};

pub(crate) struct RunningCall {
    pub(super) executor: Arc<Executor>,
    /// The run of the program that has assigned it.
    pub(super) epoch: u64,
    pub(super) assignment: Assignment,
    pub(super) inputs: Vec<Value>,
    /// The uses of the inputs, for the store.
    pub(super) uses: Vec<Use>,
    /// The entry of the call in the cache.
    pub(super) found: Found,
    /// The deadline, and its entry in the list of deadlines.
    pub(super) deadline: Option<Instant>,
    pub(super) watch: Option<Deadline>,
    pub(super) since: Instant,
    /// Present if the call is timed.
    pub(super) lap: Option<Lap>,
    pub(super) cancellation: Arc<Cancellation>,
}

impl RunningCall {
    /// Runs it to its end, and reports the outcome.
    pub(crate) fn run(mut self) -> Continues {
        let (inputs, context) = (std::mem::take(&mut self.inputs), self.context());
        let (nest, written) = match self.take_found() {
            _ if self.cancellation.is_cancelled() => (None, Err(cancelled())),
            Some(found) => (None, Ok(found)),
            None => self.executor.run_task(self.epoch, &self.assignment, inputs, &context),
        };
        self.end(nest, written)
    }

    /// Runs its `async` task. Returns the output for [`end`](Self::end).
    pub(super) async fn run_as_future(mut self) -> (Self, Result<Written, Failed>) {
        let (inputs, context) = (std::mem::take(&mut self.inputs), self.context());
        let written = match self.take_found() {
            Some(found) => Ok(found),
            None => attempt::run_future(&self.assignment, inputs, &context, self.executor.nesting).await,
        };
        (self, written)
    }

    /// Reports that it exceeds its timeout if its future then blocks the thread.
    pub(super) fn watch_future(&mut self, place: &Place) {
        if let Some((deadline, timeout)) = self.deadline.zip(self.assignment.manner.timeout) {
            let passed = self.executor.exceed(self.epoch, &self.assignment, &self.inputs, timeout);
            self.watch = self.executor.queue.watch_future(deadline, place, passed);
        }
    }

    fn context(&self) -> Context {
        let (once_token, cancellation) = (self.assignment.manner.once_token, Arc::clone(&self.cancellation));
        Context { deadline: self.deadline, once_token, cancellation }
    }

    /// Returns the output, if it is from the cache.
    fn take_found(&mut self) -> Option<Written> {
        let Found::Outputs(outputs) = &mut self.found else { return None };
        Some(Written::ByTask(std::mem::take(outputs).into_iter().map(Put::Value).collect()))
    }

    /// Reports the outcome.
    pub(super) fn end(self, nest: Option<Execution>, written: Result<Written, Failed>) -> Continues {
        let Self { executor, epoch, assignment, uses, found, mut watch, since, lap, cancellation, .. } = self;
        let Assignment { call, mark, .. } = assignment;
        executor.store.release(uses);
        let is_late = watch.take().is_some_and(|deadline| !deadline.meet());
        if is_late {
            // Its worker is free again, although its thread is not.
            let _timing = lap.map(|lap| executor.stopwatch.stop(&lap, 0, false));
            // The failure was reported when the deadline passed, and another thread has replaced this one.
            return Continues::Elsewhere;
        }
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if cancellation.is_cancelled() {
            // Dropping the output may be slow.
            drop(written);
            if let Some(lap) = lap {
                executor.report_timing(epoch, executor.stopwatch.stop(&lap, ns, false));
            }
            executor.report_cancelled(epoch, call);
            if let Some(execution) = nest {
                executor.waits.end(execution);
            }
            return Continues::Here;
        }
        if let (Found::Missing(key), None, Ok(written)) = (&found, nest, &written) {
            executor.keep_in_cache(*key, written);
        }
        let is_over = nest.is_some_and(|execution| !executor.waits.is_active(execution));
        let ran_ns = if matches!(found, Found::Outputs(_)) { None } else { Some(ns) };
        let outcome = if is_over { None } else { Some(executor.outcome(&assignment, nest, written, ran_ns)) };
        let is_well = matches!(outcome, Some(Outcome::Written { .. }));
        // The inputs must be released before the next call is assigned.
        drop(assignment);
        if let Some(lap) = lap {
            executor.report_timing(epoch, executor.stopwatch.stop(&lap, ns, is_well));
        }
        // Count the call before the report, so that all calls are counted when the program exits.
        if outcome.is_some() {
            executor.queue.on_ended();
        }
        match outcome {
            Some(outcome) => executor.report_outcome(epoch, (call, mark), nest.is_some(), outcome),
            None => executor.end_for_rerun(epoch, call),
        }
        // End only this execution: the call may already run again.
        if let Some(execution) = nest {
            executor.waits.end(execution);
        }
        Continues::Here
    }

    /// Lets the time of the call pass in a simulated node; a cancelled call ends at once.
    pub(super) async fn pass(&self, simulated: &Simulated) {
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => {}
            () = simulated.passing(self.assignment.work.name(), self.assignment.call) => {}
        }
    }
}

impl Waiting {
    pub(super) fn run(self) -> Continues {
        self.begin().map_or(Continues::Here, RunningCall::run)
    }

    /// Starts it, if it can run.
    pub(crate) fn begin(self) -> Option<RunningCall> {
        self.executor.begin_call(self.epoch, self.assignment, self.cancellation)
    }
}

impl Executor {
    /// Starts a call, unless its run of the program is over or the call cannot run.
    fn begin_call(
        self: &Arc<Self>,
        epoch: u64,
        assignment: Assignment,
        cancellation: Arc<Cancellation>,
    ) -> Option<RunningCall> {
        let Assignment { call, mark, .. } = assignment;
        match self.start_call(epoch, call, mark) {
            Begins::Now => {}
            Begins::Cancelled => cancellation.cancel(),
            Begins::No => return None,
            Begins::Before => {
                assignment.taken().for_each(|version| drop(self.forget(version)));
                return None;
            }
        }
        // The call consumes these versions, so this node forgets the outcomes, kept for reporting, of the calls that
        // wrote them.
        assignment.taken().for_each(|version| self.forget_outcome_of(version));
        let Inputs { values: inputs, uses } = match self.store.inputs(&assignment) {
            Ok(inputs) => inputs,
            Err(Lacking::Room(failed)) => {
                let outcome = self.unfit(&assignment, failed);
                self.report_outcome(epoch, (call, mark), false, outcome);
                return None;
            }
            Err(Lacking::Version(missing)) => {
                // The version was removed because the call was taken from this node.
                let (report, is_current) = self.end_call(epoch, call);
                if let Some(report) = report.filter(|_| is_current) {
                    report.tell(News::unable(self.give_back(&assignment), missing, Vec::new()));
                }
                return None;
            }
        };
        self.see(|| Seen::begins(&assignment, inputs.iter().map(|value| value.fingerprint_now().1)));
        // Before the deadline is set: a slow cache must not fail calls.
        let found = self.cache.get().map_or(Found::Unknown, |cache| cache.find(&assignment, &inputs));
        let (deadline, watch) = match assignment.manner.timeout {
            // The future itself ends then. It is watched in its place, unless it runs on a worker.
            Some(timeout) if assignment.is_future() && Seat::current().is_none() => {
                (Instant::now().checked_add(timeout), None)
            }
            Some(timeout) => self.watch(epoch, &assignment, &inputs, timeout),
            None => (None, None),
        };
        let lap = assignment.manner.is_timed.then(|| self.stopwatch.start(call, Instant::now()));
        let (executor, since) = (Arc::clone(self), Instant::now());
        let call = RunningCall {
            executor,
            epoch,
            assignment,
            inputs,
            uses,
            found,
            deadline,
            watch,
            since,
            lap,
            cancellation,
        };
        Some(call)
    }

    /// Runs the task of a call on this thread. Also returns the execution if the task has made calls.
    fn run_task(
        self: &Arc<Self>,
        epoch: u64,
        assignment: &Assignment,
        inputs: Vec<Value>,
        context: &Context,
    ) -> (Option<Execution>, Result<Written, Failed>) {
        let Assignment { call, mark, tries, manner, .. } = *assignment;
        let executor = Arc::clone(self);
        let running = Running { executor, epoch, call, mark, tries, is_checked: manner.is_checked };
        let (mut inputs, mut written) = (Some(inputs), None);
        let mut run = || {
            let inputs = inputs.take().expect("a task runs once");
            written = Some(attempt::run(assignment, inputs, context, self.nesting));
        };
        let nest = self.nesting.within(running, &mut run);
        (nest, written.expect("the task has run"))
    }

    /// Keeps the output of a call in the cache, unless it has failed.
    fn keep_in_cache(&self, key: Key, written: &Written) {
        if let (Some(cache), Written::ByTask(written)) = (self.cache.get(), written)
            && let Some(outputs) = written.iter().map(Put::value).collect::<Option<Vec<_>>>()
        {
            cache.keep(key, &outputs);
        }
    }

    /// Sets the deadline of a call that starts on this thread, which is abandoned when it passes.
    fn watch(
        self: &Arc<Self>,
        epoch: u64,
        assignment: &Assignment,
        inputs: &[Value],
        timeout: Duration,
    ) -> (Option<Instant>, Option<Deadline>) {
        let Some(deadline) = Instant::now().checked_add(timeout) else { return (None, None) };
        let passed = self.exceed(epoch, assignment, inputs, timeout);
        (Some(deadline), self.queue.watch(deadline, passed))
    }

    /// Returns a function that ends a call beyond its timeout: the call fails, or ends with its default output if its
    /// failures are ignored.
    fn exceed(
        self: &Arc<Self>,
        epoch: u64,
        assignment: &Assignment,
        inputs: &[Value],
        timeout: Duration,
    ) -> impl FnOnce() + Send + use<> {
        let Assignment { call, mark, .. } = *assignment;
        let (executor, assignment) = (Arc::clone(self), assignment.clone());
        // Only a call whose failure is ignored needs its inputs again; other calls may change them in place.
        let inputs = if attempt::ignores(&assignment) { inputs.to_vec() } else { Vec::new() };
        move || {
            let task = assignment.work.name();
            tracing::warn!(task, call, ?timeout, "a call has exceeded its timeout; its thread is abandoned");
            let written =
                attempt::default_outputs(&assignment, inputs, deadline::exceeded(timeout), executor.nesting);
            let outcome = executor.outcome(&assignment, None, written, Some(0));
            let has_calls = executor.assignments().nesting.contains(&call);
            executor.waits.end_of(call);
            executor.report_outcome(epoch, (call, mark), has_calls, outcome);
        }
    }
}
