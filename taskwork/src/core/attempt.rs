//! Beginning an attempt at the job, and dropping the one before; and what a node keeps while it is at work on one.

use super::{
    accounting::Accounting,
    action::{Action, Departure, TransactionKind},
    message::Message,
    node::{Node, Phase},
    receipts::{Receipt, Receipts},
    thief::Thief,
    victim::{Serving, Victim, Waiting},
};
use crate::{
    config::Limits,
    envelope::Envelope,
    id::{Attempt, NodeId},
};

/// A node's part in one attempt.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) attempt: Attempt,
    pub(super) thief: Thief,
    pub(super) victim: Victim,
    pub(super) receipts: Receipts,
    pub(super) accounting: Accounting,
    pub(super) enrolment: Enrolment,
    /// Grants that came before this node was enrolled: neither taken nor answered yet.
    pub(super) held_back: Vec<(NodeId, Message)>,
    /// From then on they are refused: while ZooKeeper is away somebody else can do what this node cannot begin.
    pub(super) held_back_until: u64,
}

/// Whether this node is written into the attempt. That is done when there is work for it: without, it holds nothing, and can go
/// at any time. A small job on many nodes so is the matter of a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enrolment {
    /// It is not.
    Open,
    /// It was asked for.
    Asked,
    /// It is.
    Done,
}

/// How many grants are held back; of more, each comes again.
const HELD_BACK_MAX: usize = 16;

impl Run {
    /// The times at which something is due.
    pub(super) fn deadlines(&self, limits: &Limits) -> impl Iterator<Item = u64> {
        let asking = self.thief.deadline().into_iter().chain(self.thief.commits_at(limits));
        let held_back = (!self.held_back.is_empty()).then_some(self.held_back_until);
        asking.chain(self.victim.deadlines()).chain(self.accounting.deadline()).chain(held_back)
    }
}

impl Node {
    /// An attempt has become the current one. Whatever belongs to an earlier one is dropped: its tasks begin anew from the
    /// root, its outputs do not count.
    pub(super) fn begin_attempt(&mut self, attempt: Attempt) {
        let newer = match &self.phase {
            Phase::Waiting => true,
            Phase::Clearing { next } => attempt > *next,
            Phase::Active(run) => attempt > run.attempt,
            Phase::Gone => false,
        };
        if newer {
            self.end_run();
            self.phase = Phase::Clearing { next: attempt };
            self.actions.push(Action::Thieves { waiting: 0 });
            self.actions.push(Action::Stop);
        }
    }

    pub(super) fn job_over(&mut self) {
        if !matches!(self.phase, Phase::Gone) {
            self.end_run();
            self.phase = Phase::Waiting;
            self.actions.push(Action::Stop);
        }
    }

    /// Remembers the numbers that were given, so that no later attempt gives them again.
    fn end_run(&mut self) {
        if let Phase::Active(run) = &self.phase {
            self.numbers.request = run.thief.next_request();
            self.numbers.grant = run.victim.next_grant();
            self.numbers.txn = run.accounting.next_txn();
        }
    }

    /// Begins once nothing of the older attempt runs any more.
    pub(super) fn clear(&mut self, next: Attempt) {
        if self.drain.is_some() {
            self.phase = Phase::Waiting;
            self.depart(Departure::Clean);
        } else if self.pool.is_quiet() {
            self.phase = Phase::Active(Box::new(Run {
                attempt: next,
                thief: Thief::new(self.numbers.request),
                victim: Victim::new(self.numbers.grant),
                receipts: Receipts::default(),
                accounting: self.new_accounting(),
                enrolment: Enrolment::Open,
                held_back: Vec::new(),
                held_back_until: 0,
            }));
            self.actions.extend([Action::Discard, Action::Resume]);
        }
    }

    /// Keeps a grant until this node is enrolled: before, it must hold no task.
    pub(super) fn hold_back(&mut self, from: NodeId, message: Message) {
        let Phase::Active(run) = &mut self.phase else { return };
        let number =
            |message: &Message| if let Message::Grant { grant, .. } = message { Some(*grant) } else { None };
        let known = run.held_back.iter().any(|(who, held)| *who == from && number(held) == number(&message));
        if run.held_back.is_empty() {
            run.held_back_until = self.now + self.limits.enrol_patience_ms;
        }
        let bytes: usize = run.held_back.iter().map(|(_, held)| held.bytes()).sum();
        let has_room =
            run.held_back.is_empty() || bytes + message.bytes() <= self.limits.open_grant_bytes_max;
        if !known && has_room && run.held_back.len() < HELD_BACK_MAX {
            run.held_back.push((from, message));
        }
        if run.enrolment == Enrolment::Open {
            run.enrolment = Enrolment::Asked;
            self.actions.push(Action::Enrol { attempt: run.attempt });
        }
    }

    /// Refuses what was held back for too long. What was refused once stays so, and its victim has it back.
    pub(super) fn refuse_held_back(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        if run.held_back.is_empty() || self.now < run.held_back_until {
            return;
        }
        for (from, message) in std::mem::take(&mut run.held_back) {
            let Message::Grant { grant, settled_below, .. } = message else { continue };
            let open_max = self.limits.open_grants_max;
            let Phase::Active(run) = &mut self.phase else { return };
            if let Receipt::Answer(refusal) =
                run.receipts.receive(from, grant, settled_below, false, open_max)
            {
                self.send(from, refusal);
            }
        }
    }

    /// This node is written into the attempt: what was held back is dealt with.
    pub(super) fn enrolled(&mut self, attempt: Attempt) {
        let Some(run) = self.run_of(attempt) else { return };
        run.enrolment = Enrolment::Done;
        for (from, message) in std::mem::take(&mut run.held_back) {
            if self.members.contains(&from) {
                self.answer(from, message);
            }
        }
    }

    pub(super) fn joined(&mut self, node: NodeId) {
        if node == self.id || !self.members.insert(node) {
            return;
        }
        if let Phase::Active(run) = &mut self.phase {
            run.thief.joined();
            run.victim.joined(node);
        }
        if let Some(drain) = &mut self.drain {
            drain.joined(node);
        }
    }

    pub(super) fn left(&mut self, node: NodeId, clean_in: Option<Attempt>) {
        self.members.remove(&node);
        let Phase::Active(run) = &mut self.phase else { return };
        // What it has left cleanly may be another attempt than the one that this node still works on: it may have done there what
        // it was granted here.
        let clean = clean_in == Some(run.attempt);
        run.thief.unreachable(self.now, node);
        if clean {
            run.receipts.left_cleanly(node);
        }
        let waiting = run.victim.waiting();
        let returned = run.victim.left(node, clean);
        if self.drain.is_some() {
            self.figures.handed_on = self.figures.handed_on.saturating_sub(returned.len() as u64);
        }
        if run.victim.waiting() < waiting {
            self.actions.push(Action::Thieves { waiting: run.victim.waiting() });
        }
        self.take_back(returned);
    }

    /// Tasks that were granted, but not taken, are ours again.
    pub(super) fn take_back(&mut self, tasks: Vec<Envelope>) {
        if tasks.is_empty() {
            return;
        }
        match &mut self.drain {
            Some(drain) => drain.pile(tasks),
            None => self.actions.push(Action::Put { tasks }),
        }
    }

    pub(super) fn steal(&mut self, thief: NodeId, request: u64) {
        let Phase::Active(run) = &mut self.phase else { return };
        let admitted =
            self.drain.is_none() && run.victim.admit(self.now, thief, request, self.pool, &self.limits);
        if admitted {
            self.actions.push(Action::Thieves { waiting: run.victim.waiting() });
        } else {
            self.send(thief, Message::Deny { request });
        }
    }

    /// Feeds, denies or reminds the thieves.
    pub(super) fn serve(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        match run.victim.step(self.now, self.pool, &self.limits) {
            Serving::Nothing => {}
            Serving::Take { thief, request, tasks_max, bytes_max } => {
                self.actions.push(Action::Take { thief, request, tasks_max, bytes_max });
            }
            Serving::Deny(denied) => {
                self.actions.push(Action::Thieves { waiting: run.victim.waiting() });
                self.deny(denied);
            }
        }
        self.remind();
    }

    pub(super) fn deny(&mut self, denied: Vec<Waiting>) {
        for Waiting { thief, request, .. } in denied {
            self.send(thief, Message::Deny { request });
        }
    }

    /// Sends again what was not acknowledged in time.
    pub(super) fn remind(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        // Who leaves has no time to wait longer each time.
        let Limits { grant_retry_ms, grant_retry_max_ms, .. } = self.limits;
        let wait_max_ms = if self.drain.is_some() { grant_retry_ms } else { grant_retry_max_ms };
        for (to, message) in run.victim.overdue(self.now, wait_max_ms) {
            self.send(to, message);
        }
    }

    /// Queued tasks were taken out of the pool for a thief.
    pub(super) fn taken(&mut self, thief: NodeId, request: u64, tasks: Vec<Envelope>) {
        let Phase::Active(run) = &mut self.phase else { return };
        if tasks.is_empty() {
            return;
        }
        // It may have gone meanwhile, or this node may have begun to leave: the tasks stay.
        if self.drain.is_some() || !run.victim.serve(thief, request) {
            self.take_back(tasks);
            return;
        }
        self.actions.push(Action::Thieves { waiting: run.victim.waiting() });
        let grant = run.victim.grant(self.now, thief, Some(request), tasks, &self.limits);
        self.send(thief, grant);
    }

    /// A transaction of ours is committed.
    pub(super) fn committed(&mut self, kind: TransactionKind, claimed: Option<Envelope>) {
        match kind {
            TransactionKind::Claim { task, .. } => {
                self.parked.claimed(task);
                if claimed.is_some()
                    && let Phase::Active(run) = &self.phase
                {
                    self.enrolled(run.attempt);
                }
                self.take_back(claimed.into_iter().collect());
            }
            TransactionKind::Commit { toggles, park, leave, .. } => {
                self.figures.toggles += toggles.len() as u64;
                self.figures.parked += park.len() as u64;
                if leave {
                    self.depart(Departure::Clean);
                }
            }
        }
    }
}
