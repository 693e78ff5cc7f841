//! A node that runs calls for the coordinator of a run, and reports their outcomes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use taskwork::NodeId;

use tokio::sync::Notify;

use super::message::Run;
use crate::{
    core::{Assignment, Capacity, Frame, History, Line, Outcome, Step, Work},
    failure::Failure,
    ids::{CallId, NESTED_BIT},
    node::{Coded, Executor, Inventory, News, Order, Report},
    task::Tasks,
};

/// The maximum number of versions, or calls, per message.
const TOLD_MAX: usize = 5_000;

/// The time for which a coordinator counts as present after its last message, in milliseconds.
const SILENT_MS: u64 = 1_000;

/// The completed calls of the program, which the nodes remember across runs.
pub(super) type Memory = Arc<Mutex<History>>;

/// The part of a node in a run that another node coordinates.
pub(super) struct Following {
    pub(super) coordinator: NodeId,
    pub(super) run: Run,
    pub(super) line_number: u32,
    line: Mutex<Line>,
    pub(super) executor: Arc<Executor>,
    /// The number of the run at the executor.
    epoch: AtomicU64,
    /// The time of the last message from the coordinator, in milliseconds.
    heard_ms: AtomicU64,
    /// Whether the coordinator was a member and has left.
    is_coordinator_gone: AtomicBool,
    memory: Memory,
    /// Whether the coordinator has reported calls completed on other nodes.
    is_told: AtomicBool,
    /// The calls running here whose tasks have made calls.
    nesting: Mutex<BTreeSet<CallId>>,
    /// Whether this node accepts no more calls: it leaves, or is cordoned.
    is_closed: AtomicBool,
    /// Whether the coordinator needs nothing more from this leaving node.
    may_go: AtomicBool,
    wake: Arc<Notify>,
}

impl Following {
    /// Joins a run, and reports this node's state of earlier runs.
    pub(super) fn begin(
        (coordinator, run, line_number): (NodeId, Run, u32),
        capacity: Capacity,
        executor: &Arc<Executor>,
        memory: &Memory,
        wake: &Arc<Notify>,
    ) -> Arc<Self> {
        let following = Arc::new(Self {
            coordinator,
            run,
            line_number,
            line: Mutex::default(),
            executor: Arc::clone(executor),
            epoch: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            is_coordinator_gone: AtomicBool::new(false),
            memory: Arc::clone(memory),
            is_told: AtomicBool::new(false),
            nesting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            may_go: AtomicBool::new(false),
            wake: Arc::clone(wake),
        });
        let report: Arc<dyn Report> = Arc::clone(&following) as _;
        // Calls that complete now are reported after the existing data.
        let mut line = following.line();
        let Inventory { epoch, held, running, unseen } = executor.begin(Arc::downgrade(&report));
        following.epoch.store(epoch, Relaxed);
        line.push(News::TakesPart(capacity).encoded());
        for held in held.chunks(TOLD_MAX) {
            line.push(News::Holds(held.to_vec()).encoded());
        }
        for running in running.chunks(TOLD_MAX) {
            line.push(News::Runs(running.to_vec()).encoded());
        }
        for piece in lock(memory).pieces() {
            line.push(News::Remembers(piece).encoded());
        }
        for (call, outcome) in unseen {
            line.push(following.end_of(call, outcome).encoded());
        }
        line.push(News::AllTold.encoded());
        drop(line);
        following
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nesting(&self) -> MutexGuard<'_, BTreeSet<CallId>> {
        self.nesting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the news of the outcome of a call.
    fn end_of(&self, call: CallId, outcome: Outcome) -> News {
        let contents = match &outcome {
            Outcome::Written { bytes, .. } => self.executor.contents(call, bytes),
            _ => Vec::new(),
        };
        News::Ended { call, outcome, contents }
    }

    fn say(&self, news: &News) {
        let news = news.encoded();
        let mut line = self.line();
        line.push(news);
        let is_held = line.is_held();
        drop(line);
        // Held messages are sent when their time is up.
        if !is_held {
            self.wake.notify_one();
        }
    }

    /// Returns whether a message waits that should be sent soon.
    pub(super) fn is_held(&self) -> bool {
        self.line().is_held()
    }

    pub(super) fn frame(&self, now_ms: u64) -> Option<Frame> {
        self.line().frame(now_ms)
    }

    pub(super) fn receive(&self, tasks: &Tasks, frame: Frame, now_ms: u64) {
        self.heard_ms.store(now_ms, Relaxed);
        let orders = self.line().receive(frame, now_ms);
        for order in orders {
            match Order::decode(&order) {
                Ok(order) => self.obey(tasks, order),
                Err(error) => tracing::warn!(reason = error.reason, "an order could not be read"),
            }
        }
    }

    fn obey(&self, tasks: &Tasks, order: Order) {
        match order {
            Order::TakePart => {}
            Order::Forget(version) => drop(self.executor.forget(version)),
            Order::Copy(missing) => self.executor.fetch(missing),
            Order::Alias { from, to, mark } => {
                let is_here = self.executor.alias(from, to, mark);
                self.say(&if is_here {
                    News::Copied(to)
                } else {
                    News::NotCopied { version: to, tried: Vec::new() }
                });
            }
            Order::Answer(execution, answer) => self.executor.answer_task(execution, answer),
            Order::Remember(history) => {
                if history.number() > 0 && !self.is_told.swap(true, Relaxed) {
                    tracing::info!("this node remembers which calls of the program have ended");
                }
                self.executor.remove_recorded(|call, mark| history.has_ended_of(call, mark.root));
                lock(&self.memory).add(history);
            }
            Order::Cancel(call) => {
                if let Some((call, unchanged)) = self.executor.cancel(call) {
                    self.say(&News::Returned { call, unchanged });
                }
            }
            Order::MayLeave => self.may_go.store(true, Relaxed),
            Order::Assign {
                call,
                module,
                name,
                mark,
                tries,
                reader,
                arguments,
                in_place,
                manner,
                missing,
            } => {
                let work = reader.map(Work::Get).or_else(|| tasks.get(&module, &name).map(Work::Task));
                let Some(work) = work else {
                    let reason = format!("a node has no task {module}::{name}");
                    return self.say(&News::ended(call, Outcome::Failed(Failure::new(name, call, reason))));
                };
                let arguments = arguments.into();
                let elsewhere = Vec::new();
                let assignment =
                    Assignment { call, work, mark, arguments, tries, in_place, manner, elsewhere };
                if self.is_closed.load(Relaxed) && reader.is_none() {
                    let (call, unchanged) = self.executor.give_back(&assignment);
                    return self.say(&News::Returned { call, unchanged });
                }
                self.executor.assign(self.epoch.load(Relaxed), assignment, missing);
            }
        }
    }

    /// Prepares for leaving: calls that have not started move to other nodes.
    pub(super) fn leave(&self) {
        self.say(&News::Leaves);
        self.close();
    }

    /// Handles a cordon: calls that have not started move to other nodes.
    pub(super) fn cordon(&self, is_cordoned: bool) {
        self.say(&News::Cordon { is_cordoned });
        if is_cordoned {
            self.close();
        } else {
            self.is_closed.store(false, Relaxed);
        }
    }

    fn close(&self) {
        self.is_closed.store(true, Relaxed);
        for (call, unchanged) in self.executor.take_back() {
            self.say(&News::Returned { call, unchanged });
        }
    }

    /// Records that a node has become a member, or has left.
    pub(super) fn on_member_changed(&self, node: NodeId, is_member: bool) {
        if node == self.coordinator {
            self.is_coordinator_gone.store(!is_member, Relaxed);
        }
    }

    /// Returns whether the coordinator was heard within the last second and not reported gone since.
    pub(super) fn is_coordinator_heard(&self, now_ms: u64) -> bool {
        !self.is_coordinator_gone.load(Relaxed) && now_ms < self.heard_ms.load(Relaxed) + SILENT_MS
    }

    /// Returns whether the coordinator needs nothing more from this node.
    pub(super) fn may_go(&self) -> bool {
        self.may_go.load(Relaxed)
    }
}

pub(super) fn lock(memory: &Memory) -> MutexGuard<'_, History> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report for Following {
    fn tell(&self, news: News) {
        match news {
            News::Ended { call, outcome, .. } => {
                // The coordinator may fail before it has informed other nodes. Only it knows the calls that tasks make.
                let has_calls = self.nesting().remove(&call);
                if call < NESTED_BIT && !has_calls && matches!(outcome, Outcome::Written { .. }) {
                    lock(&self.memory).add_end(call);
                }
                self.say(&self.end_of(call, outcome));
            }
            News::HasCopies(versions) => {
                for versions in versions.chunks(TOLD_MAX) {
                    self.say(&News::HasCopies(versions.to_vec()));
                }
            }
            news => {
                match &news {
                    News::Step(execution, Step::Begin) => _ = self.nesting().insert(execution.call),
                    News::Returned { call, .. } => _ = self.nesting().remove(call),
                    _ => {}
                }
                self.say(&news);
            }
        }
    }
}
