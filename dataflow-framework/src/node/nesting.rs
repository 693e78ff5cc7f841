//! Tasks that make calls, on the node that runs them.

use std::{panic::resume_unwind, sync::Arc};

use super::{
    executor::Executor,
    messages::{News, Report},
    waits::Given,
};
use crate::{
    core::{Answer, Assignment, Mark, Step, Work},
    failure::Failed,
    ids::{Argument, CallId, Execution, VersionId},
    invocation::Put,
    value::Value,
};

/// The call that a thread runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) executor: Arc<Executor>,
    /// The run of the program that has assigned it.
    pub(crate) epoch: u64,
    pub(crate) call: CallId,
    pub(crate) mark: Mark,
    /// The number of earlier attempts that failed.
    pub(crate) tries: u32,
    /// Whether the task is run twice, so that its handles are kept for the second run.
    pub(crate) is_checked: bool,
}

/// The calls of tasks. The program implements it: tasks make calls with the same functions as the program does.
pub(crate) trait Nesting: Send + Sync {
    /// Runs the task of a call on this thread. Returns the execution if the task has made calls.
    fn within(&self, running: Running, task: &mut dyn FnMut()) -> Option<Execution>;

    /// Prepares the second run of the task on this thread, which makes the same calls again.
    fn restart(&self);

    /// Converts a value to an output of the task on this thread.
    fn put(&self, value: Value) -> Put;
}

/// The end of a task that makes calls: its program continues on another node, or its time limit has passed.
#[derive(Debug)]
pub(crate) struct IsOver;

impl Running {
    /// Registers an execution of the task, which makes calls.
    pub(crate) fn begin(&self) -> Result<(Execution, Arc<dyn Report>), IsOver> {
        let Self { executor, epoch, call, .. } = self;
        let (report, is_current) = executor.record_nesting(*epoch, *call);
        let report = report.ok_or(IsOver)?;
        if !is_current {
            // The current run of the program assumes that the call is still running, so it has to be run again.
            report.tell(News::Returned { call: *call, unchanged: Vec::new() });
            return Err(IsOver);
        }
        let execution = executor.waits.begin(*call);
        report.tell(News::Step(execution, Step::Begin));
        Ok((execution, report))
    }

    /// Waits for a result, while the thread is lent to other calls.
    pub(crate) fn wait(&self, execution: Execution) -> Given {
        if let Some(given) = self.executor.waits.given(execution) {
            return given;
        }
        let _lent = self.executor.queue.lend().unwrap_or_else(|failed| end(failed));
        self.executor.waits.wait(execution)
    }
}

/// Stops the task of the call that this thread runs: the call fails, if its outcome is still needed.
pub(crate) fn end(with: Failed) -> ! {
    resume_unwind(Box::new(with))
}

impl Executor {
    /// Queues a call, or passes its input to the task that waits for it.
    pub(super) fn run_or_give(self: &Arc<Self>, epoch: u64, assignment: Assignment) {
        let Work::Get(execution) = assignment.work else {
            return self.queue.push(Arc::clone(self), epoch, assignment);
        };
        let version = assignment.arguments.iter().flat_map(Argument::versions).next();
        let version = *version.expect("it reads one value");
        // If the version is missing, the task reports it: the graph may be locked here.
        let missing = Given::Missing(assignment.call, version);
        self.waits.give(execution, self.store.get(version).map_or(missing, Given::Value));
    }

    /// Delivers a decision of the graph to a waiting task.
    pub(crate) fn answer_task(&self, execution: Execution, answer: Answer) {
        self.waits.answer(execution, answer);
    }

    /// Ends an execution that was replaced by another one.
    pub(crate) fn end_execution(&self, execution: Execution) {
        self.waits.end(execution);
    }

    /// Returns whether an execution of a task that makes calls is still needed.
    pub(crate) fn is_active(&self, execution: Execution) -> bool {
        self.waits.is_active(execution)
    }

    pub(crate) fn put_of_task(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) {
        self.put(version, value, mark, if self.has_sizes() { bytes } else { 0 });
    }

    /// Stores a version under a second id. Returns whether it is here.
    pub(crate) fn alias(&self, from: VersionId, to: VersionId, mark: Mark) -> bool {
        self.store.alias(from, to, mark)
    }
}
