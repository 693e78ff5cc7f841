//! The world of the simulated nodes: time, randomness, machines, a network, ZooKeeper.
//!
//! ```text
//!   nodes (real code, tasks of a paused tokio runtime)
//!     │ requests, messages                      ▲ answers, watches, messages
//!     ▼                                         │
//!   agenda: events with their times, each an action on the state ── one at a time, in the order of time
//!     │
//!     ├─ servers    a log of committed operations, replicas of the real `zk::tree::Tree` that lag behind it
//!     ├─ network    delays, losses, repetitions, partitions; streams of objects
//!     └─ machines   run, are frozen, are dead
//! ```
//!
//! All random decisions come from one generator, in the order of the events. The order of the events is
//! unique, since there is one thread. So each seed has one history.

mod turn;
mod connections;
mod machines;
mod network;
mod objects;
mod proposals;
mod servers;
mod session;
mod stamps;
mod workflow;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork::{
    NodeId,
    simulation::{Answer, Inbox, Opening, Pace, World as NodeWorld},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::{machines::Machines, network::Network};
pub(crate) use self::{
    machines::{MachineId, Process, on},
    servers::{SESSION_MS, Servers},
    turn::{pause, show_read},
};
use crate::{
    invariants::{Invariants, Seen},
    plan::Rates,
    run::Census,
    workload,
};

type Event = Box<dyn FnOnce(&mut State) + Send>;

/// A world, shared by everything in it.
#[derive(Debug, Clone)]
pub(crate) struct World(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Signals an event that is due before all others on the agenda.
    earlier: Notify,
    start: Instant,
}

/// The whole state of a world.
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) random: SmallRng,
    pub(crate) rates: Rates,
    agenda: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub(crate) machines: Machines,
    network: Network,
    pub(crate) servers: Servers,
    pub(crate) invariants: Invariants,
    pub(crate) trace: Trace,
    /// The duration of a slice of work, in milliseconds.
    slice_ms: u64,
    slice_states: usize,
    pub(crate) counts: Counts,
    /// The time of each node's first work.
    pub(crate) first_work: BTreeMap<NodeId, u64>,
    /// The nodes that have closed their session.
    pub(crate) closed: BTreeSet<NodeId>,
}

/// Counters of a world's events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) messages: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) states: u64,
    /// The number of grants sent with tasks, including repeated ones.
    pub(crate) grants: u64,
    /// The number of members whose session ended while they were members.
    pub(crate) members_lost: u64,
}

/// The history of a world: its fingerprint, and its text on request.
#[derive(Debug)]
pub(crate) struct Trace {
    fingerprint: std::hash::DefaultHasher,
    pub(crate) lines: Option<Vec<String>>,
}

impl Trace {
    fn new(kept: bool) -> Self {
        Self { fingerprint: std::hash::DefaultHasher::new(), lines: kept.then(Vec::new) }
    }

    /// Returns a fingerprint, equal for equal histories.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint.finish()
    }

    fn note(&mut self, now: u64, line: std::fmt::Arguments<'_>) {
        let line = format!("{now:>8} {line}");
        self.fingerprint.write(line.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Birth {
    pub(crate) seed: u64,
    pub(crate) rates: Rates,
    pub(crate) slice_ms: u64,
    pub(crate) slice_states: usize,
    pub(crate) keep_trace: bool,
}

impl World {
    /// Creates a world without machines. Must be called inside the runtime whose time it uses.
    pub(crate) fn new(birth: &Birth, invariants: Invariants) -> Self {
        let state = State {
            now: 0,
            random: SmallRng::seed_from_u64(birth.seed),
            rates: birth.rates,
            agenda: BTreeMap::new(),
            scheduled: 0,
            machines: Machines::default(),
            network: Network::default(),
            servers: Servers::new(),
            invariants,
            trace: Trace::new(birth.keep_trace),
            slice_ms: birth.slice_ms,
            slice_states: birth.slice_states,
            counts: Counts::default(),
            first_work: BTreeMap::new(),
            closed: BTreeSet::new(),
        };
        let shared = Shared { state: Mutex::new(state), earlier: Notify::new(), start: Instant::now() };
        Self(Arc::new(shared))
    }

    /// Calls `act` with the state. Must not be held across an `await`.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        state.now = state.now.max(self.now());
        let before = state.next();
        let done = act(&mut state);
        let after = state.next();
        drop(state);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.0.earlier.notify_one();
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Executes events when they are due, until the world ends.
    pub(crate) async fn turn(self) {
        loop {
            let next = {
                let mut state = self.lock();
                state.now = self.now();
                state.do_what_is_due();
                state.next()
            };
            let far = self.0.start + Duration::from_secs(1 << 30);
            let due = next.map_or(far, |ms| self.0.start + Duration::from_millis(ms));
            tokio::select! {
                biased;
                () = self.0.earlier.notified() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Removes everything from the agenda, so that nothing keeps the world alive.
    pub(crate) fn end(&self) {
        let agenda = std::mem::take(&mut self.lock().agenda);
        drop(agenda);
        let held = self.lock().machines.take_held();
        drop(held);
    }
}

impl State {
    fn next(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((ms, _), _)| *ms)
    }

    pub(crate) fn after(&mut self, ms: u64, happening: impl FnOnce(&mut Self) + Send + 'static) {
        self.agenda.insert((self.now + ms, self.scheduled), Box::new(happening));
        self.scheduled += 1;
    }

    fn do_what_is_due(&mut self) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            self.counts.events += 1;
            let happening = entry.remove();
            happening(self);
        }
    }

    /// Counts the objects that are left in the world.
    pub(crate) fn census(&self, cluster: &zk::ClusterPaths) -> Census {
        Census {
            znodes: self.servers.tree.len(),
            watches: self.servers.watches(),
            members: self.servers.names(&cluster.members()).len(),
            under_way: self.agenda.len(),
        }
    }

    /// Adds a line to the history.
    pub(crate) fn note(&mut self, line: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, line);
    }

    /// Shows an event to the invariants.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) {
        self.invariants.see(self.now, seen);
    }

    /// Returns true with this probability, per thousand.
    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.random_range(0..1000) < per_mille
    }

    /// Returns a random transmission time.
    pub(crate) fn latency(&mut self) -> u64 {
        let slow = self.rates.slow;
        if self.chance(slow) { self.random.random_range(2..=self.rates.slow_ms.max(2)) } else { 1 }
    }
}

impl NodeWorld for World {
    fn connect(&self) -> Opening {
        let (world, machine) = (self.clone(), machines::current());
        Box::pin(async move { session::open(world, machine).await })
    }

    fn new_id(&self) -> NodeId {
        let machine = machines::current();
        self.with(|state| {
            let node = NodeId(state.random.random_range(1..=u64::MAX));
            state.machines.seat(machine, node);
            state.note(format_args!("{machine} is {node}"));
            node
        })
    }

    fn listen(&self, node: NodeId, inbox: Inbox) {
        self.with(|state| state.listen(node, inbox));
    }

    fn send(&self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        self.with(|state| state.send(from, to, payload));
    }

    fn waits(&self, from: NodeId, to: NodeId, job: u64, grant: u64, said: u8) -> bool {
        self.with(|state| state.is_under_way(from, to, (job, grant, said)))
    }

    fn ask(&self, from: NodeId, to: NodeId, question: Vec<u8>, answer: Answer) {
        self.with(|state| state.ask(from, to, question, answer));
    }

    fn hang_up(&self, node: NodeId) {
        self.with(|state| state.hang_up(node));
    }

    fn on_violation(&self, violation: &str) {
        self.with(|state| state.see(&Seen::NodeBroken { what: violation }));
    }
}

impl Pace for World {
    fn slice(&self, node: NodeId) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let ms = self.with(|state| state.slice_ms + state.machines.take_stuck(node));
        Box::pin(self.clone().wait_on(node, ms))
    }

    fn work(&self, node: NodeId, job: u64, run: &mut dyn FnMut()) {
        let states = self.lock().slice_states;
        let done = workload::slice(states, run);
        self.with(|state| {
            state.counts.states += done.consumed.len() as u64;
            let now = state.now;
            if !done.consumed.is_empty() {
                state.first_work.entry(node).or_insert(now);
            }
            state.see(&Seen::Worked { node, job, done: &done });
            if let Some(machine) = state.machines.of(node).filter(|_| done.deadly) {
                state.kill(machine);
                state.note(format_args!("{machine} dies of its task"));
            }
        });
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).field("counts", &self.counts).finish_non_exhaustive()
    }
}
