//! Runs the calls of one program on the threads of this process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    core::{Action, Assignment, CallId, Graph, Input, Member, NewCall, Outcome, VersionId},
    failure::{Failed, Failure},
    figures::Figures,
    node::{Invocation, Queue, Store},
    value::Value,
};

/// The calls of one program, and its data.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Mutex<State>,
    /// What the program waits for has happened.
    happened: Condvar,
    store: Store,
    queue: Queue,
    workers: usize,
    ahead_max: usize,
}

#[derive(Debug)]
struct State {
    graph: Graph,
    awaited: Option<Awaited>,
}

/// What the program waits for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Version(VersionId),
    /// That at most so many calls are unfinished.
    Unfinished(usize),
}

impl State {
    fn has_happened(&mut self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Version(version) => !matches!(self.graph.want(version), Input::Awaited),
            Awaited::Unfinished(most) => self.graph.unfinished() <= most,
        }
    }
}

impl Engine {
    /// Creates an engine with a number of workers, whose threads call [`work`](Self::work). Without workers a call is
    /// run at once, by the program itself.
    pub(crate) fn new(workers: usize, ahead_max: usize) -> Self {
        let mut graph = Graph::new(false);
        graph.joined(Member::HERE, u32::try_from(workers.max(1)).unwrap_or(u32::MAX));
        Self {
            state: Mutex::new(State { graph, awaited: None }),
            happened: Condvar::new(),
            store: Store::default(),
            queue: Queue::default(),
            workers,
            ahead_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, and then drops handles. Waits while too many calls are unfinished.
    pub(crate) fn call(&self, id: CallId, call: NewCall, dropped: &[VersionId]) {
        let mut state = self.lock();
        state.graph.call(id, call);
        for version in dropped {
            state.graph.release(*version);
        }
        let actions = state.graph.actions();
        let is_full = state.graph.unfinished() > self.ahead_max;
        drop(state);
        self.perform(actions);
        if is_full {
            // Down to half, so that the program is not woken for every call.
            drop(self.wait(Awaited::Unfinished(self.ahead_max / 2)));
        }
    }

    /// Adds data.
    pub(crate) fn bring(&self, id: CallId, value: Value) {
        self.store.put(id, vec![value]);
        self.lock().graph.data(id, 0);
    }

    /// Tells that there is another handle of a version.
    pub(crate) fn retain(&self, version: VersionId) {
        self.lock().graph.retain(version);
    }

    /// Tells that there is one handle less of a version.
    pub(crate) fn release(&self, version: VersionId) {
        let mut state = self.lock();
        state.graph.release(version);
        let actions = state.graph.actions();
        drop(state);
        self.perform(actions);
    }

    /// Waits for a version, and returns it.
    pub(crate) fn get(&self, version: VersionId) -> Result<Value, Failure> {
        let mut state = self.wait(Awaited::Version(version));
        let input = state.graph.want(version);
        state.graph.unwant(version);
        drop(state);
        match input {
            Input::Failed(failure) => {
                failure.see();
                Err(failure)
            }
            Input::Here => Ok(self.store.get(version).expect("a version with a handle is kept")),
            Input::Awaited => unreachable!("it was awaited"),
        }
    }

    /// Waits until no call is unfinished. Returns the failures of calls, and what was counted.
    pub(crate) fn settle(&self) -> (Vec<Failure>, Figures) {
        let mut state = self.wait(Awaited::Unfinished(0));
        (state.graph.take_failures(), state.graph.figures())
    }

    fn wait(&self, awaited: Awaited) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !state.has_happened(awaited) {
            state.awaited = Some(awaited);
            state = self.happened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaited = None;
        state
    }

    /// Runs calls until there are no more. This is what the thread of a worker does.
    pub(crate) fn work(&self) {
        while let Some(assignment) = self.queue.next() {
            self.run(assignment);
        }
    }

    /// Ends the threads of the workers, each after the call that it runs.
    pub(crate) fn end(&self) {
        self.queue.end();
    }

    fn perform(&self, actions: Vec<Action>) {
        let mut forgotten = Vec::new();
        for action in actions {
            match action {
                Action::Forget(_, version) => forgotten.push(version),
                Action::Assign(_, assignment) if self.workers == 0 => self.run(assignment),
                Action::Assign(_, assignment) => self.queue.push(assignment),
                Action::Bring(..) => unreachable!("everything is here"),
            }
        }
        if !forgotten.is_empty() {
            self.store.forget(&forgotten);
        }
    }

    fn run(&self, assignment: Assignment) {
        let Assignment { call, task, .. } = assignment;
        let inputs = self.store.inputs(&assignment).expect("what a call reads is kept until it has ended");
        let begun = Instant::now();
        let outcome = match run_task(&assignment, inputs) {
            Ok(written) => {
                // Sizes are of interest where data is moved.
                let bytes = vec![0; written.len()];
                self.store.put(call, written);
                let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Outcome::Written { bytes, ns }
            }
            Err(Failed { reason }) => Outcome::Failed(Failure::new(task.name, call, reason)),
        };
        // Its inputs are not in use any more when the next call is assigned.
        drop(assignment);
        let mut state = self.lock();
        state.graph.ended(call, Member::HERE, outcome);
        let actions = state.graph.actions();
        let has_happened = match state.awaited {
            Some(awaited) => state.has_happened(awaited),
            None => false,
        };
        if has_happened {
            state.awaited = None;
        }
        drop(state);
        if has_happened {
            self.happened.notify_one();
        }
        self.perform(actions);
    }
}

fn run_task(assignment: &Assignment, inputs: Vec<Value>) -> Result<Vec<Value>, Failed> {
    let mut call = Invocation::new(assignment, inputs);
    // What it changes is its own, and dropped with it.
    let run = AssertUnwindSafe(|| (assignment.task.run)(&mut call));
    catch_unwind(run).unwrap_or_else(|panic| Err(Failed::panicked(&*panic)))?;
    Ok(call.into_written())
}

/// Runs the threads of an engine, until this is dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    engine: Arc<Engine>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Crew {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(engine: &Arc<Engine>) -> std::io::Result<Self> {
        let mut crew = Self { engine: Arc::clone(engine), threads: Vec::new() };
        for number in 0..engine.workers {
            let engine = Arc::clone(engine);
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            crew.threads.push(thread.spawn(move || engine.work())?);
        }
        Ok(crew)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.engine.end();
        for thread in self.threads.drain(..) {
            // Tasks that panic do not end their thread.
            drop(thread.join());
        }
    }
}
