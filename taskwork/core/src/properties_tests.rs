//! One node under arbitrary sequences of events: it never panics, its invariants hold, and it loses or
//! duplicates no task.

mod steps;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    Action, Cut, Event, Gift, Message, Node, PoolView, Transaction, TransactionKind, TransactionResult,
    node::Phase,
};
use crate::{
    config::Limits,
    envelope::{Blob, Envelope},
    holdings::{Basis, Holdings, Source, Transit, TransitNumber},
    id::{Attempt, NodeId, TaskId},
};

use self::steps::{Answer, Step, step};

const ME: NodeId = NodeId(1);
const WORKERS: usize = 2;

/// A node with a pool, and an independent record of its tasks.
struct Bench {
    node: Node,
    now: u64,
    stopped: bool,
    queue: VecDeque<TaskId>,
    running: Vec<TaskId>,
    made: u64,
    /// Every task of this node: received, and neither completed nor taken by another node.
    mine: BTreeSet<TaskId>,
    /// The grants of this node that are open or not written.
    granted: BTreeMap<u64, Granted>,
    basis_of: BTreeMap<TaskId, Basis>,
    enrolling: Option<Attempt>,
    under_way: Option<Transaction>,
    /// The number of the last transaction that was started.
    begun: Option<u64>,
    left: BTreeSet<NodeId>,
    /// Parked tasks that were claimed.
    claimed: BTreeSet<TaskId>,
    gone: bool,
}

/// A grant of this node.
#[derive(Debug)]
struct Granted {
    to: NodeId,
    tasks: Vec<TaskId>,
    acknowledged: bool,
    /// Whether a flush with it has started.
    writing: bool,
}

fn sealed(id: TaskId) -> Envelope {
    // Of different sizes, so that some fit together into a grant and some do not.
    let task = vec![0; usize::try_from(id.number % 3).unwrap() * 40].into();
    Envelope::new(id, Blob::default(), task)
}

impl Bench {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            open_grants_max: 3,
            waiting_thieves_max: 2,
            grant_tasks_max: 2,
            grant_bytes_max: 150,
            open_grant_bytes_max: 300,
            drain_deadline_ms: 500,
            park_tasks_max: 2,
            ..Limits::default()
        };
        Self {
            node: Node::new(ME, limits, seed),
            now: 0,
            stopped: false,
            queue: VecDeque::new(),
            running: Vec::new(),
            made: 0,
            mine: BTreeSet::new(),
            granted: BTreeMap::new(),
            basis_of: BTreeMap::new(),
            enrolling: None,
            under_way: None,
            begun: None,
            left: BTreeSet::new(),
            claimed: BTreeSet::new(),
            gone: false,
        }
    }

    fn view(&self) -> PoolView {
        let idle = WORKERS - self.running.len();
        PoolView {
            workers: WORKERS,
            idle,
            queued: self.queue.len(),
            waiting: 0,
            untried: None,
            staying: 0,
            stopped: self.stopped,
            batch_ids: 1,
        }
    }

    /// Returns the tasks of a grant: the same at each arrival, and different from those of any other.
    fn tasks_of(from: u64, attempt: u32, grant: u64) -> Vec<TaskId> {
        (0..=grant % 2)
            .map(|k| TaskId { node: NodeId(from), number: 1000 * u64::from(attempt) + 2 * grant + k })
            .collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            // A node that has left cleanly never comes back under the same id.
            Step::Joined(node) if self.left.contains(&NodeId(node)) => {}
            Step::Joined(node) => self.handle(Event::Joined { node: NodeId(node) }),
            Step::Left(node, clean_in) => {
                let node = NodeId(node);
                let clean_in = clean_in.map(Attempt);
                if clean_in.is_some() {
                    self.left.insert(node);
                }
                // Unwritten grants come back; written ones can be claimed by any node.
                let active = matches!(self.node.phase, Phase::Active(_));
                for (_, granted) in self.granted.extract_if(.., |_, granted| active && granted.to == node) {
                    for task in granted.tasks {
                        if granted.writing {
                            self.mine.remove(&task)
                        } else {
                            self.mine.insert(task)
                        };
                    }
                }
                self.handle(Event::Left { node, clean_in });
            }
            Step::Attempt(attempt) => self.handle(Event::Attempt { attempt: Attempt(attempt) }),
            Step::Enrolled => {
                if let Some(attempt) = self.enrolling.take() {
                    self.handle(Event::Enrolled { attempt });
                }
            }
            Step::Parked(attempt, numbers) => {
                let task =
                    |number: u64| TaskId { node: NodeId(0), number: 1000 * u64::from(attempt) + number };
                let tasks = numbers.into_iter().map(task).filter(|task| !self.mine.contains(task)).collect();
                self.handle(Event::Parked { attempt: Attempt(attempt), tasks });
            }
            Step::JobOver => self.handle(Event::JobOver),
            Step::Orphans { attempt, members, transits, held } => {
                self.look(attempt, members, transits, held);
            }
            Step::Message { from, attempt, mut message } => {
                match &mut message {
                    Message::Grant { grant, tasks, .. } => {
                        *tasks = Self::tasks_of(from, attempt, *grant).into_iter().map(sealed).collect();
                    }
                    Message::Ack { grant } if self.is_theirs(from, attempt, *grant) => {
                        let granted = self.granted.get_mut(grant).unwrap();
                        granted.acknowledged = true;
                        self.mine.retain(|task| !granted.tasks.contains(task));
                    }
                    Message::Refuse { grant } if self.is_theirs(from, attempt, *grant) => {
                        let granted = self.granted.remove(grant).unwrap();
                        if granted.writing {
                            self.mine.retain(|task| !granted.tasks.contains(task));
                        }
                    }
                    _ => {}
                }
                self.handle(Event::Message { from: NodeId(from), attempt: Attempt(attempt), message });
            }
            Step::Unreachable(to) => self.handle(Event::Unreachable { to: NodeId(to) }),
            Step::Pass { ms } => {
                self.now += ms;
                self.handle(Event::Tick);
            }
            Step::Answered(answer) => self.answer(answer),
            Step::Begin | Step::Split | Step::Complete => self.work(&step),
            Step::Drain => self.handle(Event::Drain { ms_ago: 0, deadline_ms: 500 }),
            Step::Cordon(is_cordoned) => self.handle(Event::Cordon { is_cordoned }),
        }
    }

    /// Delivers the result of a look.
    fn look(&mut self, attempt: u32, members: Vec<u64>, transits: Vec<(u64, u64, u64)>, held: Vec<u64>) {
        let members = members.into_iter().map(NodeId).chain([ME]).collect();
        let transit = |(from, number, to)| Transit {
            from: NodeId(from),
            number: TransitNumber::Grant(number),
            to: NodeId(to),
        };
        let transits = transits.into_iter().map(transit).collect();
        let held = held.into_iter().map(NodeId).collect();
        self.handle(Event::Orphans { attempt: Attempt(attempt), look: 99, members, transits, held });
    }

    /// Performs a step of the workers.
    fn work(&mut self, step: &Step) {
        match step {
            Step::Begin if !self.stopped && self.running.len() < WORKERS => {
                self.running.extend(self.queue.pop_front());
            }
            Step::Split if !self.running.is_empty() && self.queue.len() < 8 => {
                let id = TaskId { node: ME, number: self.made };
                self.made += 1;
                self.mine.insert(id);
                let basis = self.running.first().and_then(|parent| self.basis_of.get(parent));
                self.basis_of.insert(id, basis.copied().unwrap_or(Basis::FIRM));
                self.queue.push_back(id);
            }
            Step::Complete => {
                let Some(done) = self.running.pop() else { return };
                self.mine.remove(&done);
            }
            _ => return,
        }
        self.handle(Event::Look);
    }

    /// Returns whether an answer is about an open grant of this attempt, from the member that it was given
    /// to.
    fn is_theirs(&self, from: u64, attempt: u32, grant: u64) -> bool {
        matches!(&self.node.phase, Phase::Active(run) if run.attempt == Attempt(attempt))
            && self.node.around.members.contains(&NodeId(from))
            && self
                .granted
                .get(&grant)
                .is_some_and(|granted| granted.to == NodeId(from) && !granted.acknowledged)
    }

    fn answer(&mut self, answer: Answer) {
        let Some(transaction) = self.under_way.take() else { return };
        let result = match (&transaction.kind, answer) {
            (_, Answer::Unknown) => TransactionResult::Unknown,
            (_, Answer::AttemptOver) => TransactionResult::AttemptOver,
            // A task that already belongs to this node is no longer parked, even if an outdated read
            // returns it.
            (TransactionKind::Claim { source: Source::Parked(task), .. }, Answer::Done)
                if !self.claimed.contains(task) =>
            {
                self.claimed.insert(*task);
                self.mine.insert(*task);
                TransactionResult::Claimed(Holdings::of(vec![sealed(*task)]))
            }
            (TransactionKind::Claim { .. }, Answer::Done | Answer::TooLate) => TransactionResult::TooLate,
            (TransactionKind::Flush(flush), Answer::Done | Answer::TooLate) => {
                self.mine.retain(|task| flush.park.iter().all(|parked| parked.id != *task));
                let written = |grant: &u64| flush.give.iter().any(|gift| gift.grant == *grant);
                self.granted.retain(|grant, granted| !(written(grant) && granted.acknowledged));
                TransactionResult::Committed
            }
        };
        self.handle(Event::Transacted { txn: transaction.txn, result });
    }

    /// Returns whether the node starts to take tasks that another node could take instead.
    fn takes_more(&self, action: &Action) -> bool {
        match action {
            Action::Send { message: Message::Steal { .. }, .. } => true,
            Action::Transact { transaction, .. } if self.begun != Some(transaction.txn) => {
                match transaction.kind {
                    TransactionKind::Claim { source: Source::Transit(transit), .. } => transit.to != ME,
                    TransactionKind::Claim { source, .. } => !matches!(source, Source::Returned(_)),
                    TransactionKind::Flush(_) => false,
                }
            }
            _ => false,
        }
    }

    /// Passes an event to the node, performs its actions, and checks the state.
    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let actions = self.node.handle(Duration::from_millis(self.now), self.view(), event);
            if let Err(broken) = self.node.check() {
                panic!("{broken}");
            }
            let look = actions.iter().any(Action::touches_pool);
            if self.node.around.is_cordoned {
                assert!(
                    !actions.iter().any(|action| self.takes_more(action)),
                    "a cordoned node takes nothing: {actions:?}"
                );
            }
            for action in actions {
                events.extend(self.perform(action));
            }
            if look && events.is_empty() {
                events.push_back(Event::Look);
            }
        }
        self.check();
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Send { to, message, .. } => {
                if let Message::Grant { grant, tasks, .. } = message {
                    let tasks = tasks.iter().map(|task| task.id).collect();
                    let granted = Granted { to, tasks, acknowledged: false, writing: false };
                    self.granted.entry(grant).or_insert(granted);
                }
            }
            Action::Put { tasks, basis, .. } => {
                for task in tasks {
                    self.basis_of.insert(task.id, basis);
                    let there = self.queue.contains(&task.id) || self.running.contains(&task.id);
                    assert!(!there, "{} is put into the pool twice", task.id);
                    self.mine.insert(task.id);
                    self.queue.push_back(task.id);
                }
            }
            Action::Take { thief, request, tasks_max, bytes_max } => {
                let mut bytes = 0;
                let basis_of = |task: &TaskId| self.basis_of.get(task).copied().unwrap_or(Basis::FIRM);
                let basis = self.queue.front().map_or(Basis::FIRM, basis_of);
                let fits = |task: &&TaskId| {
                    bytes += sealed(**task).bytes();
                    basis_of(task) == basis && bytes <= bytes_max
                };
                let fitting = self.queue.iter().take(tasks_max).take_while(fits).count();
                let taken = fitting.max(1).min(self.queue.len()).min(tasks_max);
                let tasks = self.queue.drain(..taken).map(sealed).collect();
                return Some(Event::Taken { thief, request, tasks, basis });
            }
            Action::Stop => {
                self.stopped = true;
                self.queue.extend(self.running.drain(..));
            }
            Action::Resume => self.stopped = false,
            Action::Discard => {
                self.queue.clear();
                self.mine.clear();
                self.granted.clear();
                self.basis_of.clear();
                self.under_way = None;
            }
            Action::Unload => {
                let basis_of = |task: &TaskId| self.basis_of.get(task).copied().unwrap_or(Basis::FIRM);
                let tasks = self.queue.drain(..).map(|task| (basis_of(&task), sealed(task))).collect();
                return Some(Event::Unloaded { tasks });
            }
            Action::Cut { firm } => {
                for basis in self.basis_of.values_mut().filter(|basis| firm.contains(basis)) {
                    *basis = Basis::FIRM;
                }
                let mut cut = Cut::default();
                cut.toggles.complete(TaskId::ROOT, &[]);
                return Some(Event::Cut(cut));
            }
            Action::Void { bases } => self.drop_void(&bases),
            Action::Enrol { attempt } => self.enrolling = Some(attempt),
            Action::Transact { transaction, .. } => self.begin(transaction),
            Action::Leave { .. } => self.gone = true,
            // No task waits here.
            Action::LookForOrphans { .. } | Action::Thieves { .. } | Action::Try { .. } => {}
        }
        None
    }

    fn begin(&mut self, transaction: Transaction) {
        assert!(self.under_way.is_none(), "one transaction at a time");
        // At a further try the member that a grant was given to may have left.
        let again = self.begun.replace(transaction.txn) == Some(transaction.txn);
        if let TransactionKind::Flush(flush) = &transaction.kind
            && !again
        {
            for Gift { grant, .. } in &flush.give {
                self.granted.get_mut(grant).expect("it was granted").writing = true;
            }
        }
        self.under_way = Some(transaction);
    }

    fn drop_void(&mut self, bases: &[Basis]) {
        assert!(!bases.contains(&Basis::FIRM));
        let void = |task: &TaskId| self.basis_of.get(task).is_some_and(|basis| bases.contains(basis));
        self.queue.retain(|task| !void(task));
        self.running.retain(|task| !void(task));
        self.mine.retain(|task| !void(task));
        self.granted.retain(|_, granted| granted.writing || !granted.tasks.iter().any(void));
    }

    /// Checks that every task of this node is in one place: queued, running, granted and not taken, on the
    /// pile to hand over, or about to be parked.
    fn check(&self) {
        // The tasks of an attempt that is over are dropped.
        if !matches!(self.node.phase, Phase::Active(_)) {
            return;
        }
        let held = self.node.held().into_iter().chain(self.node.parks());
        let all: Vec<TaskId> = self.queue.iter().chain(&self.running).copied().chain(held).collect();
        let places: BTreeSet<TaskId> = all.iter().copied().collect();
        assert_eq!(places, self.mine, "what is there, and what should be");
        assert_eq!(places.len(), all.len(), "in one place each: {all:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_events_lose_or_duplicate_no_task(seed: u64, steps in prop::collection::vec(step(), 1..120), drains: bool) {
        let mut bench = Bench::new(seed);
        bench.step(Step::Attempt(1));
        bench.step(Step::Enrolled);
        let half = steps.len() / 2;
        for (place, step) in steps.into_iter().enumerate() {
            if drains && place == half {
                bench.step(Step::Drain);
            }
            bench.step(step);
            if bench.gone {
                break;
            }
        }
        if !bench.gone {
            bench.step(Step::JobOver);
        }
    }
}
