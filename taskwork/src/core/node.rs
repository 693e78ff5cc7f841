//! One node of the cluster: takes events, gives actions.
//!
//! [`Node::handle`] first notes what has happened, then looks at the whole ([`Node::step`]) and does what follows from the
//! state as it is: ask, serve, claim, commit, hand on. Because the second part depends on the state alone, no event can be
//! missed for good: the next one, whatever it is, makes up for it.

use std::collections::BTreeSet;

use rand::{SeedableRng, rngs::SmallRng};

use super::{
    accounting::Accounting,
    action::{Action, Departure},
    attempt::{Enrolment, Run},
    drain::{Drain, Word},
    event::{Event, TransactionResult},
    message::{Message, Packet},
    parked::Parked,
    receipts::Receipt,
};
use crate::{
    config::Limits,
    figures::Figures,
    id::{Attempt, NodeId},
    pool::PoolView,
};

/// The protocol state of one node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) id: NodeId,
    pub(super) limits: Limits,
    pub(super) random: SmallRng,
    /// The other members.
    pub(super) members: BTreeSet<NodeId>,
    pub(super) phase: Phase,
    pub(super) parked: Parked,
    /// Set when the node is to leave.
    pub(super) drain: Option<Drain>,
    pub(super) numbers: Numbers,
    pub(super) figures: Figures,
    pub(super) now: u64,
    pub(super) pool: PoolView,
    pub(super) actions: Vec<Action>,
}

/// Numbers that are never given twice in the life of a node, whatever attempts it goes through.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) request: u64,
    pub(super) grant: u64,
    pub(super) txn: u64,
}

/// Where a node stands with the job.
#[derive(Debug)]
pub(super) enum Phase {
    /// No attempt is known, or the job is over.
    Waiting,
    /// Another attempt has begun; the tasks of the one before are still to be dropped.
    Clearing { next: Attempt },
    /// At work.
    Active(Box<Run>),
    /// Not in the cluster any more.
    Gone,
}

impl Node {
    /// A node that knows of nobody yet. The same seed and the same events give the same actions.
    pub(crate) fn new(id: NodeId, limits: Limits, seed: u64) -> Self {
        Self {
            id,
            limits,
            random: SmallRng::seed_from_u64(seed),
            members: BTreeSet::new(),
            phase: Phase::Waiting,
            parked: Parked::default(),
            drain: None,
            numbers: Numbers::default(),
            figures: Figures::default(),
            now: 0,
            pool: PoolView::default(),
            actions: Vec::new(),
        }
    }

    /// Takes an event at a time, in milliseconds, with the state of the pool at that time.
    ///
    /// When one of the actions [touches the pool](Action::touches_pool), the shell performs them all and then
    /// calls again with [`Event::Look`].
    pub(crate) fn handle(&mut self, now: u64, pool: PoolView, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        self.pool = pool;
        self.note(event);
        // What an action changes in the pool is not in the view yet: the look that follows will step.
        if !self.actions.iter().any(Action::touches_pool) {
            self.step();
        }
        std::mem::take(&mut self.actions)
    }

    /// When to send [`Event::Tick`], if nothing happens before.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let Phase::Active(run) = &self.phase else { return None };
        let drain = self.drain.iter().flat_map(Drain::deadlines);
        // What was due was done when the last event was handled.
        let claims = self.parked.claims_at(run.attempt).filter(|_| self.pool.is_hungry());
        run.deadlines(&self.limits).chain(drain).chain(claims).filter(|&due| due > self.now).min()
    }

    /// What this node has done, besides what its pool counts.
    pub(crate) fn figures(&self) -> Figures {
        self.figures
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Look | Event::Tick => {}
            Event::Joined { node } => self.joined(node),
            Event::Left { node, clean_in } => self.left(node, clean_in),
            Event::Attempt { attempt } => self.begin_attempt(attempt),
            Event::Enrolled { attempt } => self.enrolled(attempt),
            // Noted whatever the phase: it may come before the attempt has begun here, and is not told again.
            Event::Parked { attempt, tasks } => {
                let who = (self.id, &self.members);
                self.parked.told(self.now, attempt, &tasks, who, &self.limits);
            }
            Event::JobOver => self.job_over(),
            Event::Packet { from, packet } => self.packet(from, packet),
            Event::Unreachable { to } => {
                if let Phase::Active(run) = &mut self.phase {
                    run.thief.unreachable(self.now, to);
                }
            }
            Event::Taken { thief, request, tasks } => self.taken(thief, request, tasks),
            Event::Unloaded { tasks } => self.unloaded(tasks),
            Event::Batch { toggles, output } => {
                if let Phase::Active(run) = &mut self.phase
                    && let Some(transaction) = run.accounting.collected(toggles, output)
                {
                    self.actions.push(Action::Transact { attempt: run.attempt, transaction });
                }
            }
            Event::Transacted { txn, result } => self.transacted(txn, result),
            Event::Drain => self.begin_drain(Word::Drain),
            Event::Retire => self.begin_drain(Word::Retire),
            Event::Rest => self.begin_drain(Word::Rest),
            Event::Expired => self.depart(Departure::Expelled),
        }
    }

    /// Does what follows from the state as it is.
    fn step(&mut self) {
        match self.phase {
            Phase::Waiting if self.drain.is_some() => self.depart(Departure::Clean),
            Phase::Waiting | Phase::Gone => {}
            Phase::Clearing { next } => self.clear(next),
            Phase::Active(_) if self.drain.is_some() => self.step_drain(),
            Phase::Active(_) => self.step_run(),
        }
    }

    fn step_run(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        if let Some(transaction) = run.accounting.retry(self.now) {
            self.figures.retries += 1;
            self.actions.push(Action::Transact { attempt: run.attempt, transaction });
        }
        self.refuse_held_back();
        self.serve();
        self.claim_or_commit();
        self.ask();
    }

    fn ask(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        // What came now could not be begun.
        if run.enrolment == Enrolment::Asked {
            return;
        }
        let request = run.thief.step(self.now, self.pool, &self.members, &self.limits, &mut self.random);
        if let Some(request) = request {
            self.figures.requests += 1;
            self.send(request.to, Message::Steal { request: request.request });
        }
    }

    /// A hungry node takes what is parked; an idle one that nobody feeds commits what it has done.
    fn claim_or_commit(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        if !run.accounting.is_free() {
            return;
        }
        if self.pool.is_hungry()
            && run.enrolment != Enrolment::Asked
            && let Some(task) = self.parked.claim(self.now, run.attempt)
        {
            let transaction = run.accounting.claim(task, run.enrolment != Enrolment::Done);
            self.actions.push(Action::Transact { attempt: run.attempt, transaction });
            return;
        }
        let nothing_to_come =
            self.members.is_empty() || run.thief.commits_at(&self.limits).is_some_and(|at| self.now >= at);
        let due = self.pool.batch_ids >= self.limits.batch_ids_commit
            || (self.pool.batch_ids > 0 && self.pool.is_idle() && nothing_to_come);
        if due {
            run.accounting.collect();
            self.actions.push(Action::TakeBatch);
        }
    }

    fn packet(&mut self, from: NodeId, packet: Packet) {
        if !self.members.contains(&from) {
            return;
        }
        let current = self.run_of(packet.attempt).is_some();
        match packet.message {
            Message::Steal { request } if current => self.steal(from, request),
            // Denied under the number of its own attempt, so that it need not wait.
            Message::Steal { request } => {
                let packet = Packet { attempt: packet.attempt, message: Message::Deny { request } };
                self.actions.push(Action::Send { to: from, packet });
            }
            message if current => self.answer(from, message),
            _ => {}
        }
    }

    pub(super) fn answer(&mut self, from: NodeId, message: Message) {
        let Phase::Active(run) = &mut self.phase else { return };
        if self.drain.is_none()
            && run.enrolment != Enrolment::Done
            && matches!(message, Message::Grant { .. })
        {
            return self.hold_back(from, message);
        }
        match message {
            Message::Steal { .. } => {}
            Message::Deny { request } => run.thief.denied(self.now, request),
            Message::Grant { grant, request, settled_below, tasks } => {
                let accepting = self.drain.is_none();
                let open_max = self.limits.open_grants_max;
                match run.receipts.receive(from, grant, settled_below, accepting, open_max) {
                    Receipt::Take(ack) => {
                        self.figures.steals += u64::from(run.thief.granted(request));
                        self.figures.stolen_tasks += tasks.len() as u64;
                        self.actions.push(Action::Put { tasks });
                        self.send(from, ack);
                    }
                    Receipt::Answer(message) => self.send(from, message),
                    Receipt::Pass => {}
                }
            }
            Message::Ack { grant } => {
                let settled = run.victim.acknowledged(from, grant);
                self.send(from, settled);
            }
            Message::Refuse { grant } => {
                let (tasks, settled) = run.victim.refused(from, grant);
                self.send(from, settled);
                if let Some(drain) = &mut self.drain {
                    drain.refused_by(from);
                    self.figures.handed_on = self.figures.handed_on.saturating_sub(tasks.len() as u64);
                }
                self.take_back(tasks);
            }
            Message::Settled { grant, settled_below } => run.receipts.settled(from, grant, settled_below),
        }
    }

    fn transacted(&mut self, txn: u64, result: TransactionResult) {
        let Phase::Active(run) = &mut self.phase else { return };
        match result {
            TransactionResult::Done { claimed } => {
                let committed = run.accounting.is_commit() || claimed.is_some();
                if let Some(transaction) = run.accounting.done(txn, committed) {
                    self.figures.transactions += 1;
                    self.committed(transaction.kind, claimed);
                }
            }
            TransactionResult::Unknown => {
                run.accounting.unknown(txn, self.now + self.limits.transaction_retry_ms);
            }
            TransactionResult::NotMember => self.depart(Departure::Expelled),
            // The attempt that follows is announced by the job's record.
            TransactionResult::AttemptOver => {}
        }
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message) {
        if let Phase::Active(run) = &self.phase {
            self.actions.push(Action::Send { to, packet: Packet { attempt: run.attempt, message } });
        }
    }

    pub(super) fn run_of(&mut self, attempt: Attempt) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Active(run) if run.attempt == attempt => Some(run),
            _ => None,
        }
    }

    /// Ends this node's part in the cluster.
    pub(super) fn depart(&mut self, departure: Departure) {
        if !matches!(self.phase, Phase::Gone) {
            self.phase = Phase::Gone;
            self.actions.push(Action::Stop);
            self.actions.push(Action::Leave { departure });
        }
    }

    pub(super) fn new_accounting(&self) -> Accounting {
        Accounting::new(self.numbers.txn)
    }
}
