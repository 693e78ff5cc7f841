//! What the companion of a node does: it runs calls for the head, or is the head.

mod program;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use taskwork::{Messenger, NodeId, Rescue, Sight, Waker};
use tokio::sync::Notify;

use super::{
    following::{Following, Memory, lock},
    leading::Leading,
    main_task::ProgramOutput,
    message::{Content, Message, Run},
    witness,
};
use crate::{
    core::{Capacity, Seen},
    node::{Answer, Coded, Executor, Queue, Room, Store},
    platform::Platform,
    program::{CallsOfTasks, Engine, Observe},
    task::Tasks,
};

/// The part of the framework on one node: the handle of the companion.
pub(super) struct WorkflowNode {
    pub(super) tasks: Arc<Tasks>,
    pub(super) platform: Platform,
    pub(super) queue: Arc<Queue>,
    site: Arc<Executor>,
    memory: Memory,
    /// Whether others can look at the job.
    pub(super) is_public: AtomicBool,
    state: Mutex<State>,
    /// Something is to be sent, or to be noticed.
    pub(super) wake: Arc<Notify>,
}

/// What this node is in the job now.
struct State {
    /// Once the companion runs.
    post: Option<Post>,
    /// The other nodes that are there.
    nodes: BTreeSet<NodeId>,
    role: Role,
    /// The lines on which this node has followed heads before. What was assigned there is forgotten.
    followed: BTreeSet<(Run, NodeId, u32)>,
    program: Progress,
    /// The greatest generation of a run of which this node has heard.
    generation: u64,
    /// Whether the node is to leave.
    is_leaving: bool,
    /// What the node waits for before it does.
    rescue: Option<Rescue>,
    /// What is shown of the program when it has ended here.
    last_sight: Option<Sight>,
}

/// How messages are sent.
#[derive(Clone)]
struct Post {
    messenger: Messenger,
    node: NodeId,
    capacity: Capacity,
    /// Whether all nodes are in this process.
    is_embedded: bool,
}

enum Role {
    /// Nobody has said anything yet.
    Idle,
    /// It runs calls for the program on another node.
    Follows(Arc<Following>),
    /// The program is here.
    Leads(Arc<Leading>),
}

/// How far the program on this node is.
enum Progress {
    NotBegun,
    Runs(Waker),
    /// It was stopped, because a later run was heard of, or another one has taken the journal. But that may be of a task
    /// that does not count, since the node from which it came was lost: then nothing comes of that run, and the task here
    /// is the only one.
    Deposed {
        waker: Waker,
        since_ms: u64,
    },
    Returned(Result<ProgramOutput, String>),
    /// It would begin if the companion did run, or the node were not on its way.
    Awaits(Waker),
}

/// What is told to the task of the program.
pub(super) enum Told {
    /// It is to begin.
    Begin,
    /// It goes on.
    Waits,
    Returned(Result<ProgramOutput, String>),
}

impl WorkflowNode {
    pub(super) fn new(tasks: Tasks) -> Self {
        let platform = Platform::current();
        let queue = Arc::new(Queue::on(platform.clone()));
        let tasks = Arc::new(tasks);
        let state = State {
            post: None,
            nodes: BTreeSet::new(),
            role: Role::Idle,
            followed: BTreeSet::new(),
            program: Progress::NotBegun,
            generation: 0,
            is_leaving: false,
            rescue: None,
            last_sight: None,
        };
        Self {
            platform,
            site: Arc::new(Executor::new(
                Arc::clone(&queue),
                Store::limited(Room::of_node()),
                Some(Arc::clone(&tasks)),
                true,
                &CallsOfTasks,
            )),
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

    /// Begins to take part.
    pub(super) fn starts(&self, messenger: Messenger, node: NodeId, capacity: Capacity, is_embedded: bool) {
        self.platform.set_node(node);
        self.site.is_named(node);
        let mut state = self.lock();
        state.post = Some(Post { messenger, node, capacity, is_embedded });
        if let Progress::Awaits(waker) = &state.program {
            waker.wake();
            state.program = Progress::NotBegun;
        }
    }

    /// Takes in that there is another node.
    pub(super) fn joined(&self, node: NodeId) {
        let mut state = self.lock();
        if state.post.as_ref().is_some_and(|post| post.node == node) || !state.nodes.insert(node) {
            return;
        }
        match &state.role {
            Role::Leads(leading) => leading.joined(node),
            Role::Follows(following) => following.is_there(node, true),
            Role::Idle => {}
        }
    }

    /// Takes in that a node is gone.
    pub(super) fn left(&self, node: NodeId) {
        let mut state = self.lock();
        state.nodes.remove(&node);
        let role = state.role.clone();
        drop(state);
        match role {
            Role::Leads(leading) => leading.left(node),
            Role::Follows(following) => {
                following.is_there(node, false);
                following.site.is_gone(node);
            }
            Role::Idle => {}
        }
    }

    /// Takes in that a node's companion does not run, so that it has nothing to tell.
    pub(super) fn is_absent(&self, node: NodeId) {
        if let Role::Leads(leading) = &self.lock().role {
            leading.has_told(node);
        }
    }

    /// Takes in a message.
    pub(super) fn message(&self, from: NodeId, bytes: &[u8], now_ms: u64) {
        let Ok(Message { run, content }) = Message::decode(bytes) else {
            return tracing::warn!(%from, "a message of a companion could not be read");
        };
        match content {
            Content::ToSite(line, frame) => {
                if let Some(following) = self.follow(from, run, line, now_ms) {
                    following.receive(&self.tasks, frame, now_ms);
                }
            }
            Content::ToHead(line, frame) => {
                if let Role::Leads(leading) = &self.role(run) {
                    leading.receive(from, line, frame, now_ms);
                }
            }
            Content::Forgot(line) => {
                if let Role::Leads(leading) = &self.role(run) {
                    leading.is_forgotten(from, line);
                }
            }
            Content::Ask(ask) => {
                let content = match self.site(run).map_or(Answer::Absent, |site| site.answer(ask)) {
                    Answer::Piece(piece) => Content::Piece(piece),
                    Answer::Absent => Content::Absent(ask.version),
                    Answer::Prepares => Content::Prepares(ask.version),
                };
                self.send(from, &Message { run, content });
            }
            Content::Piece(piece) => {
                if let Some(site) = self.site(run) {
                    site.piece(piece, now_ms);
                }
            }
            Content::Prepares(version) => {
                if let Some(site) = self.site(run) {
                    site.peer_prepares(from, version, now_ms);
                }
            }
            Content::Absent(version) => {
                if let Some(site) = self.site(run) {
                    site.absent(from, version);
                }
            }
        }
    }

    /// Returns what this node does as the head, if it is.
    pub(super) fn leading(&self) -> Option<Arc<Leading>> {
        match &self.lock().role {
            Role::Leads(leading) => Some(Arc::clone(leading)),
            Role::Idle | Role::Follows(_) => None,
        }
    }

    /// Returns what this node is in a run.
    fn role(&self, run: Run) -> Role {
        let role = self.lock().role.clone();
        if role.run() == Some(run) { role } else { Role::Idle }
    }

    fn site(&self, run: Run) -> Option<Arc<Executor>> {
        self.role(run).site()
    }

    /// Returns the run of a program on another node, and begins to follow it if that is the one to follow now.
    fn follow(&self, head: NodeId, run: Run, line: u32, now_ms: u64) -> Option<Arc<Following>> {
        let mut state = self.lock();
        state.generation = state.generation.max(run.generation);
        // A head that is not known as a member yet says it again; one that was cut off is no member any more. Of two of the
        // same generation, one of which is of a task that does not count, all follow the same.
        let is_later = |known: Run| state.nodes.contains(&head) && run > known;
        let is_new = match &state.role {
            Role::Idle => true,
            Role::Follows(following) if following.head == head => {
                let known = (following.run, following.line_number);
                if known == (run, line) {
                    return Some(Arc::clone(following));
                }
                known < (run, line)
            }
            // The task of the program was moved; or its node was lost, and with it what the task knew. One that is heard
            // is there, though this node may not know yet that it is.
            Role::Follows(following) => {
                let is_lost = !state.nodes.contains(&following.head) && !following.is_head_heard(now_ms);
                is_later(following.run) || is_lost
            }
            Role::Leads(leading) => is_later(leading.run),
        };
        if !is_new {
            return None;
        }
        if state.followed.contains(&(run, head, line)) {
            drop(state);
            self.send(head, &Message { run, content: Content::Forgot(line) });
            return None;
        }
        let capacity = state.post.as_ref()?.capacity.clone();
        tracing::info!(%head, generation = run.generation, "this node runs calls of the program on another one");
        self.resign(&mut state);
        if let Progress::Runs(waker) | Progress::Deposed { waker, .. } = &state.program {
            state.program = Progress::Deposed { waker: waker.clone(), since_ms: now_ms };
        }
        let following =
            Following::begin((head, run, line), capacity.clone(), &self.site, &self.memory, &self.wake);
        if state.is_leaving {
            following.leave();
        }
        self.platform
            .see(|| Seen::Follows { run: (run.generation, run.started_us), workers: capacity.workers });
        state.role = Role::Follows(Arc::clone(&following));
        Some(following)
    }

    /// Sends what is due. Returns whether something is held that is to go soon.
    pub(super) fn send_due(&self, now_ms: u64) -> bool {
        self.begin_anew_if_deposed(now_ms);
        let role = self.lock().role.clone();
        if let Role::Leads(leading) = &role {
            leading.leave_if_told(now_ms);
        }
        self.go_if_possible(&role, now_ms);
        let Some(run) = role.run() else { return false };
        if let Some(site) = role.site() {
            for (to, ask) in site.asks(now_ms) {
                self.send(to, &Message { run, content: Content::Ask(ask) });
            }
        }
        match role {
            Role::Idle => false,
            Role::Follows(following) => {
                while let Some(frame) = following.frame(now_ms) {
                    let content = Content::ToHead(following.line_number, frame);
                    self.send(following.head, &Message { run, content });
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
        let post = self.lock().post.clone();
        // What is not sent is sent again when nothing has come of it.
        let sent = post.map(|post| post.messenger.send(to, message.encoded()));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "a message of a companion was not sent");
        }
    }

    /// Gives up what this node is in the job, but for what it remembers.
    fn resign(&self, state: &mut State) {
        let role = std::mem::replace(&mut state.role, Role::Idle);
        match &role {
            Role::Idle => {}
            Role::Follows(following) => {
                state.followed.insert((following.run, following.head, following.line_number));
            }
            Role::Leads(leading) => lock(&self.memory).add(leading.engine.history()),
        }
        role.end();
    }

    /// Returns the engine of the program if that is on this node, and how often the program was started.
    pub(super) fn engine(&self) -> Option<(Arc<Engine>, u64)> {
        match &self.lock().role {
            Role::Leads(leading) => Some((Arc::clone(&leading.engine), leading.run.generation)),
            Role::Idle | Role::Follows(_) => None,
        }
    }

    /// Returns what is to be recorded of a program: its graph also if others can look at the job, who may ask for it.
    pub(super) fn observes(&self, asked: Observe) -> Observe {
        Observe { graph: asked.graph || self.is_public.load(Relaxed), ..asked }
    }

    /// Returns what is shown of the program to people.
    pub(super) fn shows(&self) -> Option<Sight> {
        let last = self.lock().last_sight.clone();
        match self.engine() {
            // A program that has returned is shown with its graph: the node may say its last before this ends.
            Some((engine, generation)) if last.as_ref().is_none_or(|last| last.rank != generation) => {
                Some(witness::of_running(generation, &engine.summary()))
            }
            _ => last,
        }
    }

    /// Returns what is shown of a program that has come to its end here.
    fn last_sight(&self) -> Option<Sight> {
        let (engine, generation) = self.engine()?;
        Some(witness::of_ended(generation, &engine.observation()))
    }

    /// Prepares for leaving: what only this node has is copied to others; and the program stops, if it is here, since
    /// its task moves to another node.
    pub(super) fn leaves(&self, rescue: Rescue) {
        let mut state = self.lock();
        state.is_leaving = true;
        state.rescue = Some(rescue);
        let role = state.role.clone();
        drop(state);
        match role {
            Role::Idle => {}
            Role::Follows(following) => following.leave(),
            Role::Leads(leading) => {
                leading.leave();
                tracing::info!("this node leaves, and is given no more calls");
            }
        }
    }

    /// Lets the node leave if nothing is needed of it any more.
    fn go_if_possible(&self, role: &Role, now_ms: u64) {
        let may_go = match role {
            Role::Idle => true,
            Role::Follows(following) => following.may_go(),
            Role::Leads(leading) => leading.may_go(now_ms),
        };
        let rescue = if may_go { self.lock().rescue.take() } else { None };
        if let (Some(_), Role::Leads(leading)) = (&rescue, role) {
            leading.goes();
        }
        drop(rescue);
    }

    /// Ends everything.
    pub(super) fn end(&self) {
        let last = self.last_sight();
        let mut state = self.lock();
        state.last_sight = last;
        state.post = None;
        state.rescue = None;
        let role = std::mem::replace(&mut state.role, Role::Idle);
        drop(state);
        role.end();
        self.platform.see(|| Seen::Ends);
        self.site.end();
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

    fn site(&self) -> Option<Arc<Executor>> {
        match self {
            Self::Idle => None,
            Self::Follows(following) => Some(Arc::clone(&following.site)),
            Self::Leads(leading) => Some(Arc::clone(&leading.engine.site)),
        }
    }

    fn end(self) {
        match self {
            // The site stays, and serves the next run.
            Self::Idle | Self::Follows(_) => {}
            Self::Leads(leading) => leading.engine.stop(),
        }
    }
}

#[cfg(test)]
#[path = "workflow_node_tests.rs"]
mod tests;
