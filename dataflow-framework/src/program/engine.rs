//! Runs the calls of one program: on this node, and on other nodes if there are any.

mod hearing;
mod performing;

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use taskwork::NodeId;

use super::{flow::CallsOfTasks, recorder::Recorder, records::Records};
use crate::{
    core::{Capacity, Demand, Graph, History, Input, Lack, Member, NewCall, first_of},
    failure::Failure,
    figures::Figures,
    ids::{CallId, VersionId},
    node::{Executor, Inventory, Order, Queue, Report, Store},
    options::Options,
    platform::Notifier,
    task::Tasks,
    value::Value,
};

/// The number of calls that may be assigned if the program runs each of them immediately.
const SEQUENTIAL: u32 = 1 << 30;

/// The calls of one program, and its data.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Rings when a condition that the program waits for holds.
    happened: Notifier,
    pub(crate) executor: Arc<Executor>,
    /// The number of this run of the program at its executor.
    epoch: AtomicU64,
    pub(super) queue: Arc<Queue>,
    /// This engine, for functions that are called later.
    me: Weak<Self>,
    /// Whether the program itself runs each call where it makes it.
    is_sequential: bool,
    ahead_max: usize,
    pub(super) others: Option<Arc<dyn Others>>,
    /// Whether a leaving node holds nothing that is still needed and only it has.
    pub(super) may_go: AtomicBool,
    /// The maximum capacity of a node, if it is known because all nodes are in this process.
    most: Option<Capacity>,
}

pub(crate) trait Others: Send + Sync {
    fn order(&self, member: Member, order: &Order);

    /// Returns the nodes behind members.
    fn peers(&self, members: &[Member]) -> Vec<NodeId>;

    /// Returns the members for nodes, without those that are gone.
    fn members(&self, peers: &[NodeId]) -> Vec<Member>;

    /// Sends the queued messages; also requests for data, if something must be fetched to this node.
    fn flush(&self, brings: bool);
}

pub(super) struct State {
    pub(super) graph: Graph,
    /// Set if the runs of calls are recorded.
    pub(super) recorder: Option<Recorder>,
    /// Facts for the journal.
    pub(super) records: Records,
    pub(super) awaited: Option<Awaited>,
    /// Whether the program must stop now.
    pub(super) is_halted: bool,
    /// The decision in which the program differs from its earlier run.
    pub(super) differs: Option<String>,
    /// Whether all work has stopped, since the program continues on another node.
    is_stopped: bool,
}

/// The condition that the program waits for.
#[derive(Debug, Clone)]
pub(super) enum Awaited {
    Version(VersionId),
    /// No call in this range is unfinished. All calls before the counter in the first field have completed.
    Calls(CallId, CallId),
    /// At most this number of calls are unfinished.
    Unfinished(usize),
    /// One of the versions is available or has failed.
    Any(Vec<VersionId>),
    /// The facts up to this number are recorded.
    Recorded(u64),
}

/// The payload with which the thread of a stopped program unwinds.
pub(crate) struct Stopped;

impl State {
    fn has_happened(&mut self, awaited: &mut Awaited) -> bool {
        match awaited {
            Awaited::Version(version) => !matches!(self.graph.want(*version), Input::Awaited),
            Awaited::Calls(next, end) => {
                // Each call is checked once, however often this is called.
                while next < end && !self.graph.is_unfinished(*next) {
                    *next += 1;
                }
                next == end
            }
            Awaited::Unfinished(most) => self.graph.unfinished() <= *most,
            Awaited::Any(versions) => versions.iter().any(|version| self.graph.has_outcome(*version)),
            Awaited::Recorded(number) => self.records.is_written(*number),
        }
    }

    /// Returns whether the program must not continue: it differs from its earlier run, or a call that must not
    /// fail has failed.
    fn is_wrong(&self) -> bool {
        self.graph.divergence().is_some() || self.graph.fatal().is_some()
    }
}

impl Engine {
    /// Creates an engine for the threads of a queue. Without workers the program runs each call itself.
    pub(crate) fn new(
        queue: Arc<Queue>,
        store: Store,
        workers: usize,
        ahead_max: usize,
        tasks: Option<Arc<Tasks>>,
    ) -> Arc<Self> {
        let is_sequential = workers == 0;
        // A call that the program runs itself runs within its caller.
        let workers = if is_sequential { SEQUENTIAL } else { u32::try_from(workers).unwrap_or(u32::MAX) };
        let capacity = Capacity::of_workers(workers);
        let mut graph = Graph::new(false);
        let chance = || u128::from(RandomState::new().hash_one(()));
        graph.journal().set_key(chance() << 64 | chance());
        graph.joined(Member::HERE, capacity.clone());
        let most = (!is_sequential).then_some(capacity);
        let executor = Arc::new(Executor::new(Arc::clone(&queue), store, tasks, false, &CallsOfTasks));
        Self { is_sequential, most, ..Self::with_graph(graph, executor, queue, ahead_max) }.begin()
    }

    /// Creates an engine that also runs calls on other nodes. It uses the executor's data of earlier runs of
    /// the program, and the history of completed calls. Facts that must not happen twice are recorded.
    pub(crate) fn with_others(
        (executor, queue): (Arc<Executor>, Arc<Queue>),
        (capacity, is_embedded): (Capacity, bool),
        ahead_max: usize,
        history: History,
        others: Arc<dyn Others>,
    ) -> Arc<Self> {
        let mut graph = Graph::new(true);
        graph.joined(Member::HERE, capacity.clone());
        graph.journal().add_history(history);
        // Each node receives the history when it joins.
        graph.journal().take_news();
        graph.journal().enable();
        if is_embedded {
            graph.queues().fix_members();
        }
        let most = is_embedded.then_some(capacity);
        Self { others: Some(others), most, ..Self::with_graph(graph, executor, queue, ahead_max) }.begin()
    }

    fn with_graph(mut graph: Graph, executor: Arc<Executor>, queue: Arc<Queue>, ahead_max: usize) -> Self {
        if queue.platform.is_observed() {
            graph.observed().keep_seen();
        }
        let state = State {
            graph,
            recorder: None,
            records: Records::default(),
            awaited: None,
            is_halted: false,
            differs: None,
            is_stopped: false,
        };
        Self {
            state: Mutex::new(state),
            happened: queue.platform.notifier(),
            executor,
            epoch: AtomicU64::new(0),
            queue,
            me: Weak::new(),
            is_sequential: false,
            ahead_max,
            others: None,
            may_go: AtomicBool::new(false),
            most: None,
        }
    }

    /// Starts a run of the program at the executor.
    fn begin(self) -> Arc<Self> {
        let engine = Arc::new_cyclic(|me| Self { me: Weak::clone(me), ..self });
        let report: Arc<dyn Report> = Arc::clone(&engine) as _;
        // Calls that complete now are reported after the data that is here.
        let mut state = engine.lock();
        let Inventory { epoch, held, running, unseen } = engine.executor.begin(Arc::downgrade(&report));
        engine.epoch.store(epoch, Relaxed);
        for held in held {
            state.graph.on_held(Member::HERE, held);
        }
        for (call, mark) in running {
            state.graph.on_running(Member::HERE, call, mark);
        }
        for (call, outcome) in unseen {
            state.graph.ended(call, Member::HERE, outcome);
        }
        drop(state);
        engine
    }

    /// Runs each call twice from now on, and compares the outputs.
    pub(crate) fn check(&self) {
        self.lock().graph.queues().check();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the graph, and performs the resulting actions.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Graph) -> R) -> R {
        self.change_in(self.lock(), change)
    }

    fn change_in<R>(&self, state: MutexGuard<'_, State>, change: impl FnOnce(&mut Graph) -> R) -> R {
        self.change_state_in(state, |state| change(&mut state.graph))
    }

    /// Changes the state, and performs the resulting actions.
    pub(super) fn change_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.change_state_in(self.lock(), change)
    }

    fn change_state_in<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        change: impl FnOnce(&mut State) -> R,
    ) -> R {
        let result = change(&mut state);
        let mut awaited = state.awaited.take();
        let has_happened = awaited.as_mut().is_some_and(|awaited| state.has_happened(awaited));
        state.awaited = awaited.filter(|_| !has_happened);
        let halts = state.is_wrong() && !state.is_halted;
        state.is_halted |= halts;
        let mut after = self.perform(&mut state);
        for seen in state.graph.observed().take_seen() {
            self.executor.see(|| seen);
        }
        drop(state);
        if has_happened || halts {
            self.happened.notify_one();
        }
        self.finish(&mut after);
        result
    }

    /// Returns the options of a call that apply here: a sequential program ignores resource requirements.
    pub(crate) fn counting(&self, options: Options) -> Options {
        if self.is_sequential { options.without_demands() } else { options }
    }

    /// Returns a requirement of a call that no node will ever satisfy.
    pub(crate) fn lacks(&self, options: &Options) -> Option<Lack> {
        Lack::of(Demand::of(options), self.most.iter())
    }

    /// Adds a call, and then drops handles. Waits while too many calls are unfinished.
    pub(crate) fn call(&self, id: CallId, call: NewCall, dropped: &[VersionId]) {
        let is_merge = call.merge.is_some();
        let unfinished = self.change_in(self.running(), |graph| {
            graph.call(id, call);
            for version in dropped {
                graph.release(*version);
            }
            graph.unfinished()
        });
        // The calls of a reduction in any order start when all of them are made.
        if !is_merge {
            self.wait_if_ahead(unfinished);
        }
    }

    /// Starts the reductions in any order whose calls are all made.
    pub(super) fn begin_reductions(&self) {
        let unfinished = self.change_in(self.running(), |graph| {
            graph.start_reductions();
            graph.unfinished()
        });
        self.wait_if_ahead(unfinished);
    }

    fn wait_if_ahead(&self, unfinished: usize) {
        if unfinished > self.ahead_max {
            // Down to half of the limit, so that the program is not woken for every call.
            drop(self.wait(self.running(), Awaited::Unfinished(self.ahead_max / 2)));
        }
    }

    /// Returns whether the program runs each call where it makes it.
    pub(super) fn is_sequential(&self) -> bool {
        self.is_sequential
    }

    /// Adds data.
    pub(crate) fn bring(&self, id: CallId, value: Value) {
        let (bytes, content) = match &self.others {
            Some(_) => value.fingerprint(),
            None if self.executor.has_sizes() => (value.size(), 0),
            None => (0, 0),
        };
        let mark = self.change(|graph| graph.data(id, bytes, content));
        self.executor.put(VersionId { call: id, slot: 0 }, value, mark, bytes);
    }

    /// Counts another handle of a version.
    pub(crate) fn retain(&self, version: VersionId) {
        let mut state = self.lock();
        if !state.is_halted {
            state.graph.retain(version);
        }
    }

    /// Removes one handle of a version.
    pub(crate) fn release(&self, version: VersionId) {
        // A stopped program may have handles of calls that were not made; and its data is still needed.
        let state = self.lock();
        if !state.is_halted {
            self.change_in(state, |graph| graph.release(version));
        }
    }

    /// Waits for a version, and returns it.
    pub(crate) fn get(&self, version: VersionId) -> Result<Value, Failure> {
        let mut state = self.wait(self.running(), Awaited::Version(version));
        let input = state.graph.want(version);
        // Before it may be dropped.
        let value = self.executor.get(version);
        state.graph.unwant(version);
        drop(state);
        match input {
            Input::Failed(failure) => {
                failure.see();
                Err(failure)
            }
            Input::Here => Ok(value.expect("a version with a handle is kept")),
            Input::Awaited => unreachable!("the version was awaited"),
        }
    }

    /// Waits until all calls have completed. Returns the statistics.
    ///
    /// # Errors
    /// Returns the first failure that the program has not received.
    pub(crate) fn settle(&self) -> Result<Figures, Failure> {
        let mut state = self.wait(self.lock(), Awaited::Unfinished(0));
        match state.graph.unseen_failures().first() {
            Some(failure) => Err(failure.clone()),
            None => Ok(state.graph.figures()),
        }
    }

    /// Waits until the calls between these numbers have completed. Returns the first of their failures; all of
    /// them count as received.
    pub(crate) fn wait_for(&self, calls: Range<CallId>) -> Result<(), Failure> {
        let state = self.wait(self.running(), Awaited::Calls(calls.start, calls.end));
        told_of(state.graph.failures_of(calls))
    }

    /// Waits until all calls have completed. Returns the first failure that the program has not received
    /// before.
    pub(crate) fn wait_for_all(&self) -> Result<(), Failure> {
        let mut state = self.wait(self.running(), Awaited::Unfinished(0));
        told_of(state.graph.unseen_failures())
    }

    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut awaited: Awaited,
    ) -> MutexGuard<'a, State> {
        // The program may wait for one of their calls.
        state.graph.start_reductions();
        loop {
            let has_happened = state.has_happened(&mut awaited);
            // Performing actions may detect a permanent loss.
            state.is_halted |= state.is_wrong();
            let mut after = self.perform(&mut state);
            if has_happened && after.is_nothing() {
                return state;
            }
            if !after.is_nothing() {
                drop(state);
                self.finish(&mut after);
                state = self.lock();
                continue;
            }
            state.awaited = Some(awaited.clone());
            while state.awaited.is_some() && !state.is_halted {
                state = self.happened.wait(&self.state, state);
            }
            drop(state);
            state = self.running();
        }
    }

    /// Stops the program at its next call or wait: its thread unwinds. All other work stops as well.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        state.is_halted = true;
        drop(state);
        self.happened.notify_one();
    }

    /// Stops the program at its next call or wait, but not running calls.
    pub(crate) fn halt(&self) {
        self.lock().is_halted = true;
        self.happened.notify_one();
    }

    /// Reads or changes the graph without consequences for other nodes.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&mut Graph) -> R) -> R {
        inspect(&mut self.lock().graph)
    }

    /// Returns whether a leaving node holds nothing that is still needed and only it has.
    pub(crate) fn may_go(&self) -> bool {
        if !self.may_go.load(Relaxed) {
            return false;
        }
        let state = self.lock();
        state.records.is_empty() && state.graph.may_go_still()
    }

    /// Unwinds the thread of the program if it was stopped.
    pub(crate) fn end_if_stopped(&self) {
        drop(self.running());
    }

    /// Locks the state for the program, whose thread unwinds if it was stopped.
    pub(super) fn running(&self) -> MutexGuard<'_, State> {
        let state = self.lock();
        if state.is_halted {
            drop(state);
            // Without a message: the reason is reported elsewhere.
            resume_unwind(Box::new(Stopped));
        }
        state
    }
}

/// Returns the failure for a program that waits for calls. All of them count as received.
fn told_of(failures: &[Failure]) -> Result<(), Failure> {
    failures.iter().for_each(Failure::see);
    first_of(failures.iter(), Failure::call).map_or(Ok(()), |failure| Err(failure.clone()))
}
