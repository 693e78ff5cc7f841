//! What a node does for one run of a program: it keeps versions, gets those that it misses, and runs calls.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{
    fetches::{Arrived, Ask, Fetches, GivenUp, Piece},
    invocation::Invocation,
    queue::Queue,
    store::Store,
};
use crate::{
    core::{Argument, Assignment, CallId, Outcome, VersionId},
    failure::{Failed, Failure},
    node::Peer,
    value::Value,
};

/// Who is told how calls end.
pub(crate) trait Report: Send + Sync {
    /// Tells how a call has ended.
    fn ended(&self, call: CallId, outcome: Outcome);

    /// Tells that a call cannot run here, because a version that it reads is not to be had.
    fn unable(&self, call: CallId, missing: VersionId);

    /// Tells that a version was brought here.
    fn copied(&self, version: VersionId);

    /// Tells that a version is not to be had.
    fn not_brought(&self, version: VersionId);
}

/// What a node does for one run of a program.
pub(crate) struct Site {
    store: Store,
    queue: Arc<Queue>,
    fetches: Mutex<Fetches>,
    report: Weak<dyn Report>,
    /// Whether sizes of versions are of interest, since they may be moved.
    has_peers: bool,
    is_over: AtomicBool,
}

impl Site {
    pub(crate) fn new(queue: Arc<Queue>, report: Weak<dyn Report>, has_peers: bool) -> Self {
        Self {
            store: Store::default(),
            queue,
            fetches: Mutex::default(),
            report,
            has_peers,
            is_over: AtomicBool::new(false),
        }
    }

    fn fetches(&self) -> MutexGuard<'_, Fetches> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs no more calls. Those that run go on to their end, of which nobody is told.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Takes in a version, and returns its size.
    pub(crate) fn bring(&self, version: VersionId, value: Value) -> u64 {
        let bytes = if self.has_peers { value.size() } else { 0 };
        self.store.put(version, value);
        bytes
    }

    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.store.get(version)
    }

    /// Forgets a version, and returns it: to drop it may take a while.
    #[must_use = "to drop it takes a while"]
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        self.store.forget(version)
    }

    /// Takes in a call, which runs when what it reads is here. `from` says where each of the versions is that were not
    /// when the call was assigned.
    pub(crate) fn assign(self: &Arc<Self>, assignment: Assignment, from: Vec<(VersionId, Vec<Peer>)>) {
        if from.is_empty() {
            return self.queue.push(Arc::clone(self), assignment);
        }
        let mut fetches = self.fetches();
        // Others may have brought some of them meanwhile.
        let missing: Vec<_> = from.into_iter().filter(|(version, _)| !self.store.has(*version)).collect();
        if missing.is_empty() {
            drop(fetches);
            return self.queue.push(Arc::clone(self), assignment);
        }
        fetches.add(assignment, missing);
    }

    /// Has a version brought here.
    pub(crate) fn fetch(&self, version: VersionId, from: Vec<Peer>) {
        self.fetches().add_alone(version, from);
    }

    /// Returns what is to be asked of others now.
    pub(crate) fn asks(&self, now_ms: u64) -> Vec<(Peer, Ask)> {
        let (asks, given_up) = self.fetches().asks(now_ms);
        let report = self.report.upgrade().filter(|_| !given_up.is_empty());
        if let Some(report) = report {
            for GivenUp { version, calls } in given_up {
                for call in calls {
                    report.unable(call, version);
                }
                report.not_brought(version);
            }
        }
        asks
    }

    /// Answers what another node asks. `None` if the version is not here.
    pub(crate) fn answer(&self, ask: Ask) -> Option<Piece> {
        let encoded = self.store.get(ask.version)?.encoded().ok()?;
        Some(Piece::of(ask, &encoded))
    }

    /// Takes in a piece of a version.
    pub(crate) fn piece(self: &Arc<Self>, piece: Piece, now_ms: u64) {
        let mut fetches = self.fetches();
        let Some(Arrived { version, bytes, is_taken, ready }) = fetches.piece(piece, now_ms) else { return };
        // Before any call is told: whoever looks for it now finds it.
        self.store.put(version, Value::from_encoded(bytes));
        drop(fetches);
        // What is changed in place is no copy for others.
        if !is_taken && let Some(report) = self.report.upgrade() {
            report.copied(version);
        }
        for assignment in ready {
            self.queue.push(Arc::clone(self), assignment);
        }
    }

    /// Takes in that a node does not have a version.
    pub(crate) fn absent(&self, from: Peer, version: VersionId) {
        self.fetches().absent(from, version);
    }

    /// Takes in that a node is gone.
    pub(crate) fn is_gone(&self, peer: Peer) {
        self.fetches().is_gone(peer);
    }

    /// Runs a call.
    pub(crate) fn run(&self, assignment: Assignment) {
        if self.is_over.load(Relaxed) {
            return;
        }
        let Assignment { call, task, .. } = assignment;
        let inputs = match self.store.inputs(&assignment) {
            Ok(inputs) => inputs,
            Err(missing) => {
                // It was forgotten meanwhile, since the call was taken from this node.
                if let Some(report) = self.report.upgrade() {
                    report.unable(call, missing);
                }
                return;
            }
        };
        let begun = Instant::now();
        let outcome = match run_task(&assignment, inputs) {
            Ok(written) => {
                let bytes =
                    (0..).zip(written).map(|(slot, value)| self.bring(VersionId { call, slot }, value));
                let bytes = bytes.collect();
                let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Outcome::Written { bytes, ns }
            }
            Err(Failed { reason }) => Outcome::Failed(Failure::new(task.name, call, reason)),
        };
        // Its inputs are not in use any more when the next call is assigned.
        drop(assignment);
        if let Some(report) = self.report.upgrade().filter(|_| !self.is_over.load(Relaxed)) {
            report.ended(call, outcome);
        }
    }
}

impl Assignment {
    /// Returns whether the call changes a version in place.
    pub(crate) fn takes(&self, version: VersionId) -> bool {
        let updates = self.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
        updates.zip(&self.in_place).any(|(update, in_place)| *in_place && update.versions() == [version])
    }
}

fn run_task(assignment: &Assignment, inputs: Vec<Value>) -> Result<Vec<Value>, Failed> {
    let mut call = Invocation::new(assignment, inputs);
    // What it changes is its own, and dropped with it.
    let run = AssertUnwindSafe(|| (assignment.task.run)(&mut call));
    catch_unwind(run).unwrap_or_else(|panic| Err(Failed::panicked(&*panic)))?;
    Ok(call.into_written())
}
