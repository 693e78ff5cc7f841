//! Leaving on purpose: everything unfinished goes to the remaining members, then the node leaves cleanly (paper, 3.4).
//!
//! ```text
//!   asked ──▶ Stopping ──pool quiet──▶ Handing ──nothing held, all heard──▶ Leaving ──committed──▶ gone
//!               │                        │  nobody takes it, or the time is up: park it with the leave
//!               └────────────────────────┴── still not all heard: abandoned, a new attempt follows
//! ```
//!
//! A grant that was sent and not answered can be neither parked nor taken back: the other node may have it. So a drain that
//! is past its deadline still waits for such answers, as long again, before the node goes without leaving cleanly.

use std::collections::BTreeSet;

use rand::seq::SliceRandom;

use super::{
    action::{Action, Departure},
    message::Message,
    node::{Node, Phase},
};
use crate::{envelope::Envelope, id::NodeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Workers stop at their next `migrate()`.
    Stopping,
    /// The pool is to be unloaded.
    Unloading,
    /// Tasks are handed on.
    Handing,
    /// The leave is being committed.
    Leaving,
}

/// A node's way out.
#[derive(Debug)]
pub(super) struct Drain {
    stage: Stage,
    /// From now on tasks are parked.
    park_at: u64,
    /// From now on nothing is waited for.
    abandon_at: u64,
    /// Tasks that nobody has been offered.
    pile: Vec<Envelope>,
    /// Members that take no tasks: they are leaving too.
    refusing: BTreeSet<NodeId>,
    remind_at: u64,
}

impl Drain {
    pub(super) fn refused_by(&mut self, node: NodeId) {
        self.refusing.insert(node);
    }

    pub(super) fn joined(&mut self, node: NodeId) {
        self.refusing.remove(&node);
    }

    pub(super) fn pile(&mut self, tasks: Vec<Envelope>) {
        self.pile.extend(tasks);
    }

    /// Takes the next tasks from the pile: so many, and of so many bytes together, but one at least.
    fn next_share(&mut self, tasks_max: usize, bytes_max: usize) -> Vec<Envelope> {
        let mut bytes = 0;
        let fits = |task: &&Envelope| {
            bytes += task.bytes();
            bytes <= bytes_max
        };
        let count = self.pile.iter().take(tasks_max).take_while(fits).count();
        let rest = self.pile.split_off(count.max(1).min(self.pile.len()));
        std::mem::replace(&mut self.pile, rest)
    }

    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Envelope> {
        self.pile.iter()
    }

    #[cfg(test)]
    pub(super) fn leaves(&self) -> bool {
        self.stage == Stage::Leaving
    }

    /// The times at which something is due.
    pub(super) fn deadlines(&self) -> [u64; 3] {
        [self.remind_at, self.park_at, self.abandon_at]
    }
}

impl Node {
    /// Begins to leave; asked again, leaves at once: what nobody has yet is parked.
    pub(super) fn begin_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.park_at = self.now;
            drain.abandon_at = drain.abandon_at.min(self.now + self.limits.drain_deadline_ms);
            return;
        }
        let park_at = self.now + self.limits.drain_deadline_ms;
        self.drain = Some(Drain {
            stage: Stage::Stopping,
            park_at,
            abandon_at: park_at + self.limits.drain_deadline_ms,
            pile: Vec::new(),
            refusing: BTreeSet::new(),
            remind_at: self.now + self.limits.grant_retry_ms,
        });
        if let Phase::Active(run) = &mut self.phase {
            run.victim.hurry(self.now, &self.limits);
            let waiting = run.victim.dismiss_all();
            self.deny(waiting);
            self.actions.extend([Action::Thieves { waiting: 0 }, Action::Stop]);
        }
    }

    pub(super) fn unloaded(&mut self, tasks: Vec<Envelope>) {
        if let Some(drain) = &mut self.drain {
            drain.pile.extend(tasks);
            drain.stage = Stage::Handing;
        }
    }

    pub(super) fn step_drain(&mut self) {
        let (Phase::Active(run), Some(drain)) = (&mut self.phase, &mut self.drain) else { return };
        if let Some(transaction) = run.accounting.retry(self.now) {
            self.figures.retries += 1;
            self.actions.push(Action::Transact { attempt: run.attempt, transaction });
        }
        if self.now >= drain.abandon_at && drain.stage != Stage::Leaving {
            self.depart(Departure::Abandoned);
            return;
        }
        match drain.stage {
            Stage::Stopping if self.pool.is_quiet() => {
                drain.stage = Stage::Unloading;
                self.actions.push(Action::Unload);
            }
            Stage::Stopping | Stage::Unloading | Stage::Leaving => {}
            Stage::Handing => {
                self.hand_on();
                self.remind();
                self.remind_of_acknowledgements();
                self.leave_if_done();
            }
        }
    }

    /// Spreads the pile over the members that take tasks.
    fn hand_on(&mut self) {
        let (Phase::Active(run), Some(drain)) = (&mut self.phase, &mut self.drain) else { return };
        if self.now >= drain.park_at || drain.pile.is_empty() {
            return;
        }
        let has_room = |taker: &&NodeId| run.victim.has_room_for(**taker, &self.limits);
        let mut takers: Vec<NodeId> =
            self.members.difference(&drain.refusing).filter(has_room).copied().collect();
        if takers.is_empty() {
            return;
        }
        takers.shuffle(&mut self.random);
        let room = self.limits.open_grants_max.saturating_sub(run.victim.open());
        let share = drain.pile.len().div_ceil(takers.len()).clamp(1, self.limits.grant_tasks_max);
        let mut grants = Vec::new();
        for &to in takers.iter().cycle().take(room) {
            if drain.pile.is_empty() {
                break;
            }
            if !run.victim.has_room_for(to, &self.limits) {
                continue;
            }
            let tasks = drain.next_share(share, self.limits.grant_bytes_max);
            self.figures.handed_on += tasks.len() as u64;
            grants.push((to, run.victim.grant(self.now, to, None, tasks, &self.limits)));
        }
        for (to, grant) in grants {
            self.send(to, grant);
        }
    }

    fn remind_of_acknowledgements(&mut self) {
        let (Phase::Active(run), Some(drain)) = (&mut self.phase, &mut self.drain) else { return };
        if self.now < drain.remind_at {
            return;
        }
        drain.remind_at = self.now + self.limits.grant_retry_ms;
        let unheard: Vec<(NodeId, Message)> = run.receipts.unheard().collect();
        for (victim, ack) in unheard {
            self.send(victim, ack);
        }
    }

    /// Leaves when every task is elsewhere, or is in nobody's hands but ours and can be parked.
    fn leave_if_done(&mut self) {
        let (Phase::Active(run), Some(drain)) = (&mut self.phase, &mut self.drain) else { return };
        let nobody_takes = self.members.is_subset(&drain.refusing);
        let handed_on = drain.pile.is_empty() || nobody_takes || self.now >= drain.park_at;
        let all_heard = run.victim.open() == 0 && run.receipts.unheard().next().is_none();
        if handed_on && all_heard && run.accounting.is_free() {
            drain.stage = Stage::Leaving;
            run.accounting.collect(Some(std::mem::take(&mut drain.pile)));
            self.actions.push(Action::TakeBatch);
        }
    }
}
