//! The serving side of stealing: thieves that wait for a split, and grants that wait for their acknowledgement.
//!
//! **A task belongs to exactly one node at any time.** It leaves the victim's pool into an open grant; from there it goes
//! only when the thief has acknowledged it, or back, when the thief has refused it or has left cleanly without having
//! taken it (a node does not leave cleanly before its acknowledgements were heard).

use std::collections::{BTreeMap, VecDeque};

use super::message::Message;
use crate::{config::Limits, envelope::Envelope, id::NodeId, pool::PoolView};

/// A thief that waits for a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) thief: NodeId,
    pub(super) request: u64,
    until: u64,
}

#[derive(Debug)]
struct OpenGrant {
    to: NodeId,
    /// Its place among the grants to this thief.
    place: u64,
    request: Option<u64>,
    tasks: Vec<Envelope>,
    again_at: u64,
    /// The thief is gone, and not cleanly: nothing to say to it; a new attempt will sweep the grant away.
    lost: bool,
}

/// The serving side of one node.
#[derive(Debug)]
pub(super) struct Victim {
    waiting: VecDeque<Waiting>,
    open: BTreeMap<u64, OpenGrant>,
    /// How many grants each thief was given since it last had none open.
    given: BTreeMap<NodeId, u64>,
    next_grant: u64,
}

/// What to do for the thieves that wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// Nothing now.
    Nothing,
    /// Take up to so many tasks for this one.
    Take { thief: NodeId, request: u64, tasks_max: usize },
    /// Deny these.
    Deny(Vec<Waiting>),
}

impl Victim {
    pub(super) fn new(next_grant: u64) -> Self {
        Self { waiting: VecDeque::new(), open: BTreeMap::new(), given: BTreeMap::new(), next_grant }
    }

    /// The number the next grant will have; numbers are never used twice on a node.
    pub(super) fn next_grant(&self) -> u64 {
        self.next_grant
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Lets a thief wait. Says whether it may.
    #[must_use]
    pub(super) fn admit(
        &mut self,
        now: u64,
        thief: NodeId,
        request: u64,
        pool: PoolView,
        limits: &Limits,
    ) -> bool {
        // A thief has one request open; an older one of its own is not worth an answer any more.
        self.waiting.retain(|waiting| waiting.thief != thief);
        let room = self.waiting.len() < limits.waiting_thieves_max && self.has_room_for(thief, limits);
        let admitted = room && !pool.is_idle();
        if admitted {
            self.waiting.push_back(Waiting { thief, request, until: now + limits.serve_wait_ms });
        }
        admitted
    }

    pub(super) fn step(&mut self, now: u64, pool: PoolView, limits: &Limits) -> Serving {
        if self.waiting.is_empty() {
            return Serving::Nothing;
        }
        let spare = pool.spare();
        let can_take = |waiting: &&Waiting| self.has_room_for(waiting.thief, limits);
        if spare > 0
            && let Some(first) = self.waiting.iter().find(can_take)
        {
            let share = spare.div_ceil(self.waiting.len());
            let tasks_max = share.min(limits.grant_tasks_max);
            return Serving::Take { thief: first.thief, request: first.request, tasks_max };
        }
        let hopeless = pool.is_idle();
        let (denied, kept) = self.waiting.iter().partition::<VecDeque<_>, _>(|w| hopeless || now >= w.until);
        self.waiting = kept;
        if denied.is_empty() { Serving::Nothing } else { Serving::Deny(denied.into()) }
    }

    /// Nobody is served any more.
    pub(super) fn dismiss_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting).into()
    }

    /// A thief that waited is to be served now. False if it waits no longer.
    #[must_use]
    pub(super) fn serve(&mut self, thief: NodeId, request: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|w| (w.thief, w.request) != (thief, request));
        self.waiting.len() < before
    }

    /// Whether one more grant to this thief may be opened.
    ///
    /// It remembers every grant since the oldest that is open, and as many as may be open at all: beyond that it could take none
    /// any more, not even the oldest.
    pub(super) fn has_room_for(&self, thief: NodeId, limits: &Limits) -> bool {
        let oldest = self.open.values().find(|grant| grant.to == thief);
        let given = self.given.get(&thief).copied().unwrap_or(0);
        let remembered = oldest.map_or(0, |oldest| given - oldest.place);
        self.open.len() < limits.open_grants_max && remembered < limits.open_grants_max as u64
    }

    /// Opens a grant and says what to send.
    pub(super) fn grant(
        &mut self,
        now: u64,
        to: NodeId,
        request: Option<u64>,
        tasks: Vec<Envelope>,
        limits: &Limits,
    ) -> Message {
        let grant = self.next_grant;
        self.next_grant += 1;
        let given = self.given.entry(to).or_default();
        let (place, again_at) = (*given, now + limits.grant_retry_ms);
        *given += 1;
        let open = OpenGrant { to, place, request, tasks, again_at, lost: false };
        self.open.insert(grant, open);
        self.message(grant)
    }

    fn message(&self, grant: u64) -> Message {
        let open = &self.open[&grant];
        let settled_below = self.settled_below(open.to);
        Message::Grant { grant, request: open.request, settled_below, tasks: open.tasks.clone() }
    }

    fn settled_below(&self, thief: NodeId) -> u64 {
        let oldest = self.open.iter().find(|(_, grant)| grant.to == thief);
        oldest.map_or(self.next_grant, |(&number, _)| number)
    }

    /// The thief has taken the tasks of a grant: they are forgotten here. Says what to answer.
    pub(super) fn acknowledged(&mut self, thief: NodeId, grant: u64) -> Message {
        self.close(thief, grant);
        Message::Settled { grant, settled_below: self.settled_below(thief) }
    }

    /// The thief will never take the tasks of a grant: they are ours again. Says what to answer.
    pub(super) fn refused(&mut self, thief: NodeId, grant: u64) -> (Vec<Envelope>, Message) {
        let tasks = self.close(thief, grant);
        (tasks, Message::Settled { grant, settled_below: self.settled_below(thief) })
    }

    fn close(&mut self, thief: NodeId, grant: u64) -> Vec<Envelope> {
        match self.open.get(&grant) {
            Some(open) if open.to == thief => {
                let tasks = self.open.remove(&grant).map(|open| open.tasks).unwrap_or_default();
                self.forget_given(thief);
                tasks
            }
            _ => Vec::new(),
        }
    }

    fn forget_given(&mut self, thief: NodeId) {
        if self.open.values().all(|grant| grant.to != thief) {
            self.given.remove(&thief);
        }
    }

    /// A member is gone. If it left cleanly, what it had not taken is ours again.
    pub(super) fn left(&mut self, node: NodeId, clean: bool) -> Vec<Envelope> {
        self.waiting.retain(|waiting| waiting.thief != node);
        let mut returned = Vec::new();
        self.open.retain(|_, grant| {
            if grant.to == node && clean {
                returned.append(&mut grant.tasks);
            }
            grant.lost |= grant.to == node;
            grant.to != node || !clean
        });
        self.forget_given(node);
        returned
    }

    /// Grants whose acknowledgement is overdue, to be sent again.
    pub(super) fn overdue(&mut self, now: u64, limits: &Limits) -> Vec<(NodeId, Message)> {
        let due = |grant: &OpenGrant| now >= grant.again_at && !grant.lost;
        let numbers: Vec<u64> = self.open.iter().filter(|(_, g)| due(g)).map(|(&n, _)| n).collect();
        for number in &numbers {
            if let Some(grant) = self.open.get_mut(number) {
                grant.again_at = now + limits.grant_retry_ms;
            }
        }
        numbers.into_iter().map(|number| (self.open[&number].to, self.message(number))).collect()
    }

    /// A node that was thought lost is there after all: its grants are repeated again.
    pub(super) fn joined(&mut self, node: NodeId) {
        for grant in self.open.values_mut().filter(|grant| grant.to == node) {
            grant.lost = false;
        }
    }

    /// The times at which something is due.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.iter().map(|waiting| waiting.until);
        let open = self.open.values().filter(|grant| !grant.lost).map(|grant| grant.again_at);
        waiting.chain(open)
    }

    /// The tasks in open grants.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Envelope> {
        self.open.values().flat_map(|grant| &grant.tasks)
    }
}
