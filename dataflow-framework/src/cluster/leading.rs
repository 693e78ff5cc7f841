//! The coordinator of a run: it has the graph, and assigns work to the other nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use taskwork::NodeId;

use tokio::sync::Notify;

use super::{
    journaling::Writing,
    message::{Content, Run},
};
use crate::{
    core::{Capacity, Frame, History, Line, Member},
    failure::Failed,
    node::{Coded, Executor, News, Order, Queue},
    platform::Notifier,
    program::{CALLS_AHEAD_MAX, Engine, Others},
};

/// The maximum number of nodes that are named as owners of a version.
const SOURCES_MAX: usize = 4;

/// The maximum time for which a starting program waits for the other nodes to report their state of earlier
/// runs, in milliseconds.
const TELL_MAX_MS: u64 = 1_000;

/// The time between two messages that report completed calls, in milliseconds.
const REMEMBER_MS: u64 = 50;

/// The time for which a leaving coordinator waits for the acknowledgement of its messages, in milliseconds.
const ACKNOWLEDGE_MS: u64 = 1_000;

/// The coordinator of a run of the program.
pub(super) struct Leading {
    pub(super) run: Run,
    pub(super) engine: Arc<Engine>,
    others: Arc<Followers>,
    /// The nodes that have not reported their complete state of earlier runs.
    untold: Mutex<BTreeSet<NodeId>>,
    is_told: Notifier,
    /// The time of the last report of completed calls, in milliseconds.
    remembered_ms: AtomicU64,
    leave: Mutex<Leave>,
    /// The time since when the node may leave, in milliseconds; 0 if it may not.
    may_go_ms: AtomicU64,
    /// Whether this node was allowed to leave: it no longer waits for copies or journal entries of data that others
    /// still have.
    is_going: AtomicBool,
    pub(super) writing: Mutex<Writing>,
    pub(super) is_taken: Notifier,
}

/// Whether the coordinator leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    No,
    /// It was asked to leave, but does not know the data of the other nodes yet: data that leaves with it might
    /// be lost.
    Asked {
        /// The start of the wait, in milliseconds; `None` until the first check.
        since_ms: Option<u64>,
    },
    Leaves,
}

/// The other nodes, from the coordinator's view.
struct Followers {
    known: Mutex<Known>,
    wake: Arc<Notify>,
    has_more: AtomicBool,
}

struct Known {
    by_node: BTreeMap<NodeId, Follower>,
    /// The nodes, indexed by member number; the first one is this node.
    nodes: Vec<NodeId>,
}

struct Follower {
    /// The number of the line, which is that of the member.
    member: Member,
    line: Line,
    /// The reports about earlier runs of the program received so far; `None` once all have arrived. Until then the
    /// node gets no calls: its data may come from executions that do not count, and would be mistaken for data
    /// fetched in this run.
    told: Option<Vec<News>>,
}

impl Leading {
    /// Starts a run of the program, with this node's data of earlier runs.
    pub(super) fn begin(
        run: Run,
        (node, capacity, is_embedded): (NodeId, Capacity, bool),
        (executor, queue): (Arc<Executor>, Arc<Queue>),
        history: History,
        wake: &Arc<Notify>,
    ) -> Arc<Self> {
        let others = Arc::new(Followers {
            known: Mutex::new(Known { by_node: BTreeMap::new(), nodes: vec![node] }),
            wake: Arc::clone(wake),
            has_more: AtomicBool::new(false),
        });
        let (is_told, is_taken) = (queue.platform.notifier(), queue.platform.notifier());
        let of_engine = Arc::clone(&others) as Arc<dyn Others>;
        let engine = Engine::with_others(
            (executor, queue),
            (capacity, is_embedded),
            CALLS_AHEAD_MAX,
            history,
            of_engine,
        );
        Arc::new(Self {
            run,
            engine,
            others,
            untold: Mutex::default(),
            is_told,
            remembered_ms: AtomicU64::new(0),
            leave: Mutex::new(Leave::No),
            may_go_ms: AtomicU64::new(0),
            is_going: AtomicBool::new(false),
            writing: Mutex::default(),
            is_taken,
        })
    }

    fn untold(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the present nodes have reported their state of earlier runs, at most one second. Later
    /// reports count as well, unless the data was recomputed by then.
    pub(super) fn wait_until_told(&self) {
        let tell_max = Duration::from_millis(TELL_MAX_MS);
        let untold =
            self.is_told.wait_while(&self.untold, self.untold(), tell_max, |untold| !untold.is_empty());
        if !untold.is_empty() {
            tracing::debug!(
                nodes = untold.len(),
                "the program starts before all nodes have reported their data"
            );
        }
        drop(untold);
        let ended = self.engine.inspect(|graph| graph.journal().history().number());
        if ended > 0 {
            tracing::info!(ended, "the program restarts; completed calls are not repeated");
        }
    }

    /// Notes that the reports of a node are complete, or will not come.
    pub(super) fn on_reports_complete(&self, node: NodeId) {
        let mut untold = self.untold();
        if untold.remove(&node) && untold.is_empty() {
            // The lock is held, so that the graph receives the last change.
            self.engine.change(|graph| graph.set_untold(false));
        }
        drop(untold);
        self.is_told.notify_one();
    }

    pub(super) fn on_joined(&self, node: NodeId) {
        let history = self.engine.inspect(|graph| graph.journal().history().clone());
        let mut known = self.others.known();
        let member = Member(u32::try_from(known.nodes.len()).unwrap_or(u32::MAX));
        known.nodes.push(node);
        let mut line = Line::default();
        line.push(Order::TakePart.encoded());
        for piece in history.pieces() {
            line.push(Order::Remember(piece).encoded());
        }
        known.by_node.insert(node, Follower { member, line, told: Some(Vec::new()) });
        drop(known);
        let mut untold = self.untold();
        untold.insert(node);
        self.engine.inspect(|graph| graph.set_untold(true));
        drop(untold);
        self.others.wake.notify_one();
    }

    pub(super) fn on_left(&self, node: NodeId) {
        let follower = self.others.known().by_node.remove(&node);
        self.engine.executor.on_lost(node);
        if let Some(Follower { member, .. }) = follower {
            self.engine.happened_to(member, "gone");
            let (before, repeated) = self.engine.change(|graph| {
                let before = graph.figures().repeated;
                graph.lost(member);
                (before, graph.figures().repeated)
            });
            tracing::info!(member = %node, repeated = repeated - before, "a node is gone that ran calls");
        }
        self.on_reports_complete(node);
    }

    /// Handles a node that has dropped its assignments of this line. It joins again on a new line.
    pub(super) fn on_forgotten(&self, node: NodeId, line: u32) {
        let is_current = |follower: &Follower| follower.member.0 == line;
        if self.others.known().by_node.get(&node).is_some_and(is_current) {
            self.on_left(node);
            self.on_joined(node);
        }
    }

    pub(super) fn receive(&self, from: NodeId, line: u32, frame: Frame, now_ms: u64) {
        let mut known = self.others.known();
        let Some(follower) = known.by_node.get_mut(&from).filter(|follower| follower.member.0 == line) else {
            return;
        };
        let member = follower.member;
        let all = follower.line.receive(frame, now_ms);
        drop(known);
        let decode = |news: Vec<u8>| {
            let decoded = News::decode(&news);
            let unread =
                |error: &Failed| tracing::warn!(%from, reason = error.reason, "news could not be read");
            decoded.inspect_err(unread).ok()
        };
        let all: Vec<_> = all.into_iter().filter_map(decode).collect();
        let is_all_told = all.iter().any(|news| matches!(news, News::AllTold));
        let mut all = self.others.known().all_told((from, member), all, is_all_told);
        if self.is_going.load(Relaxed) {
            // The next coordinator receives this notice too, and preserves the data of the leaving node.
            all.retain(|news| !matches!(news, News::Leaves));
        }
        if all.is_empty() {
            return;
        }
        let leaves = all.iter().any(|news| matches!(news, News::Leaves));
        let is_cordoned = all.iter().any(|news| matches!(news, News::Cordon { is_cordoned: true }));
        self.note(member, &all);
        // As one change, so that all consequences are decided and sent together.
        self.engine.change(|graph| all.into_iter().for_each(|news| self.engine.hear(graph, member, news)));
        if leaves {
            tracing::info!(member = %from, "a node leaves, and is given no more calls");
        }
        if is_cordoned {
            tracing::info!(member = %from, "a node is cordoned, and is given no more calls");
        }
        if is_all_told {
            self.on_reports_complete(from);
        }
    }

    /// Records joins, departures and the times of calls in the trace, if one was requested.
    fn note(&self, member: Member, all: &[News]) {
        for news in all {
            match news {
                News::TakesPart(_) => self.engine.happened_to(member, "joined"),
                News::Leaves => self.engine.happened_to(member, "leaves"),
                News::Cordon { is_cordoned } => {
                    self.engine.happened_to(member, if *is_cordoned { "cordoned" } else { "uncordoned" });
                }
                News::Timed(timing) => self.engine.timed_on(member, *timing),
                _ => {}
            }
        }
    }

    pub(super) fn frames(&self, now_ms: u64) -> Vec<(NodeId, Content)> {
        if now_ms >= self.remembered_ms.load(Relaxed) + REMEMBER_MS || self.engine.may_go() {
            self.remembered_ms.store(now_ms, Relaxed);
            let news = self.engine.inspect(|graph| graph.journal().take_news());
            for piece in news.pieces() {
                self.others.order_all(&Order::Remember(piece));
            }
        }
        let mut frames = Vec::new();
        self.others.has_more.store(false, Relaxed);
        for (node, Follower { member, line, .. }) in &mut self.others.known().by_node {
            while let Some(frame) = line.frame(now_ms) {
                frames.push((*node, Content::ToNode(member.0, frame)));
            }
        }
        frames
    }

    /// Returns whether a held message is due soon.
    pub(super) fn is_held(&self) -> bool {
        self.others.known().by_node.values().any(|follower| follower.line.is_held())
    }

    /// Handles a cordon of this node: calls that have not started move to other nodes.
    pub(super) fn cordon(&self, is_cordoned: bool) {
        self.engine.change(|graph| graph.on_cordon(Member::HERE, is_cordoned));
        let returned = if is_cordoned { self.engine.executor.take_back() } else { Vec::new() };
        self.engine.change(|graph| {
            for (call, unchanged) in &returned {
                graph.returned(*call, Member::HERE, unchanged);
            }
        });
    }

    /// Records a request to leave; [`leave_if_told`](Self::leave_if_told) acts on it.
    pub(super) fn leave(&self) {
        let mut leave = self.lock_leave();
        if *leave == Leave::No {
            *leave = Leave::Asked { since_ms: None };
        }
    }

    fn lock_leave(&self) -> MutexGuard<'_, Leave> {
        self.leave.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to leave, if that was requested, once the journal is taken and all nodes have reported their state of
    /// earlier runs, or after `TELL_MAX_MS`.
    pub(super) fn leave_if_told(&self, now_ms: u64) {
        let mut leave = self.lock_leave();
        let Leave::Asked { since_ms } = &mut *leave else { return };
        let until_ms = since_ms.get_or_insert(now_ms).saturating_add(TELL_MAX_MS);
        if now_ms < until_ms && !(self.is_journal_taken() && self.untold().is_empty()) {
            return;
        }
        *leave = Leave::Leaves;
        drop(leave);
        // The program continues on another node; data without another copy is copied to others.
        self.engine.halt();
        let returned = self.engine.executor.take_back();
        self.engine.change(|graph| {
            graph.on_leaving(Member::HERE);
            for (call, unchanged) in &returned {
                graph.returned(*call, Member::HERE, unchanged);
            }
        });
    }

    /// Notes that this node was allowed to leave.
    pub(super) fn on_released(&self) {
        self.is_going.store(true, Relaxed);
    }

    /// Returns whether a leaving node may exit: it holds nothing that is still needed and only it has, and the
    /// other nodes have received its state.
    pub(super) fn may_go(&self, now_ms: u64) -> bool {
        if self.is_written_no_more() {
            return true;
        }
        if !self.engine.may_go() {
            self.may_go_ms.store(0, Relaxed);
            return false;
        }
        let since = self.may_go_ms.load(Relaxed);
        if since == 0 {
            self.may_go_ms.store(now_ms.max(1), Relaxed);
            return false;
        }
        let all_is_said = self.others.known().by_node.values().all(|follower| follower.line.is_empty());
        all_is_said || now_ms >= since + ACKNOWLEDGE_MS
    }
}

impl Followers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order_all(&self, order: &Order) {
        let order = order.encoded();
        for follower in self.known().by_node.values_mut() {
            follower.line.push(order.clone());
        }
    }
}

impl Known {
    /// Returns the reports of a node that can be applied: none until it has reported everything of earlier runs.
    fn all_told(
        &mut self,
        (node, member): (NodeId, Member),
        mut news: Vec<News>,
        is_all_told: bool,
    ) -> Vec<News> {
        let follower = self.by_node.get_mut(&node).filter(|follower| follower.member == member);
        let Some(Follower { told: before @ Some(_), .. }) = follower else { return news };
        if let Some(told) = before {
            told.append(&mut news);
        }
        if is_all_told { before.take().unwrap_or_default() } else { Vec::new() }
    }

    fn node(&self, member: Member) -> Option<NodeId> {
        self.nodes.get(usize::try_from(member.0).ok()?).copied()
    }
}

impl Others for Followers {
    fn order(&self, member: Member, order: &Order) {
        let order = order.encoded();
        let mut known = self.known();
        let node = known.node(member);
        // If the node has left since, its calls and versions are gone as well.
        if let Some(follower) =
            node.and_then(|node| known.by_node.get_mut(&node)).filter(|follower| follower.member == member)
        {
            follower.line.push(order);
            // Held messages are sent when their time is up.
            if !follower.line.is_held() {
                self.has_more.store(true, Relaxed);
            }
        }
    }

    fn peers(&self, members: &[Member]) -> Vec<NodeId> {
        let known = self.known();
        members.iter().take(SOURCES_MAX).filter_map(|member| known.node(*member)).collect()
    }

    fn members(&self, peers: &[NodeId]) -> Vec<Member> {
        let known = self.known();
        let member = |peer: &NodeId| match known.by_node.get(peer) {
            Some(follower) => Some(follower.member),
            None => (known.nodes.first() == Some(peer)).then_some(Member::HERE),
        };
        peers.iter().filter_map(member).collect()
    }

    fn flush(&self, brings: bool) {
        if brings || self.has_more.load(Relaxed) {
            self.wake.notify_one();
        }
    }
}
