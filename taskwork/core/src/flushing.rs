//! Writing the holdings of this node: the times and the content of flushes. The two sides of an unwritten grant
//! are in [`given`](super::given) and [`bases`](super::bases).
//!
//! A flush replaces the node's holdings in `ZooKeeper` by a cut, in the same transaction in which it commits the
//! completions before the cut, writes the grants made before it, and absorbs the bases confirmed before it. So
//! every flush leads from one partition of the work to another, and the loss of the node only loses its work since
//! the last cut.
//!
//! | flush | after |
//! |---|---|
//! | tasks were received or given away | `ledger_soon_ms` |
//! | tasks run | `ledger_interval_ms` |
//! | a thief only waits for it, or a task waits for its trial | immediately, at most every [`PRESSED_MS`] |
//! | the pool is idle and gets no tasks | immediately |
//! | the batch is large, or ids are owed | immediately |
//!
//! All but the last are less frequent in a large cluster, to limit the total load on `ZooKeeper`; awaited flushes are
//! reduced less, and a few of them may come in a row (see [`pace`](super::pace)), since at the end of a job nodes wait
//! for each other. The first three also pause after a slow flush for as long as it took, and the first two are less
//! frequent on a node with large holdings, to limit the bytes written.

use super::{
    accounting::Draft,
    action::{Action, Flush, Transaction},
    event::Cut,
    message::Message,
    run::Run,
    surroundings::Surroundings,
    trials::Trial,
};
use crate::{
    envelope::Envelope,
    holdings::{Basis, Source},
    id::NodeId,
};

/// The minimum time between two awaited flushes, in milliseconds.
const PRESSED_MS: u64 = 5;

/// The rate at which a node writes its holdings, in bytes per millisecond, unless a flush is awaited or its batch is
/// full: about 4 MiB/s.
const BYTES_BY_MS: u64 = 4 << 10;

impl Run {
    pub(super) fn flush_if_due(&mut self, around: &mut Surroundings) {
        // The flush may also end a trial.
        if !self.accounting.drafts()
            && let Some(task) = self.trials.resumed_trial(around.pool.untried.is_some())
        {
            around.actions.push(Action::Try { task });
        }
        // Tasks that are being taken out of the pool would be in neither the cut nor the grants. The following look
        // will flush.
        if around.actions.iter().any(Action::touches_pool) {
            return;
        }
        if self.flushes_at(around).is_some_and(|at| around.now >= at) {
            self.begin_flush(around, Vec::new(), false);
        }
    }

    /// Returns whether there is something to write and no more tasks are expected.
    fn is_last_flush(&self, around: &Surroundings) -> bool {
        // A leaving node writes its grants together with the leave: until then they may be refused.
        let something = match around.drain {
            Some(_) => self.bases.confirmed_since().is_some() && self.victim.open() == 0,
            None => around.pool.batch_ids > 0 || self.moved_since().is_some(),
        };
        something && self.has_run_dry(around)
    }

    /// Returns whether this node has nothing to do, and expects no tasks soon. A single moment without tasks does not
    /// count: with many small tasks it occurs every few milliseconds.
    fn has_run_dry(&self, around: &Surroundings) -> bool {
        let Surroundings { now, limits, members, .. } = around;
        let nothing_to_come = members.is_empty()
            || around.drain.is_some()
            || self.thief.commits_at(limits).is_some_and(|at| now >= &at);
        around.pool.is_idle() && nothing_to_come
    }

    /// Returns the time at which the next flush is due if the pool does not change.
    pub(super) fn flushes_at(&self, around: &Surroundings) -> Option<u64> {
        if !self.accounting.can_flush() {
            return None;
        }
        let Surroundings { pool, limits, .. } = around;
        let (pause_ms, awaited_ms) = (pause_ms(around), awaited_ms(around));
        let moved = self.moved_since();
        let turn_at = self.pace.next(awaited_ms);
        let pressed_at = turn_at.max(self.flushed_at + PRESSED_MS);
        let pressed = moved.filter(|_| self.pressed).map(|_| pressed_at);
        let soon = moved.map(|at| (at + limits.ledger_soon_ms).max(self.flushed_at + pause_ms));
        let has_tasks = !pool.is_idle() || pool.waiting > 0;
        let works = limits.ledger_interval_ms > 0 && (has_tasks || !self.held_nothing);
        let regular = works.then(|| self.flushed_at + limits.ledger_interval_ms.max(pause_ms));
        // If no task runs, the task on trial waits.
        let has_ended = pool.is_idle() || (pool.is_hungry() && pool.batch_ids > 0);
        let trial = self.trials.are_due(pool.untried.is_some(), has_ended);
        let trial = trial.then_some(pressed_at);
        let written = |at: u64| at.max(self.written_after);
        let paced = [pressed, soon.map(written), regular.map(written), trial].into_iter().flatten();
        let paced = paced.map(|at| at.max(self.flush_after));
        // A leaving node has no time.
        let has_no_time = around.drain.is_some() || self.is_first_flush;
        let apart_ms = awaited_ms.min(PRESSED_MS);
        let last_at = if has_no_time { self.flushed_at } else { turn_at.max(self.flushed_at + apart_ms) };
        let last = self.is_last_flush(around).then_some(last_at);
        // Both cases write many completions.
        let full = pool.batch_ids >= limits.batch_ids_commit || self.accounting.owes();
        let full = full.then_some(self.flushed_at);
        paced.chain(last).chain(full).min()
    }

    /// Returns the time since which tasks were received or given away that the next flush would write.
    fn moved_since(&self) -> Option<u64> {
        let given = self.given.writable_since(|basis| !self.bases.is_tentative(basis));
        given.into_iter().chain(self.bases.confirmed_since()).min()
    }

    /// Starts a flush that also parks tasks and, if `leave` is set, with which the node leaves.
    pub(super) fn begin_flush(&mut self, around: &mut Surroundings, park: Vec<Envelope>, leave: bool) {
        let taken = self.bases.absorb();
        let is_firm = |basis: Basis| !self.bases.is_open(basis);
        let (give, mut beside) = self.given.select(is_firm);
        if let Some(drain) = &around.drain {
            let own = drain.pile.iter().filter(|(basis, _)| is_firm(*basis));
            beside.extend(own.map(|(_, task)| task.clone()));
        }
        let (condemned, others) = self.trials.take_condemned();
        beside.extend(others.cloned());
        self.pressed = false;
        self.flushed_at = around.now;
        self.pace.note(around.now, awaited_ms(around));
        self.is_first_flush = false;
        let draft = Draft { take: taken.transits, give, beside, park, condemned, suspect: None, leave };
        self.accounting.draft(draft, taken.owed);
        around.actions.push(Action::Cut { firm: taken.bases });
    }

    /// Stores the cut that was taken for a flush.
    pub(super) fn cut(&mut self, around: &mut Surroundings, cut: Cut) {
        self.accounting.cut(cut);
        self.send_flush(around);
    }

    /// Sends the flush with its cut, unless it must wait for another transaction.
    pub(super) fn send_flush(&mut self, around: &mut Surroundings) {
        let Some((mut draft, cut)) = self.accounting.ready() else { return };
        for gift in std::mem::take(&mut draft.give) {
            if self.given.begin(gift.grant) {
                draft.give.push(gift);
            } else {
                // The grant was refused after the cut: at the cut, its tasks were this node's.
                draft.beside.extend(gift.tasks);
            }
        }
        draft.suspect = self.trials.name(&cut, &draft.beside);
        // A flush that changes nothing is not worth a transaction.
        let idle = cut.tasks.is_empty() && draft.beside.is_empty() && !cut.unprotected;
        let nothing = idle
            && self.held_nothing
            && cut.toggles.is_empty()
            && !self.accounting.owes()
            && draft.take.is_empty()
            && draft.give.is_empty()
            && draft.park.is_empty()
            && draft.condemned.is_empty()
            && !draft.leave;
        self.held_nothing = idle;
        if nothing {
            return;
        }
        self.note_cut(cut.tasks.iter().chain(&draft.beside));
        let transaction = self.accounting.flush(draft, cut, &around.limits);
        around.actions.push(Action::Transact { attempt: self.attempt, transaction });
    }

    /// Handles a committed flush: notifies thieves that their tasks are written.
    pub(super) fn flushed(&mut self, around: &mut Surroundings, flush: &Flush) {
        let took_ms = around.now.saturating_sub(self.flushed_at);
        self.flush_after = around.now + took_ms.min(around.limits.ledger_interval_ms);
        let bytes = if flush.held.unprotected { 0 } else { self.cut_bytes };
        self.written_after = self.flushed_at + bytes / BYTES_BY_MS;
        self.note_written(flush, &around.limits);
        match self.trials.begin(&flush.held) {
            Some(Trial::Here(task)) => around.keep(Basis::FIRM, vec![*task]),
            Some(Trial::InPool(task)) => around.actions.push(Action::Try { task }),
            None => {}
        }
        let written = self.given.written(around.id, &flush.give);
        for (thief, grants) in written.confirmed {
            self.send(around, thief, Message::Confirmed { grants });
        }
        self.reclaim.extend(written.refused);
    }

    /// Returns whether the loss of this node would lose nothing.
    pub(super) fn holds_nothing(&self, around: &Surroundings) -> bool {
        let Surroundings { pool, drain, .. } = around;
        self.held_nothing
            && pool.is_idle()
            && pool.waiting == 0
            && pool.batch_ids == 0
            && drain.as_ref().is_none_or(|drain| drain.pile.is_empty())
            && !self.bases.any_open()
            && self.trials.is_empty()
            && !self.accounting.flushes()
            && !self.accounting.owes()
            && self.moved_since().is_none()
    }

    /// Claims back tasks that a thief has refused after they were written.
    pub(super) fn claim_back(&mut self) -> Option<Transaction> {
        if !self.accounting.is_free() || !self.bases.can_claim() {
            return None;
        }
        let transit = self.reclaim.pop()?;
        Some(self.accounting.claim(Source::Returned(transit), false))
    }
}

/// Returns the minimum time between two flushes that are not awaited, in milliseconds. All nodes
/// share the servers, including nodes that work on another job.
fn pause_ms(around: &Surroundings) -> u64 {
    around.limits.ledger_pause_ms.saturating_mul(around.sharers())
}

/// Returns the minimum time between two awaited flushes, in milliseconds.
fn awaited_ms(around: &Surroundings) -> u64 {
    pause_ms(around).min(around.limits.ledger_awaited_ms)
}

/// Tentative tasks.
impl Run {
    /// Asks victims whether they have written the grants that this node has taken.
    pub(super) fn ask_pending(&mut self, around: &mut Surroundings) {
        let waits = self.has_run_dry(around) || around.drain.is_some();
        let (questions, in_vain) = self.bases.questions(around.now, waits, &around.limits);
        for (victim, (grants, urgent)) in questions {
            self.send(around, victim, Message::Pending { grants, urgent });
        }
        if in_vain {
            self.look_for_orphans(around);
        }
    }

    /// Answers a thief that asks whether its tasks are written.
    pub(super) fn pending(&mut self, around: &mut Surroundings, thief: NodeId, grants: &[u64], urgent: bool) {
        let answer = self.given.answer(thief, grants);
        if !answer.confirmed.is_empty() {
            self.send(around, thief, Message::Confirmed { grants: answer.confirmed });
        }
        if !answer.void.is_empty() {
            self.send(around, thief, Message::Void { grants: answer.void });
        }
        if urgent {
            self.pressed |= !answer.unwritten.is_empty();
            for basis in answer.unwritten {
                self.bases.press(around.now, basis);
            }
        }
    }

    /// Drops everything on void bases, here and on the nodes that received a part of
    /// it.
    pub(super) fn drop_void(&mut self, around: &mut Surroundings, bases: Vec<Basis>) {
        if bases.is_empty() {
            return;
        }
        around.counts.dropped += bases.len() as u64;
        for (thief, grants) in self.given.dropped(&bases) {
            self.victim.forget(thief, &grants);
            self.send(around, thief, Message::Void { grants });
        }
        if let Some(drain) = &mut around.drain {
            drain.pile.retain(|(basis, _)| !bases.contains(basis));
        }
        around.actions.push(Action::Void { bases });
    }
}
