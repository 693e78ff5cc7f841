//! What a node does for a program: it keeps versions, gets those that it misses, and runs calls.
//!
//! When the program begins anew, on this node or another one, the site stays: it tells what it has and what it runs, and
//! serves the new run, whose number is its *epoch*. Calls of earlier runs that have not begun are dropped.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    attempt::{self, Written},
    begun::Begun,
    deadline::{self, Deadline},
    fetches::{Arrived, Ask, Fetches, GivenUp, Missing, Piece},
    queue::Queue,
    store::Store,
};
#[cfg(feature = "simulation")]
use crate::simulation::Seen;
use crate::{
    core::{Argument, Assignment, CallId, Held, Mark, Outcome, VersionId},
    failure::{Failed, Failure},
    node::Peer,
    value::Value,
};

/// Who is told how calls end.
pub(crate) trait Report: Send + Sync {
    /// Tells how a call has ended.
    fn ended(&self, call: CallId, outcome: Outcome);

    /// Tells what a call has written that was begun in an earlier run of the program, before its end is told.
    fn holds(&self, held: Vec<Held>);

    /// Tells that a call cannot run here, because a version that it reads is not to be had.
    fn unable(&self, call: CallId, missing: VersionId);

    /// Tells that a version was brought here.
    fn copied(&self, version: VersionId);

    /// Tells that a version is not to be had.
    fn not_brought(&self, version: VersionId);
}

/// What a node does for a program.
pub(crate) struct Site {
    pub(super) store: Store,
    queue: Arc<Queue>,
    fetches: Mutex<Fetches>,
    duty: Mutex<Duty>,
    /// Whether versions may be moved, so that their sizes are of interest.
    has_peers: bool,
    is_over: AtomicBool,
}

/// What the site does now.
#[derive(Default)]
struct Duty {
    epoch: u64,
    /// None before the first run.
    report: Option<Weak<dyn Report>>,
    /// The calls that run, if there are other nodes to know of them.
    running: BTreeMap<CallId, Mark>,
    /// The calls whose ends nobody may see before they are recorded, and how they have ended.
    unseen: BTreeMap<CallId, (Mark, Outcome)>,
}

/// What a site has when a run begins.
#[derive(Debug)]
pub(crate) struct Inventory {
    pub(crate) epoch: u64,
    pub(crate) held: Vec<Held>,
    /// The calls of earlier runs that run still.
    pub(crate) running: Vec<(CallId, Mark)>,
    /// Those of them that have ended, which nobody may have seen.
    pub(crate) unseen: Vec<(CallId, Outcome)>,
}

/// A call that is given back, and the versions with their sizes that it would have changed in place.
pub(crate) type Returned = (CallId, Vec<(VersionId, u64)>);

impl Site {
    pub(crate) fn new(queue: Arc<Queue>, has_peers: bool) -> Self {
        Self {
            store: Store::default(),
            queue,
            fetches: Mutex::default(),
            duty: Mutex::default(),
            has_peers,
            is_over: AtomicBool::new(false),
        }
    }

    fn fetches(&self) -> MutexGuard<'_, Fetches> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn duty(&self) -> MutexGuard<'_, Duty> {
        self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> Option<Arc<dyn Report>> {
        self.duty().report.as_ref().and_then(Weak::upgrade)
    }

    /// Begins to serve a run of the program, and returns what is there from earlier ones.
    pub(crate) fn begin(&self, report: Weak<dyn Report>) -> Inventory {
        *self.fetches() = Fetches::default();
        drop(self.queue.take_back(self));
        let mut duty = self.duty();
        duty.epoch += 1;
        duty.report = Some(report);
        // A call that ends now is still in the one, or already in the other.
        let running = duty.running.iter().map(|(call, mark)| (*call, *mark));
        // Of these it is told next how they have ended.
        let unseen = duty.unseen.iter().map(|(call, (mark, _))| (*call, *mark));
        let running = running.chain(unseen).collect();
        let unseen = duty.unseen.iter().map(|(call, (_, outcome))| (*call, outcome.clone())).collect();
        let epoch = duty.epoch;
        drop(duty);
        Inventory { epoch, held: self.store.held(), running, unseen }
    }

    /// Runs no more calls. Those that run go on to their end, of which nobody is told.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Takes in a version.
    pub(crate) fn put(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) {
        #[cfg(feature = "simulation")]
        self.queue.platform.see(|| Seen::holds(version, mark, &value));
        self.store.put(version, value, mark, bytes);
    }

    pub(crate) fn get(&self, version: VersionId) -> Option<Value> {
        self.store.get(version)
    }

    /// Forgets a version, and returns it: to drop it may take a while.
    #[must_use = "to drop it takes a while"]
    pub(crate) fn forget(&self, version: VersionId) -> Option<Value> {
        self.store.forget(version)
    }

    /// Takes in a call, which runs when what it reads is here. `missing` is what was not when the call was assigned.
    pub(crate) fn assign(self: &Arc<Self>, epoch: u64, assignment: Assignment, mut missing: Vec<Missing>) {
        if missing.is_empty() {
            return self.queue.push(Arc::clone(self), epoch, assignment);
        }
        let mut fetches = self.fetches();
        if self.duty().epoch != epoch {
            return;
        }
        // Others may have brought some of it meanwhile.
        let mut new = self.take_in(&mut missing);
        // What is changed in place is no copy for others.
        new.retain(|version| !assignment.takes(*version));
        let ready = if missing.is_empty() {
            Some(assignment)
        } else {
            fetches.add(assignment, missing);
            None
        };
        drop(fetches);
        if let Some(report) = self.report().filter(|_| !new.is_empty()) {
            for version in new {
                report.copied(version);
            }
        }
        if let Some(assignment) = ready {
            self.queue.push(Arc::clone(self), epoch, assignment);
        }
    }

    /// Has a version brought here.
    pub(crate) fn fetch(&self, missing: Missing) {
        let version = missing.version;
        let mut fetches = self.fetches();
        let mut missing = vec![missing];
        self.take_in(&mut missing);
        let Some(missing) = missing.pop() else {
            drop(fetches);
            return self.report().into_iter().for_each(|report| report.copied(version));
        };
        fetches.add_alone(missing);
    }

    /// Gives back the calls that have not begun.
    pub(crate) fn take_back(&self) -> Vec<Returned> {
        let waiting = self.fetches().take_back();
        waiting.into_iter().chain(self.queue.take_back(self)).map(|call| self.give_back(&call)).collect()
    }

    /// Gives a call back that has not begun.
    pub(crate) fn give_back(&self, assignment: &Assignment) -> Returned {
        let size = |version| self.store.size(version).map(|bytes| (version, bytes));
        (assignment.call, assignment.taken().filter_map(size).collect())
    }

    /// Returns what is to be asked of others now.
    pub(crate) fn asks(&self, now_ms: u64) -> Vec<(Peer, Ask)> {
        let (asks, given_up) = self.fetches().asks(now_ms);
        let report = self.report().filter(|_| !given_up.is_empty());
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
        Piece::of(ask, &self.store.get(ask.version)?).ok()
    }

    /// Takes in a piece of a version.
    pub(crate) fn piece(self: &Arc<Self>, piece: Piece, now_ms: u64) {
        let mut fetches = self.fetches();
        let Some(arrived) = fetches.piece(piece, now_ms) else { return };
        let Arrived { version, mark, bytes, is_taken, is_alone, ready } = arrived;
        // Before any call is told: whoever looks for it now finds it.
        let size = bytes.len() as u64;
        let value = Value::from_encoded(bytes);
        #[cfg(feature = "simulation")]
        self.queue.platform.see(|| Seen::holds(version, mark, &value));
        self.store.put(version, value, mark, size);
        // A new run begins with empty fetches.
        let epoch = self.duty().epoch;
        drop(fetches);
        match self.report() {
            Some(report) if !is_taken => report.copied(version),
            // What is changed in place is no copy for others.
            Some(report) if is_alone => report.not_brought(version),
            _ => {}
        }
        for assignment in ready {
            self.queue.push(Arc::clone(self), epoch, assignment);
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

    /// Begins a call that was assigned in a run of the program, unless that is over, or the call cannot run.
    pub(super) fn begin_call(self: &Arc<Self>, epoch: u64, assignment: Assignment) -> Option<Begun> {
        let Assignment { call, mark, .. } = assignment;
        if !self.begins(epoch, call, mark) {
            return None;
        }
        let inputs = match self.store.inputs(&assignment) {
            Ok(inputs) => inputs,
            Err(missing) => {
                // It was forgotten meanwhile, since the call was taken from this node.
                let (report, is_current) = self.ends(epoch, call);
                if let Some(report) = report.filter(|_| is_current) {
                    report.unable(call, missing);
                }
                return None;
            }
        };
        #[cfg(feature = "simulation")]
        self.queue.platform.see(|| Seen::begins(&assignment, &inputs));
        let (deadline, watch) = match assignment.manner.timeout {
            Some(timeout) => self.watch(epoch, &assignment, &inputs, timeout),
            None => (None, None),
        };
        let (site, since) = (Arc::clone(self), Instant::now());
        Some(Begun { site, epoch, assignment, inputs, deadline, watch, since })
    }

    /// Keeps what a call has written, and returns how it has ended.
    pub(super) fn outcome(
        &self,
        assignment: &Assignment,
        written: Result<Written, Failed>,
        ns: u64,
    ) -> Outcome {
        let Assignment { call, task, mark, .. } = *assignment;
        let put = |written: Vec<Value>| -> Vec<u64> {
            let bytes = (0..).zip(written).map(|(slot, value)| {
                #[cfg(feature = "simulation")]
                self.queue.platform.see(|| Seen::holds(VersionId { call, slot }, mark, &value));
                let bytes = if self.has_peers { value.size() } else { 0 };
                self.store.put(VersionId { call, slot }, value, mark, bytes);
                bytes
            });
            bytes.collect()
        };
        match written {
            Ok(Written::ByTask(written)) if assignment.manner.once_token.is_some() && self.has_peers => {
                let values = encoded(&written);
                Outcome::Durable { bytes: put(written), ns, values }
            }
            Ok(Written::ByTask(written)) => Outcome::Written { bytes: put(written), ns },
            Ok(Written::Defaults(written, reason)) => Outcome::Ignored { bytes: put(written), reason },
            Err(Failed { reason }) => Outcome::Failed(Failure::new(task.name, call, reason)),
        }
    }

    /// Tells how a call has ended.
    pub(super) fn tell(&self, epoch: u64, (call, mark): (CallId, Mark), outcome: Outcome) {
        #[cfg(feature = "simulation")]
        self.queue.platform.see(|| Seen::ran(call, &outcome));
        let (report, is_current) = self.ends(epoch, call);
        let Some(report) = report else { return };
        self.keeps_unseen(call, mark, &outcome);
        // What others may not see yet is told with the end.
        if let Outcome::Written { bytes, .. } = &outcome
            && !is_current
        {
            let held = |(slot, bytes): (u32, &u64)| {
                let version = VersionId { call, slot };
                Held { version, mark, bytes: *bytes }
            };
            report.holds((0..).zip(bytes).map(held).collect());
        }
        report.ended(call, outcome);
    }

    /// Keeps how a call has ended, so that it can be told again if the head is lost before it is recorded.
    fn keeps_unseen(&self, call: CallId, mark: Mark, outcome: &Outcome) {
        if self.has_peers && matches!(outcome, Outcome::Durable { .. } | Outcome::Ignored { .. }) {
            self.duty().unseen.insert(call, (mark, outcome.clone()));
        }
    }

    /// Forgets how calls have ended whose ends are recorded.
    pub(crate) fn is_recorded(&self, is_recorded: impl Fn(CallId) -> bool) {
        self.duty().unseen.retain(|call, _| !is_recorded(*call));
    }

    /// Sets the deadline of a call that begins. If it passes, the call has failed, and its thread is left to it.
    fn watch(
        self: &Arc<Self>,
        epoch: u64,
        assignment: &Assignment,
        inputs: &[Value],
        timeout: Duration,
    ) -> (Option<Instant>, Option<Deadline>) {
        let Some(deadline) = Instant::now().checked_add(timeout) else { return (None, None) };
        let Assignment { call, mark, .. } = *assignment;
        let (site, assignment) = (Arc::clone(self), assignment.clone());
        // Only one that ignores its failure needs them again; others may change them in place.
        let inputs = if attempt::ignores(&assignment) { inputs.to_vec() } else { Vec::new() };
        let watched = self.queue.watch(deadline, move || {
            let task = assignment.task.name;
            tracing::warn!(task, call, ?timeout, "a call has taken too long; its thread is left to it");
            let written = attempt::otherwise(&assignment, inputs, deadline::exceeded(timeout));
            let outcome = site.outcome(&assignment, written, 0);
            site.tell(epoch, (call, mark), outcome);
        });
        (Some(deadline), watched)
    }

    /// Notes that a call begins. Returns whether it may.
    fn begins(&self, epoch: u64, call: CallId, mark: Mark) -> bool {
        if self.is_over.load(Relaxed) {
            return false;
        }
        if self.has_peers {
            let mut duty = self.duty();
            if duty.epoch != epoch {
                return false;
            }
            duty.running.insert(call, mark);
        }
        true
    }

    /// Notes that a call has ended. Returns who is to be told, and whether its run of the program is the present one.
    fn ends(&self, epoch: u64, call: CallId) -> (Option<Arc<dyn Report>>, bool) {
        let mut duty = self.duty();
        if self.has_peers {
            duty.running.remove(&call);
        }
        let report = duty.report.as_ref().and_then(Weak::upgrade);
        (report.filter(|_| !self.is_over.load(Relaxed)), duty.epoch == epoch)
    }
}

/// The maximum size of what goes to the journal of what a call has written, in bytes.
const DURABLE_BYTES_MAX: u64 = 64 << 10;

/// Returns what a call has written, encoded, if it is small.
fn encoded(written: &[Value]) -> Option<Vec<Vec<u8>>> {
    let bytes: u64 = written.iter().map(Value::size).sum();
    let part = |value: &Value| value.part(0, usize::MAX).ok().map(|(_, bytes)| bytes);
    if bytes <= DURABLE_BYTES_MAX { written.iter().map(part).collect() } else { None }
}

impl Assignment {
    /// Returns the versions that the call changes in place.
    fn taken(&self) -> impl Iterator<Item = VersionId> {
        let updates = self.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
        let taken = updates.zip(&self.in_place).filter(|(_, in_place)| **in_place);
        taken.flat_map(|(update, _)| update.versions().iter().copied())
    }

    /// Returns whether the call changes a version in place.
    pub(crate) fn takes(&self, version: VersionId) -> bool {
        self.taken().any(|taken| taken == version)
    }
}
