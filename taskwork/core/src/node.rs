//! One node of the cluster: a state machine from events to actions.
//!
//! [`Node::handle`] first records the event, then examines the whole state ([`Node::step`]) and performs the due
//! actions: ask, serve, claim, commit, hand over. Because the second part depends on the state alone, a
//! missed reaction is made up for at the next event of any kind.

use std::{collections::BTreeSet, time::Duration};

use rand::{SeedableRng, rngs::SmallRng};

use super::{
    action::{Action, Departure, TransactionKind},
    drain::{Drain, DrainKind},
    event::{Event, TransactionResult},
    ledger::LedgerState,
    message::Message,
    orphans::Orphans,
    parked::Parked,
    pool_view::PoolView,
    run::{Enrolment, Numbers, Run},
    surroundings::Surroundings,
};
use crate::{
    config::Limits,
    counts::Counts,
    holdings::{Basis, Holdings, Source, Transit, TransitNumber},
    id::{Attempt, NodeId},
};

/// The protocol state of one node.
#[derive(Debug)]
pub struct Node {
    pub(super) phase: Phase,
    pub(super) parked: Parked,
    pub(super) numbers: Numbers,
    pub(super) around: Surroundings,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// No attempt is known, or the job is over.
    Waiting,
    /// Another attempt has started; the tasks of the previous one are yet to be dropped.
    Clearing { next: Attempt },
    /// It works on an attempt.
    Active(Box<Run>),
    /// It is no longer in the cluster.
    Gone,
}

impl Node {
    /// Creates a node that knows no other node. The same seed and the same events result in the same actions.
    pub fn new(id: NodeId, limits: Limits, seed: u64) -> Self {
        let around = Surroundings {
            id,
            limits,
            random: SmallRng::seed_from_u64(seed),
            members: BTreeSet::new(),
            known: BTreeSet::new(),
            near: BTreeSet::new(),
            roster: 0,
            is_cordoned: false,
            drain: None,
            counts: Counts::default(),
            received: Vec::new(),
            clock: Duration::ZERO,
            now: 0,
            pool: PoolView::default(),
            actions: Vec::new(),
        };
        Self { phase: Phase::Waiting, parked: Parked::default(), numbers: Numbers::default(), around }
    }

    /// Handles an event at a time on the node's clock, with the state of the pool at that time.
    ///
    /// When one of the actions [touches the pool](Action::touches_pool), the shell performs them all and then
    /// calls again with [`Event::Look`].
    pub fn handle(&mut self, now: Duration, pool: PoolView, event: Event) -> Vec<Action> {
        self.around.clock = self.around.clock.max(now);
        self.around.now = whole_ms(self.around.clock);
        self.around.pool = pool;
        self.note(event);
        // The view does not include the effects of actions on the pool yet: the following look will step.
        if !self.around.actions.iter().any(Action::touches_pool) {
            self.step();
        }
        if let Phase::Active(run) = &mut self.phase {
            run.note_holding(&self.around);
        }
        std::mem::take(&mut self.around.actions)
    }

    /// Returns when to send [`Event::Tick`] unless another event comes first, in milliseconds of the node's
    /// clock.
    pub fn deadline(&self) -> Option<u64> {
        let Phase::Active(run) = &self.phase else { return None };
        let Surroundings { now, pool, limits, .. } = &self.around;
        let drain = self.around.drain.iter().flat_map(Drain::deadlines);
        // Everything that was due was done when the last event was handled.
        let claims = self.parked.claims_at(run.attempt, |source| self.around.may_take(source));
        let claims = claims.filter(|_| pool.is_hungry());
        let looks = Some(run.look_at).filter(|_| run.starves(&self.around));
        let flushes = run.flushes_at(&self.around);
        run.deadlines(limits)
            .chain(drain)
            .chain(claims)
            .chain(looks)
            .chain(flushes)
            .filter(|due| due > now)
            .min()
    }

    /// Returns the counts of the protocol.
    pub fn counts(&self) -> Counts {
        self.around.counts
    }

    /// Returns the sources and numbers of tasks received since the last call.
    pub fn take_received(&mut self) -> Vec<(NodeId, u64)> {
        std::mem::take(&mut self.around.received)
    }

    /// Returns the state of this node's holdings in `ZooKeeper`, while it works on an attempt.
    pub fn ledger(&self) -> Option<LedgerState> {
        match &self.phase {
            Phase::Active(run) => Some(run.ledger),
            Phase::Waiting | Phase::Clearing { .. } | Phase::Gone => None,
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Look | Event::Tick => {}
            Event::Joined { node } => self.joined(node),
            Event::Known { node, near } => self.known(node, near),
            Event::Apart { node } => self.apart(node),
            Event::Roster { nodes } => self.around.roster = nodes,
            Event::Left { node, clean_in } => self.left(node, clean_in),
            Event::Attempt { attempt } => self.begin_attempt(attempt),
            Event::Enrolled { attempt } => {
                if let Phase::Active(run) = &mut self.phase
                    && run.attempt == attempt
                {
                    run.enrolled(&mut self.around);
                }
            }
            // Recorded in every phase: it may come before the attempt has started here, and is not repeated.
            Event::Parked { attempt, tasks } => {
                let Surroundings { id, members, limits, now, .. } = &self.around;
                self.parked.update(*now, attempt, &tasks, (*id, members), limits);
            }
            Event::JobOver => self.job_over(),
            Event::Message { from, attempt, message } => self.message(from, attempt, message),
            Event::Unreachable { to } => {
                if let Phase::Active(run) = &mut self.phase {
                    run.thief.unreachable(self.around.now, to);
                }
            }
            Event::Orphans { attempt, look, members, transits, held } => {
                if let Phase::Active(run) = &mut self.phase
                    && run.attempt == attempt
                {
                    let orphans = Orphans { look, members, transits, held };
                    run.found(&mut self.around, &mut self.parked, &orphans);
                }
            }
            Event::Taken { thief, request, tasks, basis } => {
                if let Phase::Active(run) = &mut self.phase {
                    run.taken(&mut self.around, thief, request, (basis, tasks));
                }
            }
            Event::Unloaded { tasks } => self.unloaded(tasks),
            Event::Cut(cut) => {
                if let Phase::Active(run) = &mut self.phase {
                    run.cut(&mut self.around, cut);
                }
            }
            Event::Transacted { txn, result } => self.transacted(txn, result),
            Event::Drain { ms_ago, deadline_ms } => {
                self.begin_drain(DrainKind::Drain { ms_ago, deadline_ms });
            }
            Event::Retire => self.begin_drain(DrainKind::Retire),
            Event::Rest => self.begin_drain(DrainKind::Rest),
            Event::Cordon { is_cordoned } => self.around.is_cordoned = is_cordoned,
            Event::Expired => self.depart(Departure::Expelled),
        }
    }

    /// Performs the actions that are due in the current state.
    fn step(&mut self) {
        match self.phase {
            Phase::Waiting if self.around.drain.is_some() => self.depart(Departure::Clean),
            Phase::Waiting | Phase::Gone => {}
            Phase::Clearing { next } => self.clear(next),
            Phase::Active(_) if self.around.drain.is_some() => self.step_drain(),
            Phase::Active(_) => self.step_run(),
        }
    }

    fn step_run(&mut self) {
        let Phase::Active(run) = &mut self.phase else { return };
        run.retry(&mut self.around);
        run.refuse_held_back(&mut self.around);
        run.serve(&mut self.around);
        run.claim(&mut self.around, &mut self.parked);
        run.flush_if_due(&mut self.around);
        run.ask(&mut self.around);
        run.ask_pending(&mut self.around);
        run.look_if_starving(&mut self.around);
    }

    fn message(&mut self, from: NodeId, attempt: Attempt, message: Message) {
        if !self.around.members.contains(&from) {
            return;
        }
        match (&mut self.phase, message) {
            (Phase::Active(run), message) if run.attempt == attempt => {
                // Nodes that work on another job deny, too.
                if !matches!(message, Message::Deny { .. }) {
                    run.heard_of.insert(from);
                }
                run.hear(&mut self.around, from, message);
            }
            // Denied with the attempt of the request, so that the thief need not wait.
            (_, Message::Steal { request }) => self.around.send(attempt, from, Message::Deny { request }),
            _ => {}
        }
    }

    fn transacted(&mut self, txn: u64, result: TransactionResult) {
        let Phase::Active(run) = &mut self.phase else { return };
        let ended = match &result {
            TransactionResult::Committed | TransactionResult::Claimed(_) | TransactionResult::Unreadable => {
                run.accounting.written(txn)
            }
            TransactionResult::TooLate => run.accounting.too_late(txn),
            TransactionResult::Unknown => {
                run.accounting.unknown(txn, self.around.now + self.around.limits.transaction_retry_ms);
                None
            }
            TransactionResult::NotMember => return self.depart(Departure::Expelled),
            // The job's record will announce the next attempt or the end of the job. Until then this
            // transaction stays in flight, and no other starts.
            TransactionResult::AttemptOver | TransactionResult::Unrecordable => None,
        };
        let Some(kind) = ended else { return };
        self.around.counts.transactions += 1;
        match kind {
            TransactionKind::Claim { source, .. } => {
                self.parked.claimed(source);
                if let TransactionResult::Claimed(holdings) = result {
                    run.enrolled(&mut self.around);
                    run.claimed(&mut self.around, txn, source, holdings);
                }
            }
            TransactionKind::Flush(flush) => {
                self.around.counts.toggles += flush.toggles.len() as u64;
                self.around.counts.parked += flush.park.len() as u64;
                run.flushed(&mut self.around, &flush);
                if flush.leave {
                    return self.depart(Departure::Clean);
                }
            }
        }
        run.send_flush(&mut self.around);
    }

    /// Ends this node's part in the job.
    pub(super) fn depart(&mut self, departure: Departure) {
        if !matches!(self.phase, Phase::Gone) {
            self.phase = Phase::Gone;
            self.around.actions.push(Action::Stop);
            self.around.actions.push(Action::Leave { departure });
        }
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Transactions.
impl Run {
    /// Retries a transaction if it is due.
    pub(super) fn retry(&mut self, around: &mut Surroundings) {
        if let Some(transaction) = self.accounting.retry(around.now) {
            around.counts.retries += 1;
            around.actions.push(Action::Transact { attempt: self.attempt, transaction });
        }
    }

    /// Claims back refused tasks; otherwise makes a claim if the node is hungry.
    pub(super) fn claim(&mut self, around: &mut Surroundings, parked: &mut Parked) {
        if let Some(transaction) = self.claim_back() {
            around.actions.push(Action::Transact { attempt: self.attempt, transaction });
        }
        if self.accounting.is_free()
            && self.bases.can_claim()
            && around.pool.is_hungry()
            && self.enrolment != Enrolment::Asked
            && let Some(source) = parked.claim(around.now, self.attempt, |source| around.may_take(source))
        {
            if !self.may_claim(around, source) {
                return parked.claimed(source);
            }
            let transaction = self.accounting.claim(source, self.enrolment != Enrolment::Done);
            around.actions.push(Action::Transact { attempt: self.attempt, transaction });
        }
    }

    /// Returns whether a source should still be claimed. A grant that has arrived since its transit was listed
    /// is already this node's; one that arrives from now on is ignored.
    fn may_claim(&mut self, around: &Surroundings, source: Source) -> bool {
        let Source::Transit(transit @ Transit { from, number: TransitNumber::Grant(grant), to }) = source
        else {
            return true;
        };
        if to != around.id {
            return true;
        }
        let lost = self.receipts.never_took(from, grant)
            && !self.bases.has(transit)
            && !self.accounting.takes(transit);
        if lost {
            self.receipts.disown(from, grant);
        }
        lost
    }

    /// Stores claimed tasks. They are in transit from this node to itself until the next flush.
    fn claimed(&mut self, around: &mut Surroundings, txn: u64, source: Source, holdings: Holdings) {
        if matches!(source, Source::Transit(_) | Source::Held(_)) {
            around.counts.recovered += holdings.tasks.len() as u64;
        }
        // A cut in progress does not contain the claim; the next flush absorbs it.
        self.bases.claimed(around.now, Transit::claim(around.id, txn), holdings.owed.clone());
        around.keep(Basis::FIRM, self.trials.receive(holdings, around.limits.crashes_max));
    }
}
