//! The companion of a node: it runs calls for the coordinator, or is the coordinator.

mod leaving;
mod program;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use taskwork::{
    NodeId, Waker,
    companion::{JobStatus, Messenger, Objects, Rescue},
};
use tokio::sync::Notify;

use super::{
    following::{Following, Memory, lock},
    leading::Leading,
    message::{Content, Message, Run},
    output::ProgramOutput,
    status,
};
use crate::{
    cache::Cache,
    core::{Capacity, Seen},
    node::{Answer, Coded, Executor, Network, Queue, Room, Store},
    platform::Platform,
    program::{CallsOfTasks, Engine},
    task::Tasks,
};

/// The workflow node: the handle of the companion.
pub(super) struct WorkflowNode {
    pub(super) tasks: Arc<Tasks>,
    pub(super) platform: Platform,
    pub(super) queue: Arc<Queue>,
    executor: Arc<Executor>,
    memory: Memory,
    /// Whether the job has observers.
    pub(super) is_public: AtomicBool,
    state: Mutex<State>,
    /// Wakes the companion to send messages or to process events.
    pub(super) wake: Arc<Notify>,
}

struct State {
    /// Set while the companion runs.
    link: Option<Link>,
    /// The other nodes that are present.
    nodes: BTreeSet<NodeId>,
    role: Role,
    /// The lines on which this node has followed earlier coordinators. Their assignments are dropped.
    followed: BTreeSet<(Run, NodeId, u32)>,
    program: Progress,
    /// The greatest generation of a run seen.
    generation: u64,
    is_leaving: bool,
    is_cordoned: bool,
    /// The rescue of data that delays the exit of the node.
    rescue: Option<Rescue>,
    /// The status of a program that has ended here.
    last_status: Option<JobStatus>,
}

/// The link to the other nodes.
#[derive(Clone)]
struct Link {
    messenger: Messenger,
    node: NodeId,
    capacity: Capacity,
    /// Whether all nodes are in this process.
    is_embedded: bool,
}

enum Role {
    /// No message has arrived yet.
    Idle,
    /// This node runs calls for the program on another node.
    Follows(Arc<Following>),
    /// The program is on this node.
    Leads(Arc<Leading>),
}

enum Progress {
    NotBegun,
    Runs(Waker),
    /// The program was stopped, because a later run has sent a message or has taken the journal. But that run
    /// may belong to a task that does not count, since its node was lost: then the run does not continue, and
    /// the task here is the only one.
    Deposed {
        waker: Waker,
        since_ms: u64,
    },
    Returned(Result<ProgramOutput, String>),
    /// The program starts once the companion runs and the node does not leave.
    Awaits(Waker),
}

/// The report to the task of the program.
pub(super) enum Told {
    /// The program must start.
    Begin,
    /// The program continues.
    Waits,
    Returned(Result<ProgramOutput, String>),
}

impl WorkflowNode {
    pub(super) fn new(tasks: Tasks) -> Self {
        let platform = Platform::current();
        let queue = Arc::new(Queue::on(platform.clone()));
        let tasks = Arc::new(tasks);
        let state = State {
            link: None,
            nodes: BTreeSet::new(),
            role: Role::Idle,
            followed: BTreeSet::new(),
            program: Progress::NotBegun,
            generation: 0,
            is_leaving: false,
            is_cordoned: false,
            rescue: None,
            last_status: None,
        };
        let store = Store::limited(Room::of_node());
        let executor =
            Executor::new(Arc::clone(&queue), store, Some(Arc::clone(&tasks)), true, &CallsOfTasks);
        if let Platform::Machine = platform {
            executor.use_cache(Cache::of_process());
        }
        Self {
            platform,
            executor: Arc::new(executor),
            tasks,
            queue,
            memory: Memory::default(),
            is_public: AtomicBool::new(false),
            state: Mutex::new(state),
            wake: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(
        &self,
        messenger: Messenger,
        objects: Objects,
        node: NodeId,
        capacity: Capacity,
        is_embedded: bool,
    ) {
        self.platform.set_node(node);
        self.executor.connect(Network { node, objects, wake: Arc::clone(&self.wake) });
        let mut state = self.lock();
        state.link = Some(Link { messenger, node, capacity, is_embedded });
        if let Progress::Awaits(waker) = &state.program {
            waker.wake();
            state.program = Progress::NotBegun;
        }
    }

    pub(super) fn joined(&self, node: NodeId) {
        let mut state = self.lock();
        if state.link.as_ref().is_some_and(|link| link.node == node) || !state.nodes.insert(node) {
            return;
        }
        match &state.role {
            Role::Leads(leading) => leading.on_joined(node),
            Role::Follows(following) => following.on_member_changed(node, true),
            Role::Idle => {}
        }
    }

    pub(super) fn left(&self, node: NodeId) {
        let mut state = self.lock();
        state.nodes.remove(&node);
        let role = state.role.clone();
        drop(state);
        match role {
            Role::Leads(leading) => leading.on_left(node),
            Role::Follows(following) => {
                following.on_member_changed(node, false);
                following.executor.on_lost(node);
            }
            Role::Idle => {}
        }
    }

    /// Handles a node without a running companion, which has nothing to report.
    pub(super) fn on_absent(&self, node: NodeId) {
        if let Some(leading) = self.leading() {
            leading.on_reports_complete(node);
        }
    }

    pub(super) fn message(&self, from: NodeId, bytes: &[u8], now_ms: u64) {
        let Ok(Message { run, content }) = Message::decode(bytes) else {
            return tracing::warn!(%from, "a message of a companion could not be read");
        };
        match content {
            Content::ToNode(line, frame) => {
                if let Some(following) = self.follow(from, run, line, now_ms) {
                    following.receive(&self.tasks, frame, now_ms);
                }
            }
            Content::ToCoordinator(line, frame) => {
                if let Role::Leads(leading) = &self.role(run) {
                    leading.receive(from, line, frame, now_ms);
                }
            }
            Content::Forgot(line) => {
                if let Role::Leads(leading) = &self.role(run) {
                    leading.on_forgotten(from, line);
                }
            }
            Content::Ask(version) => {
                let answer =
                    self.executor(run).map_or(Answer::Absent, |executor| executor.answer(from, version));
                self.send(from, &Message { run, content: Content::Answer(version, answer) });
            }
            Content::Answer(version, answer) => {
                if let Some(executor) = self.executor(run) {
                    executor.on_answer(from, version, answer, now_ms);
                }
            }
        }
    }

    /// Returns this node's coordinator state, if it is the coordinator.
    pub(super) fn leading(&self) -> Option<Arc<Leading>> {
        match &self.lock().role {
            Role::Leads(leading) => Some(Arc::clone(leading)),
            Role::Idle | Role::Follows(_) => None,
        }
    }

    fn role(&self, run: Run) -> Role {
        let role = self.lock().role.clone();
        if role.run() == Some(run) { role } else { Role::Idle }
    }

    fn executor(&self, run: Run) -> Option<Arc<Executor>> {
        self.role(run).executor()
    }

    /// Returns the run of a program on another node, and starts to follow it if it is the current one.
    fn follow(&self, coordinator: NodeId, run: Run, line: u32, now_ms: u64) -> Option<Arc<Following>> {
        let mut state = self.lock();
        state.generation = state.generation.max(run.generation);
        // A coordinator that is not known as a member yet repeats its message; one that was cut off is no
        // longer a member. If two runs have the same generation, one of which belongs to a task that does not
        // count, all nodes follow the same one.
        let is_later = |known: Run| state.nodes.contains(&coordinator) && run > known;
        let is_new = match &state.role {
            Role::Idle => true,
            Role::Follows(following) if following.coordinator == coordinator => {
                let known = (following.run, following.line_number);
                if known == (run, line) {
                    return Some(Arc::clone(following));
                }
                known < (run, line)
            }
            // The task of the program has moved; or its node was lost, and the task state with it. A
            // coordinator that was heard recently is present, even if this node does not know it as a member
            // yet.
            Role::Follows(following) => {
                let is_lost =
                    !state.nodes.contains(&following.coordinator) && !following.is_coordinator_heard(now_ms);
                is_later(following.run) || is_lost
            }
            Role::Leads(leading) => is_later(leading.run),
        };
        if !is_new {
            return None;
        }
        if state.followed.contains(&(run, coordinator, line)) {
            drop(state);
            self.send(coordinator, &Message { run, content: Content::Forgot(line) });
            return None;
        }
        let capacity = state.link.as_ref()?.capacity.clone();
        tracing::info!(%coordinator, generation = run.generation, "this node runs calls of the program on another one");
        self.resign(&mut state);
        if let Progress::Runs(waker) | Progress::Deposed { waker, .. } = &state.program {
            state.program = Progress::Deposed { waker: waker.clone(), since_ms: now_ms };
        }
        let following = Following::begin(
            (coordinator, run, line),
            capacity.clone(),
            &self.executor,
            &self.memory,
            &self.wake,
        );
        if state.is_cordoned {
            following.cordon(true);
        }
        if state.is_leaving {
            following.leave();
        }
        self.platform
            .see(|| Seen::Follows { run: (run.generation, run.started_us), workers: capacity.workers });
        state.role = Role::Follows(Arc::clone(&following));
        Some(following)
    }

    /// Sends the messages that are due. Returns whether a held message is due soon.
    pub(super) fn send_due(&self, now_ms: u64) -> bool {
        self.begin_anew_if_deposed(now_ms);
        let role = self.lock().role.clone();
        if let Role::Leads(leading) = &role {
            leading.leave_if_told(now_ms);
        }
        self.go_if_possible(&role, now_ms);
        let Some(run) = role.run() else { return false };
        if let Some(executor) = role.executor() {
            for (to, version) in executor.asks(now_ms) {
                self.send(to, &Message { run, content: Content::Ask(version) });
            }
            for (to, version, answer) in executor.due_answers() {
                self.send(to, &Message { run, content: Content::Answer(version, answer) });
            }
        }
        match role {
            Role::Idle => false,
            Role::Follows(following) => {
                while let Some(frame) = following.frame(now_ms) {
                    let content = Content::ToCoordinator(following.line_number, frame);
                    self.send(following.coordinator, &Message { run, content });
                }
                following.is_held()
            }
            Role::Leads(leading) => {
                for (to, content) in leading.frames(now_ms) {
                    self.send(to, &Message { run, content });
                }
                leading.is_held()
            }
        }
    }

    fn send(&self, to: NodeId, message: &Message) {
        let link = self.lock().link.clone();
        // A message that is not sent is repeated if it is not acknowledged.
        let sent = link.map(|link| link.messenger.send(to, message.encoded()));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "a message of a companion was not sent");
        }
    }

    /// Resets the state of this node in the job, except for the remembered calls.
    fn resign(&self, state: &mut State) {
        let role = std::mem::replace(&mut state.role, Role::Idle);
        match &role {
            Role::Idle => {}
            Role::Follows(following) => {
                state.followed.insert((following.run, following.coordinator, following.line_number));
            }
            Role::Leads(leading) => {
                let history = leading.engine.inspect(|graph| graph.journal().history().clone());
                lock(&self.memory).add(history);
            }
        }
        role.end();
    }

    /// Returns the engine of the program if it is on this node, and the generation of its run.
    pub(super) fn engine(&self) -> Option<(Arc<Engine>, u64)> {
        match &self.lock().role {
            Role::Leads(leading) => Some((Arc::clone(&leading.engine), leading.run.generation)),
            Role::Idle | Role::Follows(_) => None,
        }
    }

    /// Returns whether operators may observe the job.
    pub(super) fn is_public(&self) -> bool {
        self.is_public.load(Relaxed)
    }

    /// Returns the status of the program for observers.
    pub(super) fn shows(&self) -> Option<JobStatus> {
        let last = self.lock().last_status.clone();
        match self.engine() {
            // A returned program is shown with its graph: the node may send its final status before the job
            // ends.
            Some((engine, generation)) if last.as_ref().is_none_or(|last| last.rank != generation) => {
                Some(status::of_running(generation, &engine.summary(), engine.work_ahead()))
            }
            _ => last,
        }
    }

    /// Returns the status of a program that has ended here.
    fn last_status(&self) -> Option<JobStatus> {
        let (engine, generation) = self.engine()?;
        Some(status::of_ended(generation, &engine.observation()))
    }

    pub(super) fn end(&self) {
        let last = self.last_status();
        let mut state = self.lock();
        state.last_status = last;
        state.link = None;
        state.rescue = None;
        let role = std::mem::replace(&mut state.role, Role::Idle);
        drop(state);
        role.end();
        self.platform.see(|| Seen::Ends);
        self.executor.end();
        self.queue.end();
    }
}

impl Clone for Role {
    fn clone(&self) -> Self {
        match self {
            Self::Idle => Self::Idle,
            Self::Follows(following) => Self::Follows(Arc::clone(following)),
            Self::Leads(leading) => Self::Leads(Arc::clone(leading)),
        }
    }
}

impl Role {
    fn run(&self) -> Option<Run> {
        match self {
            Self::Idle => None,
            Self::Follows(following) => Some(following.run),
            Self::Leads(leading) => Some(leading.run),
        }
    }

    fn executor(&self) -> Option<Arc<Executor>> {
        match self {
            Self::Idle => None,
            Self::Follows(following) => Some(Arc::clone(&following.executor)),
            Self::Leads(leading) => Some(Arc::clone(&leading.engine.executor)),
        }
    }

    fn end(self) {
        match self {
            // The executor stays, and serves the next run.
            Self::Idle | Self::Follows(_) => {}
            Self::Leads(leading) => leading.engine.stop(),
        }
    }
}

#[cfg(test)]
#[path = "workflow_node_tests.rs"]
mod tests;
