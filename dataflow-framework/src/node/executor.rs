//! Executes a program's calls on a node: stores versions, fetches missing inputs and runs the calls.
//!
//! The executor outlives a run of the program: when the program restarts, on this node or another one, the executor
//! reports its versions and running calls and serves the new run, which is identified by its *epoch*. Queued calls of
//! earlier runs are dropped.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use taskwork::{NodeId, companion::Objects};
use tokio::{sync::Notify, time::Instant};

use super::{
    answers::Preparing,
    assignments::Assignments,
    fetches::{Arrived, Awaited, Fetches, GivenUp, Missing},
    messages::{News, Report, Returned},
    nesting::Nesting,
    queue::Queue,
    stopwatch::Stopwatch,
    store::Store,
    waits::Waits,
};
use crate::{
    cache::Cache,
    core::{Assignment, Held, Mark, Outcome, Seen},
    failure::Failed,
    ids::{Argument, CallId, VersionId},
    task::Tasks,
    value::Value,
};

/// The execution of calls on one node, and the versions that the node stores.
pub(crate) struct Executor {
    pub(super) store: Store,
    pub(super) queue: Arc<Queue>,
    pub(super) nesting: &'static dyn Nesting,
    pub(crate) tasks: Option<Arc<Tasks>>,
    /// The pending waits of tasks that make calls.
    pub(super) waits: Waits,
    fetches: Mutex<Fetches>,
    preparing: Mutex<Preparing>,
    assignments: Mutex<Assignments>,
    network: OnceLock<Network>,
    pub(super) cache: OnceLock<Arc<Cache>>,
    /// Whether versions may be moved, so that their sizes are of interest.
    pub(super) has_peers: bool,
    pub(super) is_over: AtomicBool,
    /// Times the calls for which it is enabled.
    pub(super) stopwatch: Stopwatch,
}

/// The access of an executor to other nodes.
#[derive(Debug)]
pub(crate) struct Network {
    /// The id of this node.
    pub(crate) node: NodeId,
    pub(crate) objects: Objects,
    /// Wakes the companion to send messages.
    pub(crate) wake: Arc<Notify>,
}

/// The state of an executor at the start of a run.
#[derive(Debug)]
pub(crate) struct Inventory {
    pub(crate) epoch: u64,
    pub(crate) held: Vec<Held>,
    /// The calls of earlier runs that are still running, or have an outcome in `unseen`.
    pub(crate) running: Vec<(CallId, Mark)>,
    /// The completed calls of earlier runs whose outcomes may not be recorded yet.
    pub(crate) unseen: Vec<(CallId, Outcome)>,
}

impl Executor {
    /// Creates the executor for a program with these tasks; `None` accepts all tasks.
    pub(crate) fn new(
        queue: Arc<Queue>,
        store: Store,
        tasks: Option<Arc<Tasks>>,
        has_peers: bool,
        nesting: &'static dyn Nesting,
    ) -> Self {
        Self {
            store,
            queue,
            nesting,
            tasks,
            waits: Waits::default(),
            fetches: Mutex::default(),
            preparing: Mutex::default(),
            assignments: Mutex::default(),
            network: OnceLock::new(),
            cache: OnceLock::new(),
            has_peers,
            is_over: AtomicBool::new(false),
            stopwatch: Stopwatch::default(),
        }
    }

    pub(super) fn fetches(&self) -> MutexGuard<'_, Fetches> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn assignments(&self) -> MutexGuard<'_, Assignments> {
        self.assignments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn preparing(&self) -> MutexGuard<'_, Preparing> {
        self.preparing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(&self, network: Network) {
        // It does not change.
        let _ = self.network.set(network);
    }

    /// Uses a cache of outputs, if there is one.
    pub(crate) fn use_cache(&self, cache: Option<Arc<Cache>>) {
        // It does not change.
        let _ = cache.map(|cache| self.cache.set(cache));
    }

    pub(super) fn network(&self) -> Option<&Network> {
        self.network.get()
    }

    /// Returns how others name this node.
    pub(super) fn name(&self) -> Option<NodeId> {
        self.network().map(|network| network.node)
    }

    /// Appends the id of this node to the reason.
    pub(super) fn here(&self, reason: &str) -> String {
        match self.name() {
            Some(node) => format!("{reason} (on node {node})"),
            None => reason.to_owned(),
        }
    }

    pub(super) fn report(&self) -> Option<Arc<dyn Report>> {
        self.assignments().report.as_ref().and_then(Weak::upgrade)
    }

    /// Starts to serve a run of the program, and returns the state left by earlier runs.
    pub(crate) fn begin(&self, report: Weak<dyn Report>) -> Inventory {
        drop(self.queue.take_back(self));
        self.stopwatch.forget();
        let mut fetches = self.fetches();
        let mut assignments = self.assignments();
        // Both are locked, so that no call of the previous run enters the new one.
        *fetches = Fetches::default();
        assignments.epoch += 1;
        assignments.cancelled.clear();
        drop(fetches);
        assignments.report = Some(report);
        for call in std::mem::take(&mut assignments.nesting) {
            assignments.running.remove(&call);
        }
        self.waits.end_all();
        assignments.forget_halves(&self.store);
        // `assignments` is locked, so a call that completes now is in exactly one of its `running` and `unseen`.
        // `Inventory::running` contains both.
        let running = assignments.running.iter().map(|(call, mark)| (*call, *mark));
        let unseen = assignments.unseen.iter().map(|(call, (mark, _))| (*call, *mark));
        let running = running.chain(unseen).collect();
        let unseen = assignments.unseen.iter().map(|(call, (_, outcome))| (*call, outcome.clone())).collect();
        let epoch = assignments.epoch;
        let mut held = self.store.held();
        // The output of an execution is not listed if its outcome may not be recorded: it becomes valid only with that
        // outcome. Fetched versions (`brought`) are listed.
        held.retain(|Held { version, .. }| {
            !assignments.unseen.contains_key(&version.call) || assignments.brought.contains(version)
        });
        drop(assignments);
        Inventory { epoch, held, running, unseen }
    }

    /// Runs no more calls. Running calls are cancelled, and their outcomes are not reported.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.queue.cancel_all();
        self.waits.end_all();
    }

    /// Stores a version.
    pub(crate) fn put(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) {
        self.keep(version, value, mark, bytes, false);
        self.relieve();
    }

    /// Stores a version that was not computed here and that this node shall keep.
    pub(crate) fn put_brought(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) {
        self.keep_brought(version, value, mark, bytes, false);
        self.relieve();
    }

    /// Stores a version without making room for it.
    pub(super) fn keep(&self, version: VersionId, value: Value, mark: Mark, bytes: u64, is_copy: bool) {
        self.see(|| Seen::holds(version, mark, value.fingerprint_now().1));
        self.store.put(version, value, mark, bytes, is_copy);
    }

    /// Returns whether the sizes of versions are needed.
    pub(crate) fn has_sizes(&self) -> bool {
        self.has_peers || self.store.limit().is_some()
    }

    /// Makes room if possible; if not, the next call with an output fails.
    fn relieve(&self) {
        if let Err(Failed { reason, .. }) = self.store.relieve() {
            tracing::warn!(reason, "the store of this node has no room");
        }
    }

    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.store.get(version)
    }

    /// Removes a version and returns it, because dropping it may be slow.
    #[must_use = "dropping it may be slow"]
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        self.forget_outcome_of(version);
        self.store.forget(version)
    }

    /// Accepts a call, which runs once its inputs are here. `missing` lists the inputs that were not here when it was
    /// assigned.
    pub(crate) fn assign(self: &Arc<Self>, epoch: u64, assignment: Assignment, mut missing: Vec<Missing>) {
        if assignment.manner.is_timed {
            self.stopwatch.on_assigned(assignment.call, Instant::now());
        }
        if missing.is_empty() {
            return self.run_or_give(epoch, assignment);
        }
        let mut fetches = self.fetches();
        if self.assignments().epoch != epoch {
            return;
        }
        // Some of the inputs may have arrived since then.
        let new = self.take_in(&mut missing).into_iter();
        let here = new.map(|version| {
            let mut awaited = fetches.on_arrived(version).unwrap_or_default();
            // A version that is changed in place is not available as a copy for other nodes.
            awaited.is_taken |= assignment.takes(version);
            (version, awaited)
        });
        let here = here.collect();
        let ready = if missing.is_empty() {
            Some(assignment)
        } else {
            fetches.add(assignment, missing);
            None
        };
        drop(fetches);
        self.on_available(epoch, here);
        if let Some(assignment) = ready {
            self.run_or_give(epoch, assignment);
        }
    }

    pub(crate) fn fetch(self: &Arc<Self>, missing: Missing) {
        let version = missing.version;
        let mut fetches = self.fetches();
        let mut missing = vec![missing];
        let new = self.take_in(&mut missing);
        if let Some(missing) = missing.pop() {
            return fetches.add_alone(missing);
        }
        let awaited = new.first().and_then(|new| fetches.on_arrived(*new)).unwrap_or_default();
        let epoch = self.assignments().epoch;
        drop(fetches);
        self.on_available(epoch, vec![(version, Awaited { is_alone: true, ..awaited })]);
    }

    /// Removes the calls that have not started, and returns them.
    pub(crate) fn take_back(&self) -> Vec<Returned> {
        let waiting = self.fetches().take_back();
        waiting.into_iter().chain(self.queue.take_back(self)).map(|call| self.give_back(&call)).collect()
    }

    /// Returns a call that has not started, in the form for the coordinator.
    pub(crate) fn give_back(&self, assignment: &Assignment) -> Returned {
        let size = |version| self.store.size(version).map(|bytes| (version, bytes));
        (assignment.call, assignment.taken().filter_map(size).collect())
    }

    /// Returns the requests to be sent to other nodes now.
    pub(crate) fn asks(&self, now_ms: u64) -> Vec<(NodeId, VersionId)> {
        let (asks, given_up) = self.fetches().asks(now_ms);
        let report = self.report().filter(|_| !given_up.is_empty());
        if let Some(report) = report {
            for GivenUp { version, calls, tried, reason } in given_up {
                for assignment in calls {
                    match &reason {
                        None => {
                            report.tell(News::unable(self.give_back(&assignment), version, tried.clone()));
                        }
                        Some(reason) => {
                            let failed = Failed::of_node(format!("an input cannot be fetched: {reason}"));
                            report.tell(News::ended(assignment.call, self.unfit(&assignment, failed)));
                        }
                    }
                }
                report.tell(News::NotCopied { version, tried });
            }
        }
        let copies = self.store.copies_to_ask();
        if let Some(report) = self.report().filter(|_| !copies.is_empty()) {
            report.tell(News::HasCopies(copies));
        }
        asks
    }

    /// Passes an event to the observer, if there is one.
    pub(crate) fn see(&self, seen: impl FnOnce() -> Seen) {
        self.queue.platform.see(seen);
    }

    pub(super) fn on_arrived(self: &Arc<Self>, fetches: MutexGuard<'_, Fetches>, arrived: Arrived) {
        let Arrived { version, mark, value, bytes, awaited } = arrived;
        let name = value.known_name();
        // Store it before any call is notified: a call that looks for it now finds it.
        self.keep_brought(version, value, mark, bytes, !awaited.is_alone);
        if let Some(name) = name {
            self.offer(version, name);
        }
        // A new run starts with empty fetches.
        let epoch = self.assignments().epoch;
        drop(fetches);
        self.relieve();
        self.on_available(epoch, vec![(version, awaited)]);
    }

    /// Reports that versions have arrived, and continues the calls that waited for them.
    fn on_available(self: &Arc<Self>, epoch: u64, here: Vec<(VersionId, Awaited)>) {
        for (version, Awaited { is_taken, is_alone, ready }) in here {
            match self.report() {
                Some(report) if !is_taken => report.tell(News::Copied(version)),
                // A version that is changed in place is not available as a copy for other nodes.
                Some(report) if is_alone => report.tell(News::NotCopied { version, tried: Vec::new() }),
                _ => {}
            }
            for assignment in ready {
                if assignment.manner.is_timed {
                    self.stopwatch.on_arrived(assignment.call, Instant::now());
                }
                self.run_or_give(epoch, assignment);
            }
        }
    }

    pub(crate) fn on_lost(&self, peer: NodeId) {
        self.fetches().on_lost(peer);
    }
}

impl Assignment {
    /// Returns the versions that the call changes in place.
    pub(crate) fn taken(&self) -> impl Iterator<Item = VersionId> {
        let updates = self.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
        let taken = updates.zip(&self.in_place).filter(|(_, in_place)| **in_place);
        taken.flat_map(|(update, _)| update.versions().iter().copied())
    }

    /// Returns whether the call changes the version in place.
    pub(crate) fn takes(&self, version: VersionId) -> bool {
        self.taken().any(|taken| taken == version)
    }
}
