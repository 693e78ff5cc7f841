//! What the companion of a node does: it runs calls for the head, or is the head.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use taskwork::{Messenger, Waker};
use tokio::sync::Notify;

use super::message::{Content, Message, News, Order, Run};
use crate::{
    core::{Assignment, CallId, Frame, Line, Member, Outcome, VersionId},
    failure::Failure,
    node::{Peer, Queue, Report, Site},
    program::{Engine, Others},
    task::{TaskDef, Tasks},
};

/// The number of calls that a program may be ahead of its tasks.
const CALLS_AHEAD_MAX: usize = 100_000;

/// The maximum number of nodes that are named as having a version.
const SOURCES_MAX: usize = 4;

/// The part of the framework on one node: the handle of the companion.
pub(super) struct Station {
    pub(super) tasks: Arc<Tasks>,
    pub(super) queue: Arc<Queue>,
    state: Mutex<State>,
    /// Something is to be sent, or to be noticed.
    pub(super) wake: Arc<Notify>,
}

/// What this node is in the job now.
struct State {
    /// Once the companion runs.
    post: Option<Post>,
    /// The other nodes that are there.
    nodes: BTreeSet<Peer>,
    role: Role,
    program: Progress,
}

/// How messages are sent.
#[derive(Clone)]
struct Post {
    messenger: Messenger,
    node: Peer,
    workers: u32,
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
    Returned(Result<Vec<u8>, String>),
    /// It would begin if the companion did run.
    Awaits(Waker),
}

/// What is told to the task of the program.
pub(super) enum Told {
    /// It is to begin.
    Begin,
    /// It goes on.
    Waits,
    Returned(Result<Vec<u8>, String>),
}

impl Station {
    pub(super) fn new(tasks: Tasks) -> Self {
        let state =
            State { post: None, nodes: BTreeSet::new(), role: Role::Idle, program: Progress::NotBegun };
        Self { tasks: Arc::new(tasks), queue: Arc::default(), state: Mutex::new(state), wake: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to take part.
    pub(super) fn starts(&self, messenger: Messenger, node: Peer, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        let mut state = self.lock();
        state.post = Some(Post { messenger, node, workers });
        if let Progress::Awaits(waker) = &state.program {
            waker.wake();
            state.program = Progress::NotBegun;
        }
    }

    /// Takes in that there is another node.
    pub(super) fn joined(&self, node: Peer) {
        let mut state = self.lock();
        if state.post.as_ref().is_some_and(|post| post.node == node) || !state.nodes.insert(node) {
            return;
        }
        if let Role::Leads(leading) = &state.role {
            leading.joined(node);
        }
    }

    /// Takes in that a node is gone.
    pub(super) fn left(&self, node: Peer) {
        let mut state = self.lock();
        state.nodes.remove(&node);
        let role = state.role.clone();
        drop(state);
        match role {
            Role::Leads(leading) => leading.left(node),
            Role::Follows(following) => following.site.is_gone(node),
            Role::Idle => {}
        }
    }

    /// Takes in a message.
    pub(super) fn message(&self, from: Peer, bytes: &[u8], now_ms: u64) {
        let Ok(Message { run, content }) = Message::decode(bytes) else {
            return tracing::warn!(%from, "a message of a companion could not be read");
        };
        match content {
            Content::ToSite(line, frame) => {
                if let Some(following) = self.follow(from, run, line) {
                    following.receive(&self.tasks, frame, now_ms);
                }
            }
            Content::ToHead(line, frame) => {
                if let Role::Leads(leading) = &self.role(run) {
                    leading.receive(from, line, frame, now_ms);
                }
            }
            Content::Ask(ask) => {
                let answer = self.site(run).and_then(|site| site.answer(ask));
                let content = answer.map_or(Content::Absent(ask.version), Content::Piece);
                self.send(from, &Message { run, content });
            }
            Content::Piece(piece) => {
                if let Some(site) = self.site(run) {
                    site.piece(piece, now_ms);
                }
            }
            Content::Absent(version) => {
                if let Some(site) = self.site(run) {
                    site.absent(from, version);
                }
            }
        }
    }

    /// Returns what this node is in a run.
    fn role(&self, run: Run) -> Role {
        let role = self.lock().role.clone();
        if role.run() == Some(run) { role } else { Role::Idle }
    }

    fn site(&self, run: Run) -> Option<Arc<Site>> {
        self.role(run).site()
    }

    /// Returns the run of a program on another node, and begins to follow it if that is the one to follow now.
    fn follow(&self, head: Peer, run: Run, line: u32) -> Option<Arc<Following>> {
        let mut state = self.lock();
        let is_new = match &state.role {
            Role::Idle => true,
            Role::Follows(following) if following.head == head => {
                let known = (following.run, following.line_number);
                if known == (run, line) {
                    return Some(Arc::clone(following));
                }
                known < (run, line)
            }
            // The task of the program was moved; or its node was lost, and with it what the task knew.
            Role::Follows(following) => {
                run.generation > following.run.generation || !state.nodes.contains(&following.head)
            }
            Role::Leads(leading) => run.generation > leading.run.generation,
        };
        if !is_new {
            return None;
        }
        let workers = state.post.as_ref()?.workers;
        tracing::info!(%head, generation = run.generation, "this node runs calls of the program on another one");
        let before = std::mem::replace(&mut state.role, Role::Idle);
        let following = Following::new(&self.queue, &self.wake, (head, run, line));
        following.say(&News::TakesPart(workers));
        state.role = Role::Follows(Arc::clone(&following));
        drop(state);
        before.end();
        Some(following)
    }

    /// Sends what is due.
    pub(super) fn send_due(&self, now_ms: u64) {
        let role = self.lock().role.clone();
        let Some(run) = role.run() else { return };
        if let Some(site) = role.site() {
            for (to, ask) in site.asks(now_ms) {
                self.send(to, &Message { run, content: Content::Ask(ask) });
            }
        }
        match role {
            Role::Idle => {}
            Role::Follows(following) => {
                while let Some(frame) = following.frame(now_ms) {
                    let content = Content::ToHead(following.line_number, frame);
                    self.send(following.head, &Message { run, content });
                }
            }
            Role::Leads(leading) => {
                for (to, content) in leading.frames(now_ms) {
                    self.send(to, &Message { run, content });
                }
            }
        }
    }

    fn send(&self, to: Peer, message: &Message) {
        let post = self.lock().post.clone();
        // What is not sent is sent again when nothing has come of it.
        let sent = post.map(|post| post.messenger.send(to, message.encoded()));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "a message of a companion was not sent");
        }
    }

    /// Tells the task of the program how far that is. `waker` is used when there is more to tell.
    pub(super) fn tell(&self, waker: impl FnOnce() -> Waker) -> Told {
        let mut state = self.lock();
        match std::mem::replace(&mut state.program, Progress::NotBegun) {
            Progress::NotBegun | Progress::Awaits(_) => Told::Begin,
            Progress::Runs(_) => {
                state.program = Progress::Runs(waker());
                Told::Waits
            }
            Progress::Returned(result) => Told::Returned(result),
        }
    }

    /// Makes this node the head of a new run, and returns its engine. `None` if the companion does not run yet, or any
    /// more.
    pub(super) fn lead(&self, generation: u64, waker: Waker) -> Option<Arc<Leading>> {
        let mut state = self.lock();
        let Some(Post { node, workers, .. }) = state.post.clone() else {
            state.program = Progress::Awaits(waker);
            return None;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let run = Run { generation, started_us };
        let leading = Leading::new(&self.queue, &self.wake, run, (node, workers));
        for node in &state.nodes {
            leading.joined(*node);
        }
        tracing::info!(generation, "the program runs on this node");
        let before = std::mem::replace(&mut state.role, Role::Leads(Arc::clone(&leading)));
        state.program = Progress::Runs(waker);
        drop(state);
        before.end();
        self.wake.notify_one();
        Some(leading)
    }

    /// Takes in what the program of a run has returned.
    pub(super) fn returned(&self, run: Run, result: Result<Vec<u8>, String>) {
        let mut state = self.lock();
        if state.role.run() != Some(run) {
            return;
        }
        if let Progress::Runs(waker) = std::mem::replace(&mut state.program, Progress::Returned(result)) {
            waker.wake();
        }
    }

    /// Prepares for leaving: the program stops, if it is here, since its task moves to another node.
    pub(super) fn leaves(&self) {
        match self.lock().role.clone() {
            Role::Idle => {}
            Role::Follows(following) => following.say(&News::Leaves),
            Role::Leads(leading) => leading.engine.stop(),
        }
    }

    /// Ends everything.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.post = None;
        let role = std::mem::replace(&mut state.role, Role::Idle);
        drop(state);
        role.end();
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

    fn site(&self) -> Option<Arc<Site>> {
        match self {
            Self::Idle => None,
            Self::Follows(following) => Some(Arc::clone(&following.site)),
            Self::Leads(leading) => Some(Arc::clone(&leading.engine.site)),
        }
    }

    fn end(self) {
        match self {
            Self::Idle => {}
            Self::Follows(following) => following.site.end(),
            Self::Leads(leading) => leading.engine.stop(),
        }
    }
}

/// What a node does for the head of a run.
pub(super) struct Following {
    head: Peer,
    run: Run,
    line_number: u32,
    line: Mutex<Line>,
    site: Arc<Site>,
    wake: Arc<Notify>,
}

impl Following {
    fn new(queue: &Arc<Queue>, wake: &Arc<Notify>, (head, run, line_number): (Peer, Run, u32)) -> Arc<Self> {
        Arc::new_cyclic(|following: &Weak<Self>| Self {
            head,
            run,
            line_number,
            line: Mutex::default(),
            site: Arc::new(Site::new(Arc::clone(queue), following.clone(), true)),
            wake: Arc::clone(wake),
        })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, news: &News) {
        self.line().push(news.encoded());
        self.wake.notify_one();
    }

    fn frame(&self, now_ms: u64) -> Option<Frame> {
        self.line().frame(now_ms)
    }

    fn receive(&self, tasks: &Tasks, frame: Frame, now_ms: u64) {
        let orders = self.line().receive(frame, now_ms);
        for order in orders {
            match Order::decode(&order) {
                Ok(order) => self.obey(tasks, order),
                Err(error) => tracing::warn!(reason = error.reason, "an order could not be read"),
            }
        }
        self.wake.notify_one();
    }

    fn obey(&self, tasks: &Tasks, order: Order) {
        match order {
            Order::TakePart => {}
            Order::Forget(version) => drop(self.site.forget(version)),
            Order::Assign { call, module, name, arguments, in_place, elsewhere } => {
                let Some(task) = tasks.get(&module, &name) else {
                    let reason = format!("a node has no task {module}::{name}");
                    return self.say(&News::Failed { call, reason });
                };
                let assignment =
                    Assignment { call, task, arguments: arguments.into(), in_place, elsewhere: Vec::new() };
                self.site.assign(assignment, elsewhere);
            }
        }
    }
}

impl Report for Following {
    fn ended(&self, call: CallId, outcome: Outcome) {
        self.say(&match outcome {
            Outcome::Written { bytes, ns } => News::Written { call, bytes, ns },
            Outcome::Failed(failure) => News::Failed { call, reason: failure.reason().to_owned() },
        });
    }

    fn unable(&self, call: CallId, missing: VersionId) {
        self.say(&News::Unable { call, missing });
    }

    fn copied(&self, version: VersionId) {
        self.say(&News::Copied(version));
    }

    fn not_brought(&self, _version: VersionId) {}
}

/// What the head does.
pub(super) struct Leading {
    pub(super) run: Run,
    pub(super) engine: Arc<Engine>,
    others: Arc<Followers>,
}

/// The other nodes, as the head knows them.
struct Followers {
    known: Mutex<Known>,
    wake: Arc<Notify>,
    has_more: AtomicBool,
}

struct Known {
    /// The lines to them.
    by_node: BTreeMap<Peer, Follower>,
    /// The nodes, by the numbers of members; the first one is this.
    nodes: Vec<Peer>,
}

struct Follower {
    /// The number of the line, which is that of the member.
    member: Member,
    line: Line,
}

impl Leading {
    fn new(queue: &Arc<Queue>, wake: &Arc<Notify>, run: Run, (node, workers): (Peer, u32)) -> Arc<Self> {
        let others = Arc::new(Followers {
            known: Mutex::new(Known { by_node: BTreeMap::new(), nodes: vec![node] }),
            wake: Arc::clone(wake),
            has_more: AtomicBool::new(false),
        });
        let workers = usize::try_from(workers).unwrap_or(usize::MAX);
        let of_engine = Arc::clone(&others) as Arc<dyn Others>;
        let engine = Engine::with_others(Arc::clone(queue), workers, CALLS_AHEAD_MAX, Some(of_engine));
        Arc::new(Self { run, engine, others })
    }

    fn joined(&self, node: Peer) {
        let mut known = self.others.known();
        let member = Member(u32::try_from(known.nodes.len()).unwrap_or(u32::MAX));
        known.nodes.push(node);
        let mut line = Line::default();
        line.push(Order::TakePart.encoded());
        known.by_node.insert(node, Follower { member, line });
        drop(known);
        self.others.wake.notify_one();
    }

    fn left(&self, node: Peer) {
        let follower = self.others.known().by_node.remove(&node);
        self.engine.site.is_gone(node);
        if let Some(Follower { member, .. }) = follower {
            let repeated = self.engine.change(|graph| {
                graph.lost(member);
                graph.figures().repeated
            });
            tracing::info!(%node, repeated, "a node is gone that ran calls");
        }
    }

    fn receive(&self, from: Peer, line: u32, frame: Frame, now_ms: u64) {
        let mut known = self.others.known();
        let Some(follower) = known.by_node.get_mut(&from).filter(|follower| follower.member.0 == line) else {
            return;
        };
        let member = follower.member;
        let all = follower.line.receive(frame, now_ms);
        drop(known);
        for news in all {
            match News::decode(&news) {
                Ok(news) => self.hear(member, news),
                Err(error) => tracing::warn!(%from, reason = error.reason, "news could not be read"),
            }
        }
        self.others.wake.notify_one();
    }

    fn hear(&self, member: Member, news: News) {
        self.engine.change(|graph| match news {
            News::TakesPart(workers) => graph.joined(member, workers),
            News::Written { call, bytes, ns } => graph.ended(call, member, Outcome::Written { bytes, ns }),
            News::Failed { call, reason } => {
                let name = graph.task_of(call).map_or("", |task| task.name);
                graph.ended(call, member, Outcome::Failed(Failure::new(name, call, reason)));
            }
            News::Unable { call, missing } => graph.unable(call, member, missing),
            News::Leaves => graph.leaves(member),
            News::Copied(version) => graph.copied(version, member),
        });
    }

    fn frames(&self, now_ms: u64) -> Vec<(Peer, Content)> {
        let mut frames = Vec::new();
        self.others.has_more.store(false, Relaxed);
        for (node, Follower { member, line }) in &mut self.others.known().by_node {
            while let Some(frame) = line.frame(now_ms) {
                frames.push((*node, Content::ToSite(member.0, frame)));
            }
        }
        frames
    }
}

impl Followers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, member: Member, order: &Order) {
        let mut known = self.known();
        let node = known.node(member);
        // If the node has gone meanwhile, so have its calls and versions.
        if let Some(follower) =
            node.and_then(|node| known.by_node.get_mut(&node)).filter(|follower| follower.member == member)
        {
            follower.line.push(order.encoded());
            self.has_more.store(true, Relaxed);
        }
    }
}

impl Known {
    fn node(&self, member: Member) -> Option<Peer> {
        self.nodes.get(usize::try_from(member.0).ok()?).copied()
    }
}

impl Others for Followers {
    fn assign(&self, member: Member, assignment: &Assignment) {
        let Assignment { call, task, arguments, in_place, elsewhere } = assignment;
        let TaskDef { module, name, .. } = **task;
        let elsewhere = elsewhere.iter().map(|(version, members)| (*version, self.peers(members))).collect();
        let order = Order::Assign {
            call: *call,
            module: module.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_vec(),
            in_place: in_place.clone(),
            elsewhere,
        };
        self.order(member, &order);
    }

    fn forget(&self, member: Member, version: VersionId) {
        self.order(member, &Order::Forget(version));
    }

    fn peers(&self, members: &[Member]) -> Vec<Peer> {
        let known = self.known();
        members.iter().take(SOURCES_MAX).filter_map(|member| known.node(*member)).collect()
    }

    fn flush(&self, brings: bool) {
        if brings || self.has_more.load(Relaxed) {
            self.wake.notify_one();
        }
    }
}
