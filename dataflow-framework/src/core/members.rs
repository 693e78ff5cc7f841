//! The members that run calls, and the choice of one for a call.
//!
//! A call goes where it is expected to begin first: after the calls that were assigned there before, and the transfer
//! of what it reads and is not there. Considered are those that have some of what it reads, and the one with the least
//! to do: so the choice costs little whatever their number.

use std::collections::BTreeMap;

/// A member, by a number that the graph is told. The program runs on [`Member::HERE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Member(pub(crate) u32);

impl Member {
    /// The member on which the program runs.
    pub(crate) const HERE: Self = Self(0);
}

/// The number of calls that are assigned to a member beyond one for each worker, at least.
const AHEAD_MIN: u64 = 1;

/// The maximum number of calls that are assigned to a member beyond one for each worker.
const AHEAD_MAX: u64 = 1_024;

/// The time of work that is assigned to a worker beyond the call that it runs, so that it need not wait for the next.
const AHEAD_NS: u64 = 5_000_000;

/// What a transfer between two members is expected to move in a microsecond, in bytes.
const BYTES_BY_US: u64 = 200;

/// The members that run calls.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<Member, Load>,
    /// The number of those that leave, and were not told that they may go.
    leavers: usize,
    /// The mean time of a call, of late.
    mean_ns: u64,
    has_mean: bool,
}

/// What a member has to do.
#[derive(Debug, Clone, Copy)]
struct Load {
    workers: u64,
    assigned: u64,
    /// Whether it is given no more calls, because it leaves.
    is_leaving: bool,
    /// Whether it was told that it may go.
    may_go: bool,
    /// The size of what it was given for others that leave, in bytes.
    rescued: u64,
}

impl Members {
    pub(super) fn add(&mut self, member: Member, workers: u32) {
        let load =
            Load { workers: u64::from(workers), assigned: 0, is_leaving: false, may_go: false, rescued: 0 };
        self.known.insert(member, load);
    }

    pub(super) fn remove(&mut self, member: Member) {
        self.known.remove(&member);
        self.count_leavers();
    }

    pub(super) fn leaves(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            load.is_leaving = true;
        }
        self.count_leavers();
    }

    fn count_leavers(&mut self) {
        self.leavers = self.known.values().filter(|load| load.is_leaving && !load.may_go).count();
    }

    /// Returns whether a member leaves, and was not told that it may go.
    pub(super) fn any_leaves(&self) -> bool {
        self.leavers > 0
    }

    /// Returns whether a member leaves, or is not there.
    pub(super) fn is_leaving(&self, member: Member) -> bool {
        self.known.get(&member).is_none_or(|load| load.is_leaving)
    }

    /// Returns a member that stays, to be given something of this size for one that leaves.
    pub(super) fn stays(&mut self, bytes: u64) -> Option<Member> {
        self.give(bytes, |_| true)
    }

    /// Does the same, for something that is to be with another member than the program.
    pub(super) fn other_stays(&mut self, bytes: u64) -> Option<Member> {
        self.give(bytes, |member| member != Member::HERE)
    }

    fn give(&mut self, bytes: u64, may: impl Fn(Member) -> bool) -> Option<Member> {
        let staying = self.known.iter_mut().filter(|(member, load)| !load.is_leaving && may(**member));
        let (member, load) = staying.min_by_key(|(_, load)| load.rescued)?;
        load.rescued += bytes;
        Some(*member)
    }

    /// Returns the members that leave and may go now: all that have no calls if everything `is_copied` that others
    /// need, or all if nobody else is there. Each is returned once.
    pub(super) fn let_go(&mut self, is_copied: bool) -> Vec<Member> {
        let anybody_stays = self.known.values().any(|load| !load.is_leaving);
        let mut gone = Vec::new();
        for (member, load) in &mut self.known {
            let has_nothing = is_copied && load.assigned == 0;
            if load.is_leaving && !load.may_go && (has_nothing || !anybody_stays) {
                load.may_go = true;
                gone.push(*member);
            }
        }
        self.count_leavers();
        gone
    }

    pub(super) fn has(&self, member: Member) -> bool {
        self.known.contains_key(&member)
    }

    /// Tells that a call was assigned to a member.
    pub(super) fn assigned(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            load.assigned += 1;
        }
    }

    /// Tells that a member has one call less.
    pub(super) fn ended(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            load.assigned -= 1;
        }
    }

    /// Tells how long a call has taken.
    pub(super) fn took(&mut self, ns: u64) {
        // An eighth of each call: the mean of the last ones.
        self.mean_ns = if self.has_mean { self.mean_ns - self.mean_ns / 8 + ns / 8 } else { ns };
        self.has_mean = true;
    }

    /// Returns whether any member takes another call.
    pub(super) fn have_room(&self) -> bool {
        self.known.values().any(|load| self.has_room(load))
    }

    /// Returns the member for a call, of which some members have these numbers of bytes; `None` if all have enough to
    /// do. `bytes` is the size of everything that it reads.
    pub(super) fn choose(&self, bytes: u64, with: &[(Member, u64)]) -> Option<Member> {
        let least = self.known.iter().filter(|(_, load)| self.has_room(load));
        // Of equal ones the first, which is where the program runs.
        let least = least.min_by_key(|(_, load)| self.queue_ns(load)).map(|(member, _)| (*member, 0));
        let holders = with
            .iter()
            .copied()
            .filter(|(member, _)| self.known.get(member).is_some_and(|load| self.has_room(load)));
        let begin_ns = |(member, here): &(Member, u64)| {
            let held = with.iter().find(|(other, _)| other == member).map_or(*here, |(_, held)| *held);
            self.queue_ns(&self.known[member]) + bytes.saturating_sub(held) * 1_000 / BYTES_BY_US
        };
        holders.chain(least).min_by_key(begin_ns).map(|(member, _)| member)
    }

    fn has_room(&self, load: &Load) -> bool {
        let ahead = AHEAD_NS.checked_div(self.mean_ns).unwrap_or(AHEAD_MAX) * load.workers;
        let ahead = if self.has_mean { ahead } else { load.workers };
        !load.is_leaving
            && load.workers > 0
            && load.assigned < load.workers + ahead.clamp(AHEAD_MIN, AHEAD_MAX)
    }

    /// Returns how long a call waits for a worker.
    fn queue_ns(&self, load: &Load) -> u64 {
        let before = (load.assigned + 1).saturating_sub(load.workers);
        // A call counts even if none has ended yet, so that the first ones go to all members.
        before * self.mean_ns.max(1_000) / load.workers.max(1) + load.assigned * 10 / load.workers.max(1)
    }
}
