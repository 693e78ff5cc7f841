//! The flow of calls made by the program, or the task, on this thread.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
    sync::Arc,
};

use super::{engine::Engine, nested::Nested};
use crate::{
    core::{Lack, NewCall},
    failure::{Failed, Failure},
    ids::{CallId, Execution, VersionId},
    invocation::Put,
    node::{Nesting, Running, Store, once_token},
    options::Options,
    task::{TaskDef, Tasks},
    value::Value,
};

/// The ordered calls of a program, or of a task. It stays on its thread, so that calls have an order.
pub(crate) struct Flow {
    maker: Maker,
    /// The tasks that may be called; `None` for any.
    tasks: Option<Arc<Tasks>>,
    /// The position of the next step.
    next: Cell<u64>,
    /// The arguments that the next call merges, if it belongs to a reduction in any order.
    merging: Cell<Option<Merging>>,
}

/// The default arguments of a merge in any order, unless other parts are available earlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merging {
    pub(super) reduction: CallId,
    /// The updated version, and the version read.
    pub(super) parts: [VersionId; 2],
}

/// The order of calls that may run in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freedom {
    /// A fixed order: the output of a task may depend only on its inputs.
    None,
    /// The order of the list, since each call runs immediately.
    OrderOfList,
    AnyOrder,
}

/// The maker of the calls.
enum Maker {
    Program(Arc<Engine>),
    Task(Box<Nested>),
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Flow>>> = const { RefCell::new(None) };
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The calls of the tasks on this node.
pub(crate) struct CallsOfTasks;

impl Nesting for CallsOfTasks {
    fn within(&self, running: Running, task: &mut dyn FnMut()) -> Option<Execution> {
        let before = (CURRENT.take(), RUNNING.replace(Some(running)));
        // The task does not panic: the panic was caught.
        task();
        let flow = CURRENT.replace(before.0);
        RUNNING.set(before.1);
        flow.and_then(|flow| flow.end())
    }

    fn restart(&self) {
        if let Some(flow) = CURRENT.take()
            && let Maker::Task(nested) = &flow.maker
        {
            nested.end();
            if let Some(execution) = nested.execution() {
                nested.running().executor.end_execution(execution);
            }
            RUNNING.set(Some(nested.running().clone()));
        }
    }

    /// A task that has made calls hands the value on as data: its call completes once its calls have completed, and no
    /// reader may see the value earlier.
    fn put(&self, value: Value) -> Put {
        let flow = CURRENT.with_borrow(Option::clone);
        let has_calls =
            |flow: &Rc<Flow>| matches!(&flow.maker, Maker::Task(nested) if nested.execution().is_some());
        match flow.filter(has_calls) {
            Some(flow) => Put::HandedOn(flow.bring(value)),
            None => Put::Value(value),
        }
    }
}

impl Flow {
    pub(crate) fn new(engine: Arc<Engine>, tasks: Option<Arc<Tasks>>) -> Rc<Self> {
        Self::by(Maker::Program(engine), tasks)
    }

    /// Creates the flow of a program whose calls run immediately on its thread, without a table of tasks.
    pub(crate) fn sequential() -> Rc<Self> {
        Self::new(Engine::new(Arc::default(), Store::default(), 0, usize::MAX, None), None)
    }

    /// Returns the flow of this thread, for the function or task `what`.
    ///
    /// # Panics
    /// If the thread runs neither a program nor a task.
    pub(crate) fn current(what: &str) -> Rc<Self> {
        CURRENT.with_borrow_mut(|current| Rc::clone(current.get_or_insert_with(|| Self::of_task(what))))
    }

    fn of_task(what: &str) -> Rc<Self> {
        let running = RUNNING.take().unwrap_or_else(|| {
            panic!(
                "`{what}` is called on a thread that runs neither the program nor a task of a workflow: call it in the \
                 program that `Workflow::run` runs, or in a task that is not `async`; in tests, `Workflow::sequential` runs \
                 each call immediately"
            )
        });
        let tasks = running.executor.tasks.clone();
        Self::by(Maker::Task(Box::new(Nested::new(running))), tasks)
    }

    fn by(maker: Maker, tasks: Option<Arc<Tasks>>) -> Rc<Self> {
        Rc::new(Self { maker, tasks, next: Cell::new(0), merging: Cell::new(None) })
    }

    /// Returns whether calls or data were made.
    pub(crate) fn has_steps(&self) -> bool {
        self.next.get() > 0
    }

    /// Makes it the flow of this thread, until the result is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered { before: CURRENT.replace(Some(Rc::clone(self))) }
    }

    /// Ends the flow of a task. Returns the execution if calls were made.
    fn end(&self) -> Option<Execution> {
        match &self.maker {
            Maker::Program(_) => None,
            Maker::Task(nested) => {
                nested.end();
                nested.execution()
            }
        }
    }

    /// Returns the position of the next step.
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Assigns a position to the next step.
    pub(crate) fn position(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Returns the number of the call, or of the data, at a position.
    pub(crate) fn number(&self, position: u64) -> CallId {
        match &self.maker {
            Maker::Program(_) => position,
            Maker::Task(nested) => nested.number(position),
        }
    }

    /// Returns the number of a task in the program's table; `None` if it may not be called.
    pub(crate) fn number_of(&self, task: &TaskDef) -> Option<u32> {
        self.tasks.as_ref().map_or(Some(0), |tasks| tasks.number(task))
    }

    /// Makes a call, and then drops handles.
    pub(crate) fn call(&self, position: u64, call: NewCall, dropped: &[VersionId]) {
        match &self.maker {
            Maker::Program(engine) => engine.call(position, call, dropped),
            Maker::Task(nested) => nested.call(position, call, dropped),
        }
    }

    /// Adds data. Returns its version, which has one handle.
    pub(crate) fn bring(&self, value: Value) -> VersionId {
        let position = self.position();
        match &self.maker {
            Maker::Program(engine) => engine.bring(position, value),
            Maker::Task(nested) => nested.bring(position, value),
        }
        VersionId { call: self.number(position), slot: 0 }
    }

    /// Returns the order of calls that may run in any order.
    pub(super) fn freedom(&self) -> Freedom {
        match &self.maker {
            Maker::Program(engine) if engine.is_sequential() => Freedom::OrderOfList,
            Maker::Program(_) => Freedom::AnyOrder,
            Maker::Task(_) => Freedom::None,
        }
    }

    /// Makes the next call one of a reduction in any order.
    pub(super) fn set_merge(&self, reduction: CallId, parts: [VersionId; 2]) {
        self.merging.set(Some(Merging { reduction, parts }));
    }

    /// Returns the arguments that the current call merges.
    pub(super) fn take_merging(&self) -> Option<Merging> {
        self.merging.take()
    }

    /// Starts a reduction in any order after its calls are made.
    pub(super) fn start_reduction(&self) {
        self.merging.take();
        if let Maker::Program(engine) = &self.maker {
            engine.begin_reductions();
        }
    }

    /// Starts a group with the next call.
    pub(super) fn open_group(&self) {
        if let Maker::Program(engine) = &self.maker {
            engine.change(|graph| graph.open_group(self.next()));
        }
    }

    /// Declares the calls at these positions to be the group that was started last.
    pub(super) fn close_group(&self, positions: Range<u64>) {
        match &self.maker {
            Maker::Program(engine) => engine.change(|graph| graph.close_group(positions)),
            // The task is being stopped, or fails.
            Maker::Task(_) if std::thread::panicking() => {}
            Maker::Task(nested) => nested.report_group(positions),
        }
    }

    /// Returns the options of a call that apply where it runs.
    pub(crate) fn counting(&self, task: &TaskDef, options: Options) -> Options {
        let options = self.tasks.as_ref().map_or(options, |tasks| tasks.options(task, options));
        match &self.maker {
            Maker::Program(engine) => engine.counting(options),
            Maker::Task(nested) => nested.counting(options),
        }
    }

    /// Returns a requirement of a call that no node will ever satisfy.
    pub(crate) fn lacks(&self, options: &Options) -> Option<Lack> {
        match &self.maker {
            Maker::Program(engine) => engine.lacks(options),
            Maker::Task(nested) => nested.lacks(options),
        }
    }

    /// Returns the output of a task for a version of which it has a handle.
    ///
    /// # Errors
    /// Fails if the calls of the task are not known to the graph, and the forwarded version is not available.
    pub(crate) fn hand_on(&self, version: VersionId) -> Result<Put, Failed> {
        match &self.maker {
            Maker::Program(_) => {
                self.get(version).map(Put::Value).map_err(|failure| Failed::of(failure.to_string()))
            }
            Maker::Task(_) => Ok(Put::HandedOn(version)),
        }
    }

    fn retain(&self, version: VersionId) {
        match &self.maker {
            Maker::Program(engine) => engine.retain(version),
            Maker::Task(nested) => nested.retain(version),
        }
    }

    fn release(&self, version: VersionId) {
        match &self.maker {
            Maker::Program(engine) => engine.release(version),
            Maker::Task(nested) => nested.release(version),
        }
    }

    /// Waits for a version, and returns it.
    pub(crate) fn get(&self, version: VersionId) -> Result<Value, Failure> {
        match &self.maker {
            Maker::Program(engine) => engine.get(version),
            Maker::Task(nested) => nested.get(version),
        }
    }

    /// Waits until the calls at these positions have completed. Returns the first of their failures; the
    /// program, or the task, counts as having received all of them.
    pub(crate) fn wait_for(&self, positions: Range<u64>) -> Result<(), Failure> {
        match &self.maker {
            Maker::Program(engine) => engine.wait_for(positions),
            Maker::Task(nested) => nested.wait_for(positions),
        }
    }

    /// Waits until all calls have completed. Returns the first failure that the program, or the task, has not
    /// received.
    pub(crate) fn wait_for_all(&self) -> Result<(), Failure> {
        match &self.maker {
            Maker::Program(engine) => engine.wait_for_all(),
            Maker::Task(nested) => nested.wait_for(0..self.next()),
        }
    }

    /// Returns the recorded decision at this point, or makes it now. A task decides each time that it runs,
    /// since its output may depend only on its inputs.
    pub(crate) fn decide<E>(
        &self,
        what: &str,
        choose: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        match &self.maker {
            Maker::Program(engine) => engine.decide(self.next(), what, choose),
            Maker::Task(_) => choose(),
        }
    }

    /// Returns a name of the next operation: the same in each run of the program or task. A task has none
    /// unless its outcome is recorded.
    pub(crate) fn operation(&self) -> Option<String> {
        let key = match &self.maker {
            Maker::Program(engine) => Some(engine.key()),
            Maker::Task(_) => once_token(),
        };
        key.map(|key| format!("{key:032x}.{}", self.next()))
    }

    /// Returns whether a version is available or has failed. In a task always `true`: the task waits on
    /// reading.
    pub(crate) fn is_ready(&self, version: VersionId) -> bool {
        match &self.maker {
            Maker::Program(engine) => engine.is_ready(version),
            Maker::Task(_) => true,
        }
    }

    /// Waits until one of the versions is available or has failed, and returns its index. A task waits for the
    /// first.
    pub(crate) fn wait_any(&self, versions: &[VersionId]) -> usize {
        match &self.maker {
            Maker::Program(engine) => engine.wait_any(versions),
            Maker::Task(nested) => {
                // The reader gets the failure.
                let _ = versions.first().map(|first| nested.get(*first));
                0
            }
        }
    }

    /// Cancels the calls at these positions.
    pub(crate) fn cancel(&self, positions: Range<u64>) {
        match &self.maker {
            Maker::Program(engine) => engine.cancel(self.next(), positions),
            Maker::Task(nested) => nested.cancel(positions),
        }
    }
}

/// Restores the previous flow of this thread on drop.
pub(crate) struct Entered {
    before: Option<Rc<Flow>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

pub(crate) struct Handle {
    pub(crate) flow: Rc<Flow>,
    pub(crate) version: VersionId,
    commuting: Cell<Commuting>,
}

/// Whether calls that update the data of a handle do so in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Commuting {
    /// The first call of the last chain of such updates, if the handle was not used otherwise since.
    pub(super) chain: Option<CallId>,
    /// Whether the next update is of this kind.
    pub(super) is_next: bool,
}

impl Handle {
    /// Takes over a handle that the graph has counted already.
    pub(crate) fn counted(flow: &Rc<Flow>, version: VersionId) -> Self {
        Self { flow: Rc::clone(flow), version, commuting: Cell::default() }
    }

    /// Lets the next call that updates the data do so in any order.
    pub(super) fn commute(&self) {
        self.commuting.set(Commuting { is_next: true, ..self.commuting.get() });
    }

    /// Returns the order of the next update, and ends the chain of updates in any order.
    pub(super) fn take_commuting(&self) -> Commuting {
        self.commuting.take()
    }

    /// Adds the next commuting call to this chain.
    pub(super) fn continue_chain(&self, chain: CallId) {
        self.commuting.set(Commuting { chain: Some(chain), is_next: false });
    }

    /// Moves to another version, whose handle the graph has counted already, and returns the previous one,
    /// whose handle the graph still counts.
    pub(crate) fn advance(&mut self, to: VersionId) -> VersionId {
        std::mem::replace(&mut self.version, to)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.commuting.take();
        self.flow.retain(self.version);
        Self::counted(&self.flow, self.version)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.flow.release(self.version);
    }
}
