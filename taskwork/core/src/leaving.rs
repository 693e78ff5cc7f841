//! Leaving cleanly: all unfinished tasks go to the remaining members, then the node leaves (paper,
//! 3.4).
//!
//! ```text
//!   asked ──▶ hands over ──pool quiet, nothing held, all answered──▶ leaves ──committed──▶ gone
//!                │  no node accepts it, or two thirds of the time have passed: park it with the leave
//!                └───────────────────────────┴── time is up: abandoned, others continue from its last written state
//! ```
//!
//! Workers stop at their next `migrate()`, at different times; queued tasks are handed over during that time.
//!
//! The node leaves only when nothing here is tentative, and no ids are owed: a victim that does not write
//! its grants, because a task there does not poll, delays the leave of its thief.
//!
//! A grant that was sent and not answered can be neither parked nor taken back: the other node may have it.
//! So the last third of the time is for such answers, for tasks that are slow to stop, and for the commit.
//! The deadline holds independently of the program, the other nodes and ZooKeeper, because the sender of a signal
//! usually kills the process soon afterwards. In other cases (an operator's request through a znode, or a suspended
//! job) there is no deadline, so that no work is repeated.

use std::collections::BTreeSet;

use rand::seq::SliceRandom;

use super::{
    action::{Action, Departure},
    drain::{Drain, DrainKind},
    node::{Node, Phase},
    run::{Enrolment, Run},
    surroundings::Surroundings,
};
use crate::{envelope::Envelope, holdings::Basis, id::NodeId};

impl Node {
    /// Starts to leave; on a further request, leaves as soon as possible and parks all tasks still here.
    pub(super) fn begin_drain(&mut self, kind: DrainKind) {
        let Surroundings { now, drain, limits, .. } = &mut self.around;
        let now = *now;
        if let Some(drain) = drain {
            return drain.hurry(now, kind);
        }
        *drain = Some(Drain::begin(now, kind, limits));
        if let Phase::Active(run) = &mut self.phase {
            run.held_back_until = now;
            run.victim.hurry(now, &self.around.limits);
            let waiting = run.victim.dismiss_all();
            run.deny(&mut self.around, waiting);
            self.around.actions.extend([Action::Thieves { waiting: 0 }, Action::Stop]);
        }
    }

    pub(super) fn unloaded(&mut self, tasks: Vec<(Basis, Envelope)>) {
        if let Some(drain) = &mut self.around.drain {
            drain.pile.extend(tasks);
        }
    }

    /// Performs the due steps of leaving, during the work on an attempt or the enrolment. The deadline holds
    /// even while the leave is being committed: if the commit still succeeds, nothing is lost.
    pub(super) fn step_drain(&mut self) {
        let (Phase::Active(run), Some(drain)) = (&mut self.phase, &self.around.drain) else { return };
        if drain.abandon_at.is_some_and(|at| self.around.now >= at) {
            self.depart(Departure::Abandoned);
            return;
        }
        run.retry(&mut self.around);
        if let Some(transaction) = run.claim_back() {
            self.around.actions.push(Action::Transact { attempt: run.attempt, transaction });
        }
        // It never took part: it holds nothing, and its departure need not be recorded.
        if run.enrolment == Enrolment::Open && run.accounting.can_flush() {
            self.depart(Departure::Clean);
            return;
        }
        run.step_drain(&mut self.around);
    }
}

/// Returns the members that may accept tasks. A member without any message about this attempt may not work on
/// this job.
fn takers<'a>(
    members: &'a BTreeSet<NodeId>,
    heard_of: &'a BTreeSet<NodeId>,
    drain: &'a Drain,
) -> impl Iterator<Item = &'a NodeId> {
    members.intersection(heard_of).filter(|node| !drain.refusing.contains(node))
}

impl Run {
    fn step_drain(&mut self, around: &mut Surroundings) {
        // It may already be enrolled: then it must leave cleanly.
        if self.enrolment == Enrolment::Asked {
            self.refuse_held_back(around);
            return;
        }
        if let Some(drain) = &mut around.drain {
            drain.pile.extend(self.trials.give_up().map(|task| (Basis::FIRM, task)));
        }
        if around.pool.stopped && around.pool.queued + around.pool.waiting > 0 {
            // The step is repeated after the answer with the queued and waiting tasks.
            around.actions.push(Action::Unload);
            return;
        }
        self.hand_on(around);
        self.remind(around);
        self.ask_pending(around);
        self.remind_of_acknowledgements(around);
        self.leave_if_done(around);
        self.flush_if_due(around);
    }

    /// Distributes the pile over the members that accept tasks.
    fn hand_on(&mut self, around: &mut Surroundings) {
        let Surroundings { now, limits, members, random, .. } = around;
        let Some(drain) = &mut around.drain else { return };
        if *now >= drain.park_at || drain.pile.is_empty() {
            return;
        }
        let has_room = |taker: &&NodeId| self.victim.has_room_for(**taker, limits);
        let takers = takers(members, &self.heard_of, drain);
        let mut takers: Vec<NodeId> = takers.filter(has_room).copied().collect();
        if takers.is_empty() {
            return;
        }
        takers.shuffle(random);
        let room = limits.open_grants_max.saturating_sub(self.victim.open());
        let share = drain.pile.len().div_ceil(takers.len()).clamp(1, limits.grant_tasks_max);
        for &to in takers.iter().cycle().take(room) {
            let Some(drain) = &mut around.drain else { return };
            if drain.pile.is_empty() {
                break;
            }
            if !self.victim.has_room_for(to, &around.limits) {
                continue;
            }
            let (basis, tasks) = drain.next_share(share, around.limits.grant_bytes_max);
            around.counts.handed_on += tasks.len() as u64;
            self.grant(around, to, None, basis, tasks);
        }
    }

    fn remind_of_acknowledgements(&mut self, around: &mut Surroundings) {
        let Some(drain) = &mut around.drain else { return };
        if around.now < drain.remind_at {
            return;
        }
        drain.remind_at = around.now + around.limits.grant_retry_ms;
        for (victim, ack) in self.receipts.unheard() {
            self.send(around, victim, ack);
        }
    }

    /// Leaves when every task is elsewhere, or can be parked because only this node holds it. If there are too many for
    /// one transaction, parts are committed and parked first.
    fn leave_if_done(&mut self, around: &mut Surroundings) {
        let Surroundings { now, pool, limits, members, .. } = around;
        let Some(drain) = &mut around.drain else { return };
        let nobody_takes = takers(members, &self.heard_of, drain).next().is_none();
        let handed_on = drain.pile.is_empty() || nobody_takes || *now >= drain.park_at;
        if !handed_on || !self.accounting.can_flush() {
            return;
        }
        let all_heard = self.victim.open() == 0 && self.receipts.unheard().next().is_none();
        let all_own = !self.bases.any_open() && self.reclaim.is_empty() && !self.accounting.owes();
        let fits = drain.pile.len() <= limits.park_tasks_max && pool.batch_ids <= limits.batch_ids_max;
        let done = fits && all_heard && all_own && pool.is_quiet();
        if fits && !done {
            return;
        }
        let park = drain.take(limits.park_tasks_max, |basis| !self.bases.is_open(basis));
        if done || !park.is_empty() {
            self.begin_flush(around, park, done);
        }
    }
}
