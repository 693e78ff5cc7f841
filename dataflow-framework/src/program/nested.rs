//! The calls made by a task.

use std::{
    cell::{Cell, OnceCell, RefCell},
    ops::Range,
    sync::Arc,
};

use crate::{
    core::{Lack, Mark, NewCall, Step, TaskCall},
    failure::{Failed, Failure},
    ids::{CallId, Execution, VersionId, number_within},
    node::{Given, News, Report, Running, end},
    options::{OnFailure, Options},
    value::Value,
};

/// The maximum number of unfinished calls of a task; at this number the task waits.
const CALLS_AHEAD_MAX: u64 = 50_000;

/// The calls of the task that runs on this thread.
pub(super) struct Nested {
    running: Running,
    /// This execution of the task and the receiver of its reports, once it has made a step.
    started: OnceCell<(Execution, Arc<dyn Report>)>,
    /// The position of the last call whose failure cancels its group.
    gives_up: Cell<Option<u64>>,
    /// The mark of its last step.
    mark: Cell<Mark>,
    /// Dropped handles, which are reported with the next step.
    dropped: RefCell<Vec<VersionId>>,
    /// Whether the result of the execution is no longer needed.
    is_over: Cell<bool>,
}

impl Nested {
    pub(super) fn new(running: Running) -> Self {
        let mark = running.mark.of_calls_within(running.call);
        Self {
            running,
            mark: Cell::new(mark),
            gives_up: Cell::new(None),
            started: OnceCell::new(),
            dropped: RefCell::default(),
            is_over: Cell::new(false),
        }
    }

    /// Returns this execution, if it has made a step.
    pub(super) fn execution(&self) -> Option<Execution> {
        self.started.get().map(|(execution, _)| *execution)
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    /// Ends the calls: remaining handles have no effect.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    /// Returns the number of the task's step at this position.
    pub(super) fn number(&self, position: u64) -> CallId {
        number_within(self.running.call, self.running.tries, position)
    }

    /// Returns the options of a call that apply where it runs.
    pub(super) fn counting(&self, options: Options) -> Options {
        self.started().1.counting(options)
    }

    /// Returns a requirement of a call that no node will ever satisfy.
    pub(super) fn lacks(&self, options: &Options) -> Option<Lack> {
        self.started().1.lacks(options)
    }

    fn started(&self) -> &(Execution, Arc<dyn Report>) {
        if self.is_over.get() {
            end(Failed::of("it has used a handle of a task that had ended"));
        }
        if let Some(started) = self.started.get() {
            if !self.running.executor.is_active(started.0) {
                self.end_now();
            }
            return started;
        }
        match self.running.begin() {
            Ok(started) => self.started.get_or_init(|| started),
            Err(_) => self.end_now(),
        }
    }

    fn end_now(&self) -> ! {
        self.is_over.set(true);
        end(Failed::of("its call has already ended"))
    }

    fn step(&self, step: Step) {
        let (execution, report) = self.started();
        for version in self.dropped.take() {
            report.tell(News::Step(*execution, Step::Release(version)));
        }
        report.tell(News::Step(*execution, step));
    }

    pub(super) fn call(&self, position: u64, call: NewCall, dropped: &[VersionId]) {
        if position.is_multiple_of(CALLS_AHEAD_MAX) && position > CALLS_AHEAD_MAX {
            self.wait(Step::Wait(0..position - CALLS_AHEAD_MAX, false));
        }
        let NewCall { task, number, options, arguments, writes, refused, .. } = call;
        if options.on_failure == OnFailure::CancelGroup {
            self.gives_up.set(Some(position));
        }
        let id = self.number(position);
        self.mark.set(self.mark.get().then_call(id, number, &arguments, writes));
        let refused = refused.map(|failure| failure.reason().to_owned());
        let task = Some(task);
        let call = TaskCall { position, number, task, options, arguments, writes, refused };
        let dropped = if self.running.is_checked { Vec::new() } else { dropped.to_vec() };
        self.step(Step::Call(call, dropped));
    }

    pub(super) fn bring(&self, position: u64, value: Value) {
        let (bytes, content) = value.fingerprint();
        let id = self.number(position);
        let mark = self.mark.get().then_data(id, content);
        self.mark.set(mark);
        let execution = self.started().0;
        let version = VersionId { call: id, slot: 0 };
        // Before it is reported.
        self.running.executor.put_of_task(version, value, mark, bytes);
        if !self.running.executor.is_active(execution) {
            drop(self.running.executor.forget(version));
        }
        self.step(Step::Bring { position, bytes, content });
    }

    pub(super) fn retain(&self, version: VersionId) {
        if !self.is_over.get() {
            self.step(Step::Retain(version));
        }
    }

    pub(super) fn release(&self, version: VersionId) {
        // The end of the task releases its handles.
        if !self.is_over.get() && !self.running.is_checked && !std::thread::panicking() {
            self.dropped.borrow_mut().push(version);
        }
    }

    pub(super) fn get(&self, version: VersionId) -> Result<Value, Failure> {
        let mut given = self.wait(Step::Get(version));
        loop {
            match given {
                Given::Value(value) => {
                    self.step(Step::Got);
                    return Ok(value);
                }
                Given::Failed(failure) => return Err(failure),
                Given::Missing(call, missing) => {
                    let (execution, report) = self.started();
                    report.tell(News::unable((call, Vec::new()), missing, Vec::new()));
                    given = self.running.wait(*execution);
                }
                Given::Over | Given::Ended(_) => self.end_now(),
            }
        }
    }

    /// Waits until the calls at these positions have completed.
    pub(super) fn wait_for(&self, positions: Range<u64>) -> Result<(), Failure> {
        match self.wait(Step::Wait(positions, true)) {
            Given::Ended(None) => Ok(()),
            Given::Ended(Some(failure)) => Err(failure),
            _ => self.end_now(),
        }
    }

    fn wait(&self, step: Step) -> Given {
        self.step(step);
        self.running.wait(self.started().0)
    }

    /// Reports that the calls at these positions are a group.
    pub(super) fn report_group(&self, positions: Range<u64>) {
        if self.gives_up.get().is_some_and(|last| last >= positions.start) {
            self.step(Step::Group(positions));
        }
    }

    pub(super) fn cancel(&self, positions: Range<u64>) {
        self.step(Step::Cancel(positions));
    }
}
