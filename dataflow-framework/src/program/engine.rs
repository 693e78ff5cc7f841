//! Runs the calls of one program: here, and on other nodes if there are any.

use std::{
    panic::resume_unwind,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    core::{Action, Assignment, CallId, Graph, Input, Member, NewCall, Outcome, VersionId},
    failure::Failure,
    figures::Figures,
    node::{Peer, Queue, Report, Site},
    value::Value,
};

/// The calls of one program, and its data.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// What the program waits for has happened.
    happened: Condvar,
    pub(crate) site: Arc<Site>,
    queue: Arc<Queue>,
    /// Whether calls are run by the program itself, each where it is made.
    is_sequential: bool,
    ahead_max: usize,
    others: Option<Arc<dyn Others>>,
}

/// The other nodes.
pub(crate) trait Others: Send + Sync {
    /// Has a node run a call. `from` says where what it reads is that it does not have.
    fn assign(&self, member: Member, assignment: &Assignment);

    /// Has a node forget a version.
    fn forget(&self, member: Member, version: VersionId);

    /// Returns the nodes behind members.
    fn peers(&self, members: &[Member]) -> Vec<Peer>;

    /// Sends what was said; also what is asked of others, if something is to be brought here.
    fn flush(&self, brings: bool);
}

struct State {
    graph: Graph,
    awaited: Option<Awaited>,
    /// Whether the program is to end at once, since it goes on elsewhere.
    is_stopped: bool,
}

/// What the program waits for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Version(VersionId),
    /// That at most so many calls are unfinished.
    Unfinished(usize),
}

/// With which the thread of a program unwinds that is stopped.
pub(crate) struct Stopped;

impl State {
    fn has_happened(&mut self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Version(version) => !matches!(self.graph.want(version), Input::Awaited),
            Awaited::Unfinished(most) => self.graph.unfinished() <= most,
        }
    }
}

impl Engine {
    /// Creates an engine for the threads of a queue. Without workers each call is run at once, by the program itself.
    pub(crate) fn new(queue: Arc<Queue>, workers: usize, ahead_max: usize) -> Arc<Self> {
        Self::with_others(queue, workers, ahead_max, None)
    }

    /// Creates an engine that has calls run on other nodes, too.
    pub(crate) fn with_others(
        queue: Arc<Queue>,
        workers: usize,
        ahead_max: usize,
        others: Option<Arc<dyn Others>>,
    ) -> Arc<Self> {
        let mut graph = Graph::new(others.is_some());
        let is_sequential = workers == 0 && others.is_none();
        let here = if is_sequential { 1 } else { u32::try_from(workers).unwrap_or(u32::MAX) };
        graph.joined(Member::HERE, here);
        Arc::new_cyclic(|engine: &Weak<Self>| Self {
            state: Mutex::new(State { graph, awaited: None, is_stopped: false }),
            happened: Condvar::new(),
            site: Arc::new(Site::new(Arc::clone(&queue), engine.clone(), others.is_some())),
            queue,
            is_sequential,
            ahead_max,
            others,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the graph, and does what follows.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Graph) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.graph);
        let has_happened = match state.awaited {
            Some(awaited) => state.has_happened(awaited),
            None => false,
        };
        if has_happened {
            state.awaited = None;
        }
        let after = self.perform(&mut state);
        drop(state);
        if has_happened {
            self.happened.notify_one();
        }
        self.finish(&after);
        result
    }

    /// Adds a call, and then drops handles. Waits while too many calls are unfinished.
    pub(crate) fn call(&self, id: CallId, call: NewCall, dropped: &[VersionId]) {
        self.end_if_stopped();
        let unfinished = self.change(|graph| {
            graph.call(id, call);
            for version in dropped {
                graph.release(*version);
            }
            graph.unfinished()
        });
        if unfinished > self.ahead_max {
            // Down to half, so that the program is not woken for every call.
            drop(self.wait(Awaited::Unfinished(self.ahead_max / 2)));
        }
    }

    /// Adds data.
    pub(crate) fn bring(&self, id: CallId, value: Value) {
        let bytes = self.site.bring(VersionId { call: id, slot: 0 }, value);
        self.lock().graph.data(id, bytes);
    }

    /// Tells that there is another handle of a version.
    pub(crate) fn retain(&self, version: VersionId) {
        let mut state = self.lock();
        if !state.is_stopped {
            state.graph.retain(version);
        }
    }

    /// Tells that there is one handle less of a version.
    pub(crate) fn release(&self, version: VersionId) {
        // A program that is stopped may have handles of calls that were not made.
        if !self.lock().is_stopped {
            self.change(|graph| graph.release(version));
        }
    }

    /// Waits for a version, and returns it.
    pub(crate) fn get(&self, version: VersionId) -> Result<Value, Failure> {
        self.end_if_stopped();
        let mut state = self.wait(Awaited::Version(version));
        let input = state.graph.want(version);
        // Before it may be forgotten.
        let value = self.site.get(version);
        state.graph.unwant(version);
        drop(state);
        match input {
            Input::Failed(failure) => {
                failure.see();
                Err(failure)
            }
            Input::Here => Ok(value.expect("a version with a handle is kept")),
            Input::Awaited => unreachable!("it was awaited"),
        }
    }

    /// Waits until no call is unfinished. Returns the failures of calls, and what was counted.
    pub(crate) fn settle(&self) -> (Vec<Failure>, Figures) {
        let mut state = self.wait(Awaited::Unfinished(0));
        (state.graph.take_failures(), state.graph.figures())
    }

    fn wait(&self, awaited: Awaited) -> MutexGuard<'_, State> {
        loop {
            let mut state = self.lock();
            let has_happened = state.has_happened(awaited);
            let after = self.perform(&mut state);
            if has_happened && after.is_nothing() {
                return state;
            }
            if !after.is_nothing() {
                drop(state);
                self.finish(&after);
                continue;
            }
            state.awaited = Some(awaited);
            while state.awaited.is_some() && !state.is_stopped {
                state = self.happened.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            self.end_if_stopped();
        }
    }

    /// Stops the program at its next call, or where it waits: its thread unwinds.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.site.end();
        self.happened.notify_one();
    }

    fn end_if_stopped(&self) {
        if self.lock().is_stopped {
            // Without a message: nothing is wrong.
            resume_unwind(Box::new(Stopped));
        }
    }

    /// Does what is to be done, under the lock: a node that is to forget a version must not be told so after it is
    /// told to make it again.
    fn perform(&self, state: &mut State) -> After {
        let mut after = After::default();
        for action in state.graph.actions() {
            match (action, &self.others) {
                (Action::Forget(Member::HERE, version), _) => {
                    after.forgotten.extend(self.site.forget(version));
                }
                (Action::Assign(Member::HERE, assignment), others) => {
                    let from = others.iter().flat_map(|others| {
                        assignment
                            .elsewhere
                            .iter()
                            .map(|(version, members)| (*version, others.peers(members)))
                    });
                    let from = from.collect();
                    self.site.assign(assignment, from);
                    after.assigned += 1;
                }
                (Action::Forget(member, version), Some(others)) => others.forget(member, version),
                (Action::Assign(member, assignment), Some(others)) => others.assign(member, &assignment),
                (Action::Bring(version, members), Some(others)) => {
                    self.site.fetch(version, others.peers(&members));
                    after.brings = true;
                }
                (Action::Forget(..) | Action::Assign(..) | Action::Bring(..), None) => {
                    unreachable!("everything is here")
                }
            }
        }
        after
    }

    /// Does what may take longer.
    fn finish(&self, after: &After) {
        if let Some(others) = &self.others {
            others.flush(after.brings);
        }
        if self.is_sequential {
            for _ in 0..after.assigned {
                self.queue.run_one();
            }
        }
    }
}

/// What is done when the lock is released.
#[derive(Default)]
struct After {
    /// Is dropped.
    forgotten: Vec<Value>,
    /// The number of calls that were assigned here.
    assigned: usize,
    /// Whether something is to be brought here.
    brings: bool,
}

impl After {
    fn is_nothing(&self) -> bool {
        self.forgotten.is_empty() && self.assigned == 0 && !self.brings
    }
}

impl Report for Engine {
    fn ended(&self, call: CallId, outcome: Outcome) {
        self.change(|graph| graph.ended(call, Member::HERE, outcome));
    }

    fn unable(&self, call: CallId, missing: VersionId) {
        self.change(|graph| graph.unable(call, Member::HERE, missing));
    }

    fn copied(&self, version: VersionId) {
        self.change(|graph| graph.copied(version, Member::HERE));
    }

    fn not_brought(&self, version: VersionId) {
        self.change(|graph| graph.not_brought(version));
    }
}
