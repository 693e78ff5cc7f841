//! Machines: each runs one node process, under one node id after another. A machine can freeze, and can die.
//!
//! A frozen machine's processes send and receive nothing: everything to and from it waits until it thaws, and
//! then arrives in order. Its workers stand still.

use std::{cell::Cell, collections::BTreeMap, fmt, future::Future, time::Duration};

use taskwork::NodeId;
use tokio::sync::{mpsc, oneshot};

use super::{Event, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MachineId(pub(crate) u32);

impl MachineId {
    /// The machine of submitters and operators. It has no random faults.
    pub(crate) const OFFICE: Self = Self(u32::MAX);
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Machines {
    all: BTreeMap<MachineId, Machine>,
    seats: BTreeMap<NodeId, MachineId>,
    made: u32,
}

#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) process: Process,
    condition: Condition,
    pub(crate) node: Option<NodeId>,
    /// The events that wait until it thaws.
    held: Vec<Event>,
    thawing: Vec<oneshot::Sender<()>>,
    /// Asks its process to leave.
    pub(crate) leave: Option<mpsc::Sender<Option<Duration>>>,
    /// Whether the network between it and the servers is cut.
    pub(crate) cut_off: bool,
    /// The extra duration of the next slice of a worker, in milliseconds.
    pub(crate) stuck_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Condition {
    #[default]
    Runs,
    Frozen,
    Dead,
}

/// The node process of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Process {
    /// There is no process: the machine only sends requests to the servers.
    #[default]
    None,
    Stays,
    Leaves,
    Ended,
}

impl Machines {
    pub(crate) fn add(&mut self) -> MachineId {
        let id = MachineId(self.made);
        self.made += 1;
        self.all.insert(id, Machine { process: Process::Stays, ..Machine::default() });
        id
    }

    /// Starts a process on a machine, unless the machine is dead or was asked to leave.
    pub(crate) fn start(&mut self, machine: MachineId, leave: mpsc::Sender<Option<Duration>>) -> bool {
        let it = self.get(machine);
        it.leave = Some(leave);
        if it.process == Process::Leaves {
            it.process = Process::Ended;
        }
        it.condition != Condition::Dead && it.process == Process::Stays
    }

    pub(super) fn seat(&mut self, machine: MachineId, node: NodeId) {
        self.seats.insert(node, machine);
        self.get(machine).node = Some(node);
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<MachineId> {
        self.seats.get(&node).copied()
    }

    /// Returns the machine; one without nodes, such as the submitter's, is created at its first use.
    pub(crate) fn get(&mut self, machine: MachineId) -> &mut Machine {
        self.all.entry(machine).or_default()
    }

    pub(crate) fn is_frozen(&self, machine: MachineId) -> bool {
        self.all.get(&machine).is_some_and(|it| it.condition == Condition::Frozen)
    }

    pub(crate) fn is_dead(&self, machine: MachineId) -> bool {
        self.all.get(&machine).is_some_and(|it| it.condition == Condition::Dead)
    }

    /// Returns the machines with a process that was not asked to leave.
    pub(crate) fn staying(&self) -> Vec<MachineId> {
        self.that_run(|process| process == Process::Stays)
    }

    /// Returns the machines whose process has not exited.
    pub(crate) fn living(&self) -> Vec<MachineId> {
        self.that_run(|process| matches!(process, Process::Stays | Process::Leaves))
    }

    fn that_run(&self, chosen: impl Fn(Process) -> bool) -> Vec<MachineId> {
        let alive = |it: &Machine| it.condition != Condition::Dead && chosen(it.process);
        self.all.iter().filter(|(_, it)| alive(it)).map(|(&id, _)| id).collect()
    }

    /// Returns the extra duration of a slice that a worker of the node starts now.
    pub(super) fn take_stuck(&mut self, node: NodeId) -> u64 {
        let machine = self.seats.get(&node).and_then(|machine| self.all.get_mut(machine));
        machine.map_or(0, |machine| std::mem::take(&mut machine.stuck_ms))
    }

    /// Restarts a dead machine without its previous state: its node ids are not used again.
    pub(crate) fn revive(&mut self, machine: MachineId) {
        self.seats.retain(|_, seat| *seat != machine);
        self.all.insert(machine, Machine { process: Process::Stays, ..Machine::default() });
    }

    /// Returns whether a node belongs, or belonged, to any machine's process.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.seats.contains_key(&node)
    }

    /// Returns a receiver that resolves when the node's machine has thawed; `None` if it is not frozen.
    pub(super) fn thawed(&mut self, node: NodeId) -> Option<oneshot::Receiver<()>> {
        let machine = self.all.get_mut(self.seats.get(&node)?)?;
        if machine.condition == Condition::Runs {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        machine.thawing.push(sender);
        Some(receiver)
    }

    pub(super) fn take_held(&mut self) -> Vec<Event> {
        self.all.values_mut().flat_map(|machine| std::mem::take(&mut machine.held)).collect()
    }
}

impl State {
    /// Executes an event at a machine: now, or when it has thawed; never, if it is dead.
    pub(super) fn at(&mut self, machine: MachineId, happening: impl FnOnce(&mut Self) + Send + 'static) {
        let at = self.machines.get(machine);
        match at.condition {
            Condition::Runs => happening(self),
            Condition::Frozen => at.held.push(Box::new(happening)),
            Condition::Dead => {}
        }
    }

    pub(crate) fn freeze(&mut self, machine: MachineId, ms: u64) {
        let it = self.machines.get(machine);
        if it.condition != Condition::Runs {
            return;
        }
        it.condition = Condition::Frozen;
        self.silence(machine);
        self.after(ms, move |state| state.thaw(machine));
    }

    fn thaw(&mut self, machine: MachineId) {
        let it = self.machines.get(machine);
        if it.condition != Condition::Frozen {
            return;
        }
        it.condition = Condition::Runs;
        it.thawing.clear();
        let held = std::mem::take(&mut it.held);
        self.note(format_args!("{machine} thaws"));
        self.hear_again(machine);
        for happening in held {
            // One of these events may freeze the machine again.
            self.at(machine, happening);
        }
    }

    /// Kills a machine with everything on it.
    pub(crate) fn kill(&mut self, machine: MachineId) {
        let it = self.machines.get(machine);
        it.condition = Condition::Dead;
        it.held.clear();
        self.silence(machine);
    }
}

thread_local! {
    static CURRENT: Cell<MachineId> = const { Cell::new(MachineId(u32::MAX)) };
}

/// Returns the machine whose code is running. Only the code that opens sessions and assigns ids calls it,
/// inside [`on`].
pub(super) fn current() -> MachineId {
    CURRENT.get()
}

/// Runs a future on a machine: all its requests to the world come from that machine.
pub(crate) async fn on<F: Future>(machine: MachineId, future: F) -> F::Output {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        let before = CURRENT.replace(machine);
        let polled = future.as_mut().poll(cx);
        CURRENT.set(before);
        polled
    })
    .await
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("node", &self.node)
            .field("process", &self.process)
            .field("condition", &self.condition)
            .finish_non_exhaustive()
    }
}
