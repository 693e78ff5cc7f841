//! The victim's side of stealing: thieves that wait for a split, and grants that wait for their
//! acknowledgement.
//!
//! A grant is open here until the thief's answer has arrived, or the thief has left. The owner of its tasks after
//! that is decided by the [ledger](super::given).
//!
//! **A grant is sent again until it is answered**, at increasing intervals. The transport ensures that only one
//! copy is in flight at a time.

use std::collections::{BTreeMap, VecDeque};

use super::{message::Message, pool_view::PoolView};
use crate::{config::Limits, envelope::Envelope, id::NodeId};

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
    /// Its position among the grants to this thief.
    place: u64,
    request: Option<u64>,
    tasks: Vec<Envelope>,
    bytes: usize,
    again_at: u64,
    /// The interval before `again_at`, in milliseconds.
    waited_ms: u64,
}

#[derive(Debug, Default)]
struct Given {
    grants: u64,
    /// The bytes of the tasks in its open grants.
    open_bytes: usize,
}

/// The victim's side of one node.
#[derive(Debug)]
pub(super) struct Victim {
    waiting: VecDeque<Waiting>,
    open: BTreeMap<u64, OpenGrant>,
    /// The grants to each thief since it last had none open.
    given: BTreeMap<NodeId, Given>,
    next_grant: u64,
}

/// The action for waiting thieves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// No action now.
    Nothing,
    /// Take at most this number of tasks and bytes for this thief.
    Take { thief: NodeId, request: u64, tasks_max: usize, bytes_max: usize },
    /// Deny these thieves.
    Deny(Vec<Waiting>),
}

impl Given {
    const NONE: Self = Self { grants: 0, open_bytes: 0 };
}

impl Victim {
    pub(super) fn new(next_grant: u64) -> Self {
        Self { waiting: VecDeque::new(), open: BTreeMap::new(), given: BTreeMap::new(), next_grant }
    }

    /// Returns the number of the next grant; numbers are never reused on a node.
    pub(super) fn next_grant(&self) -> u64 {
        self.next_grant
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Lets a thief wait. Returns whether it may.
    #[must_use]
    pub(super) fn admit(
        &mut self,
        now: u64,
        thief: NodeId,
        request: u64,
        pool: PoolView,
        limits: &Limits,
    ) -> bool {
        // A thief has one request open; an older one of its own no longer needs an answer.
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
            let bytes_max = limits.grant_bytes_max;
            return Serving::Take { thief: first.thief, request: first.request, tasks_max, bytes_max };
        }
        let hopeless = pool.is_idle();
        let (denied, kept) = self.waiting.iter().partition::<VecDeque<_>, _>(|w| hopeless || now >= w.until);
        self.waiting = kept;
        if denied.is_empty() { Serving::Nothing } else { Serving::Deny(denied.into()) }
    }

    pub(super) fn dismiss_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting).into()
    }

    /// Removes a waiting thief that will be served now. Returns false if it no longer waits.
    #[must_use]
    pub(super) fn serve(&mut self, thief: NodeId, request: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|w| (w.thief, w.request) != (thief, request));
        self.waiting.len() < before
    }

    /// Returns whether one more grant to this thief may be opened.
    ///
    /// The thief remembers every grant since the oldest open one, up to the limit of open grants: beyond that
    /// it could not accept any, not even the oldest. No more is granted to it either while too many bytes are
    /// unacknowledged.
    pub(super) fn has_room_for(&self, thief: NodeId, limits: &Limits) -> bool {
        let oldest = self.open.values().find(|grant| grant.to == thief);
        let Given { grants, open_bytes } = self.given.get(&thief).unwrap_or(&Given::NONE);
        let remembered = oldest.map_or(0, |oldest| grants - oldest.place);
        if *open_bytes >= limits.grant_bytes_max || self.open_bytes() >= limits.open_grant_bytes_max {
            return false;
        }
        self.open.len() < limits.open_grants_max && remembered < limits.open_grants_max as u64
    }

    /// Returns the bytes of the tasks in all open grants.
    pub(super) fn open_bytes(&self) -> usize {
        self.given.values().map(|given| given.open_bytes).sum()
    }

    /// Opens a grant and returns its number and the message for it.
    pub(super) fn grant(
        &mut self,
        now: u64,
        to: NodeId,
        request: Option<u64>,
        tasks: Vec<Envelope>,
        limits: &Limits,
    ) -> (u64, Message) {
        let grant = self.next_grant;
        self.next_grant += 1;
        let given = self.given.entry(to).or_default();
        let (place, waited_ms) = (given.grants, limits.grant_retry_ms);
        let bytes = tasks.iter().map(Envelope::bytes).sum();
        given.grants += 1;
        given.open_bytes += bytes;
        let again_at = now + waited_ms;
        let open = OpenGrant { to, place, request, tasks, bytes, again_at, waited_ms };
        self.open.insert(grant, open);
        (grant, self.message(grant))
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

    /// Closes a grant that the thief has taken. Returns the answer.
    pub(super) fn acknowledged(&mut self, thief: NodeId, grant: u64) -> Message {
        self.close(thief, grant);
        Message::Settled { grant, settled_below: self.settled_below(thief) }
    }

    /// Closes a grant that the thief has refused. Returns its tasks if it was open, and the answer.
    pub(super) fn refused(&mut self, thief: NodeId, grant: u64) -> (Vec<Envelope>, Message) {
        let tasks = self.close(thief, grant);
        (tasks, Message::Settled { grant, settled_below: self.settled_below(thief) })
    }

    fn close(&mut self, thief: NodeId, grant: u64) -> Vec<Envelope> {
        match self.open.get(&grant) {
            Some(open) if open.to == thief => {
                if let Some(given) = self.given.get_mut(&thief) {
                    given.open_bytes -= open.bytes;
                }
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

    /// Handles the departure of a member: its grants are closed.
    pub(super) fn left(&mut self, node: NodeId) {
        self.waiting.retain(|waiting| waiting.thief != node);
        self.open.retain(|_, grant| grant.to != node);
        self.forget_given(node);
    }

    /// Closes grants with tasks that can no longer be given away.
    pub(super) fn forget(&mut self, thief: NodeId, grants: &[u64]) {
        for &grant in grants {
            self.close(thief, grant);
        }
    }

    /// Resets the intervals of repetition, when the node starts to leave.
    pub(super) fn hurry(&mut self, now: u64, limits: &Limits) {
        for grant in self.open.values_mut() {
            grant.waited_ms = limits.grant_retry_ms;
            grant.again_at = grant.again_at.min(now + limits.grant_retry_ms);
        }
    }

    /// Returns grants whose acknowledgement is overdue, to be sent again at intervals that double up to
    /// `wait_max_ms`.
    pub(super) fn overdue(&mut self, now: u64, wait_max_ms: u64) -> Vec<(NodeId, Message)> {
        let due = |grant: &OpenGrant| now >= grant.again_at;
        let numbers: Vec<u64> = self.open.iter().filter(|(_, g)| due(g)).map(|(&n, _)| n).collect();
        for number in &numbers {
            if let Some(grant) = self.open.get_mut(number) {
                grant.waited_ms = (2 * grant.waited_ms).min(wait_max_ms);
                grant.again_at = now + grant.waited_ms;
            }
        }
        numbers.into_iter().map(|number| (self.open[&number].to, self.message(number))).collect()
    }

    /// Returns the number of tasks and their bytes for each open grant.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (usize, usize)> {
        self.open.values().map(|grant| (grant.tasks.len(), grant.bytes))
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.iter().map(|waiting| waiting.until);
        let open = self.open.values().map(|grant| grant.again_at);
        waiting.chain(open)
    }

    /// Returns the tasks in open grants.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Envelope> {
        self.open.values().flat_map(|grant| &grant.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    const THIEF: NodeId = NodeId(7);
    const OTHER: NodeId = NodeId(8);

    fn limits() -> Limits {
        Limits { grant_bytes_max: 1_000, open_grant_bytes_max: 2_500, ..Limits::default() }
    }

    fn task(bytes: usize) -> Envelope {
        let id = TaskId { node: NodeId(1), number: 0 };
        let task = vec![0; bytes - Envelope::bytes_of(0, 0, 0)].into();
        Envelope::new(id, Vec::new().into(), task)
    }

    fn granted(victim: &mut Victim, to: NodeId, bytes: usize) -> u64 {
        victim.grant(0, to, None, vec![task(bytes)], &limits()).0
    }

    #[test]
    fn unacknowledged_grant_is_repeated_at_growing_intervals() {
        let (mut victim, limits) = (Victim::new(0), limits());
        granted(&mut victim, THIEF, 100);
        let (mut said, mut now) = (vec![0], 0);
        while said.len() < 8 {
            now = victim.deadlines().min().unwrap();
            assert!(victim.overdue(now - 1, limits.grant_retry_max_ms).is_empty());
            assert_eq!(victim.overdue(now, limits.grant_retry_max_ms).len(), 1);
            assert!(victim.overdue(now, limits.grant_retry_max_ms).is_empty(), "once at a time");
            said.push(now);
        }
        let pauses: Vec<u64> = said.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 4_000, 4_000]);
        victim.hurry(now, &limits);
        assert_eq!(victim.deadlines().min(), Some(now + 250), "who leaves does not wait");
        assert_eq!(victim.overdue(now + 250, limits.grant_retry_ms).len(), 1);
        assert_eq!(victim.deadlines().min(), Some(now + 500));
    }

    #[test]
    fn open_grants_to_a_thief_are_bounded_in_bytes() {
        let (mut victim, limits) = (Victim::new(0), limits());
        let first = granted(&mut victim, THIEF, 900);
        assert!(victim.has_room_for(THIEF, &limits));
        granted(&mut victim, THIEF, 200);
        assert!(!victim.has_room_for(THIEF, &limits), "it has enough to wait for");
        assert!(victim.has_room_for(OTHER, &limits));
        victim.acknowledged(THIEF, first);
        assert!(victim.has_room_for(THIEF, &limits));
    }

    #[test]
    fn open_grants_to_all_thieves_are_bounded_in_bytes() {
        let (mut victim, limits) = (Victim::new(0), limits());
        let first = granted(&mut victim, THIEF, 2_000);
        granted(&mut victim, OTHER, 600);
        assert!(!victim.has_room_for(NodeId(9), &limits));
        victim.refused(THIEF, first);
        assert!(victim.has_room_for(NodeId(9), &limits));
    }

    #[test]
    fn departed_thieves_are_forgotten() {
        let mut victim = Victim::new(0);
        for thief in (0..1_000).map(NodeId) {
            let taken = granted(&mut victim, thief, 100);
            victim.acknowledged(thief, taken);
            granted(&mut victim, thief, 200);
            victim.left(thief);
        }
        assert_eq!((victim.open.len(), victim.given.len(), victim.open_bytes()), (0, 0, 0));
    }
}
