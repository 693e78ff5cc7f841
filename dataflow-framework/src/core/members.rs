//! The members that run calls, and the choice of one for a call.
//!
//! A call is assigned to the member where it is expected to start first: after the calls assigned there before,
//! and the transfer of its missing inputs. For a plain call, only the members that have some of its inputs, and the
//! member with the least work, are considered, so the cost does not depend on the number of members. For a call
//! with requirements and for a spread call (`place`), all members are considered.

mod leaving;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    demand::{Capacity, Demand, LaneKind},
    durations::{Durations, TaskKey},
};
use crate::task::TaskDef;

/// A member, by a number that the graph receives. The program runs on [`Member::HERE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Member(pub(crate) u32);

impl Member {
    /// The member on which the program runs.
    pub(crate) const HERE: Self = Self(0);
}

/// The minimum number of calls that are assigned to a member beyond one for each worker.
const AHEAD_MIN: u64 = 1;

/// The maximum number of calls that are assigned to a member beyond one for each worker.
const AHEAD_MAX: u64 = 1_024;

/// The duration of work that is assigned to a worker beyond its running call, so that it need not wait for the
/// next one.
const AHEAD_NS: u64 = 5_000_000;

/// The expected duration of a call whose task has no completed call: at first one is assigned ahead for each
/// worker.
const UNKNOWN_NS: u64 = AHEAD_NS;

/// The expected minimum duration of a transfer between two members.
const LATENCY_NS: u64 = 300_000;

/// The expected throughput of a transfer between two members, in bytes per microsecond.
const BYTES_BY_US: u64 = 200;

/// The members that run calls.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<Member, Load>,
    /// The members that accept another call, by their amount of work.
    open: BTreeSet<(u64, Member)>,
    durations: Durations,
    /// The mean times of tasks from which the amounts of work were computed.
    noted_ns: BTreeMap<TaskKey, u64>,
    /// The number of leaving members that were not allowed to go yet.
    leavers: usize,
}

/// The share of a member that a call takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    demand: Demand,
    /// The task of the call, which determines its expected duration; `None` if the call is unknown.
    task: Option<TaskKey>,
}

impl Claim {
    /// The claim of an unknown call.
    pub(super) const UNKNOWN: Self = Self { demand: Demand::NONE, task: None };

    pub(super) fn of(demand: Demand, task: &'static TaskDef) -> Self {
        Self { demand, task: Some(TaskKey::of(task)) }
    }
}

/// The numbers of members and workers that can run calls, without leaving members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Crew {
    pub(super) members: u64,
    pub(super) workers: u64,
    /// The number of members that accept another call.
    pub(super) with_room: u64,
}

/// The work of a member.
#[derive(Debug, Default)]
struct Load {
    workers: u64,
    capacity: Capacity,
    assigned: u64,
    /// The workers used by the assigned calls.
    cores: u64,
    /// The memory used by the assigned calls, in bytes.
    memory: u64,
    /// The tasks of the assigned calls, which are few, each with the number of its calls.
    tasks: Vec<(Option<TaskKey>, u64)>,
    /// The expected total duration of the assigned calls, and that of the longest one.
    expected_ns: u64,
    longest_ns: u64,
    /// The number of assigned calls that take several workers.
    wide: u64,
    /// The number of spread calls that it has received.
    spread: u64,
    /// The demand of the calls for which it is kept free.
    reserved: Option<Demand>,
    /// The number of calls that wait for others and have lent their workers; they are not in `assigned`.
    lent: u64,
    /// Whether it receives no more calls, because it leaves.
    is_leaving: bool,
    may_go: bool,
    /// The size of the data that it has received from leaving members, in bytes.
    rescued: u64,
    /// Its amount of work, as recorded in [`Members::open`], if it accepts another call.
    rank: Option<u64>,
}

impl Members {
    pub(super) fn add(&mut self, member: Member, capacity: Capacity) {
        self.remove(member);
        let load = Load {
            workers: u64::from(capacity.workers),
            capacity,
            // From now on it receives as many as the member with the fewest.
            spread: self.known.values().map(|load| load.spread).min().unwrap_or(0),
            ..Load::default()
        };
        self.known.insert(member, load);
        self.note(member);
    }

    pub(super) fn remove(&mut self, member: Member) {
        if let Some(rank) = self.known.remove(&member).and_then(|load| load.rank) {
            self.open.remove(&(rank, member));
        }
        self.count_leavers();
    }

    pub(super) fn leave(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            (load.is_leaving, load.may_go) = (true, false);
        }
        self.note(member);
        self.count_leavers();
    }

    /// Updates the recorded amount of work of a member.
    fn note(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            load.estimate(&self.durations);
        }
        let Some(load) = self.known.get(&member) else { return };
        let rank = load.has_room().then(|| load.queue_ps());
        let before = load.rank;
        if rank == before {
            return;
        }
        if let Some(before) = before {
            self.open.remove(&(before, member));
        }
        self.open.extend(rank.map(|rank| (rank, member)));
        if let Some(load) = self.known.get_mut(&member) {
            load.rank = rank;
        }
    }

    /// Returns the members that run calls and are not leaving, except for the shunned ones.
    fn others_than(&self, shunned: &[Member]) -> impl Iterator<Item = (&Member, &Load)> {
        let runs = |load: &Load| !load.is_leaving && load.workers > 0;
        self.known.iter().filter(move |(member, load)| runs(load) && !shunned.contains(member))
    }

    /// Returns whether any member that is not shunned can run calls with these requirements.
    pub(super) fn any_other_than(&self, shunned: &[Member], demand: Demand) -> bool {
        self.others_than(shunned).any(|(_, load)| load.capacity.can_take(demand))
    }

    /// Records that the store of a member is too small for inputs of this size.
    pub(super) fn on_store_exceeded(&mut self, member: Member, bytes: u64) {
        let Some(Load { capacity, .. }) = self.known.get_mut(&member) else { return };
        capacity.store_exceeded = match capacity.store_exceeded {
            0 => bytes,
            before => before.min(bytes),
        };
    }

    /// Returns the member with the least work that accepts plain calls, except for the shunned ones.
    pub(super) fn other_than(&self, shunned: &[Member]) -> Option<Member> {
        // Members that are kept free for calls with requirements must not receive others.
        let others = self.others_than(shunned).filter(|(_, load)| !load.is_kept_free() && load.wide == 0);
        others.min_by_key(|(_, load)| load.queue_ns()).map(|(member, _)| *member)
    }

    pub(super) fn has(&self, member: Member) -> bool {
        self.known.contains_key(&member)
    }

    /// Changes the work of a member, if it is known.
    fn change(&mut self, member: Member, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.known.get_mut(&member) {
            change(load);
        }
        self.note(member);
    }

    pub(super) fn on_assigned(&mut self, member: Member, claim: Claim, is_spread: bool) {
        self.change(member, |load| {
            load.occupy(claim);
            load.spread += u64::from(is_spread);
        });
    }

    pub(super) fn ended(&mut self, member: Member, claim: Claim) {
        self.change(member, |load| load.release(claim));
    }

    /// Records that an assigned call waits for others, and releases its workers and memory to them.
    pub(super) fn lend(&mut self, member: Member, claim: Claim) {
        self.change(member, |load| {
            load.release(claim);
            load.lent += 1;
        });
    }

    /// Records that a call that waited for others continues, and takes its workers and memory back.
    pub(super) fn take_back(&mut self, member: Member, claim: Claim) {
        self.change(member, |load| {
            load.occupy(claim);
            load.lent -= 1;
        });
    }

    pub(super) fn took(&mut self, task: &'static TaskDef, ns: u64) {
        let is_first = self.durations.took(task, ns);
        let key = TaskKey::of(task);
        let mean_ns = self.durations.of(key).unwrap_or(ns);
        let noted_ns = self.noted_ns.entry(key).or_insert(mean_ns);
        // Only for significant changes, since it visits all members.
        if is_first || mean_ns.abs_diff(*noted_ns) > *noted_ns / 4 {
            *noted_ns = mean_ns;
            let members: Vec<_> = self.known.keys().copied().collect();
            for member in members {
                self.note(member);
            }
        }
    }

    pub(super) fn crew(&self) -> Crew {
        let mut crew = Crew::default();
        for load in self.known.values().filter(|load| !load.is_leaving && load.workers > 0) {
            crew.members += 1;
            crew.workers += load.workers;
            crew.with_room += u64::from(load.has_room());
        }
        crew
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn are_several(&self) -> bool {
        self.known.len() > 1
    }

    /// Returns the member with the least work that accepts another call. Of equal members it is the one with the
    /// lowest number: that of the program, if it is among them.
    pub(super) fn next(&self) -> Option<Member> {
        self.open.first().map(|(_, member)| *member)
    }

    /// Returns the member for a plain call. `bytes` is the total size of its inputs, `with` lists the members that
    /// have some of them and how many bytes each has, and `least` is the member with the least work.
    pub(super) fn choose(&self, bytes: u64, with: &[(Member, u64)], least: Member) -> Member {
        let has_room =
            |member: &&(Member, u64)| self.known.get(&member.0).is_some_and(|load| load.rank.is_some());
        let holders = with.iter().filter(has_room).copied();
        let all = holders.map(|(member, _)| member).chain([least]);
        all.min_by_key(|member| self.begin_ns(*member, bytes, with)).unwrap_or(least)
    }

    /// Returns the member for a short call: the one with most of its inputs, even if it accepts no other calls.
    pub(super) fn choose_for_short(&self, with: &[(Member, u64)], least: Member) -> Member {
        let takes = |member: &Member| {
            self.known.get(member).is_some_and(|load| {
                let shares = !load.is_leaving && load.workers > 0 && !load.is_kept_free() && load.wide == 0;
                shares && load.assigned < load.workers + AHEAD_MAX
            })
        };
        let holders = with.iter().filter(|(member, _)| takes(member));
        holders.max_by_key(|(_, held)| *held).map_or(least, |(member, _)| *member)
    }

    /// Returns the expected time until a call could start on a member.
    fn begin_ns(&self, member: Member, bytes: u64, with: &[(Member, u64)]) -> u64 {
        let held = with.iter().find(|(other, _)| *other == member).map_or(0, |(_, held)| *held);
        let missing = bytes.saturating_sub(held);
        let transfer_ns = if missing > 0 { LATENCY_NS + missing * 1_000 / BYTES_BY_US } else { 0 };
        self.known[&member].queue_ns() + transfer_ns
    }

    /// Returns the member for a call of a lane. Of the members that can start it now and are not shunned, it is the
    /// one where the call is expected to begin first; for a spread call, the one that has received the fewest
    /// spread calls.
    pub(super) fn place(
        &self,
        (demand, is_spread): LaneKind,
        bytes: u64,
        with: &[(Member, u64)],
        shunned: &[Member],
    ) -> Option<Member> {
        let fitting = self.others_than(shunned).filter(|(_, load)| load.takes_now(demand));
        let cost = |member: Member, load: &Load| {
            if is_spread { load.spread } else { self.begin_ns(member, bytes, with) }
        };
        fitting.min_by_key(|(member, load)| cost(**member, load)).map(|(member, _)| *member)
    }

    /// Keeps the member with the fewest busy workers free for a call, of the members that can run it and are not
    /// shunned.
    pub(super) fn reserve(&mut self, demand: Demand, shunned: &[Member]) {
        if self.is_reserved(demand, shunned) {
            return;
        }
        let able = self.known.iter_mut().filter(|(member, load)| {
            !load.is_leaving
                && load.reserved.is_none()
                && load.capacity.can_take(demand)
                && !shunned.contains(member)
        });
        let Some((member, load)) = able.min_by_key(|(_, load)| load.cores) else { return };
        load.reserved = Some(demand);
        let member = *member;
        self.note(member);
    }

    /// Returns whether a member, except for the shunned ones, is kept free for calls of this kind.
    pub(super) fn is_reserved(&self, demand: Demand, shunned: &[Member]) -> bool {
        let kept = self.known.iter().filter(|(_, load)| !load.is_leaving && load.reserved == Some(demand));
        kept.into_iter().any(|(member, _)| !shunned.contains(member))
    }

    pub(super) fn unreserve(&mut self, demand: Demand) {
        let kept = self.known.iter_mut().filter(|(_, load)| load.reserved == Some(demand));
        let kept: Vec<_> = kept.map(|(member, load)| (load.reserved.take(), *member)).collect();
        for (_, member) in kept {
            self.note(member);
        }
    }
}

impl Load {
    /// Returns whether the member can start a call with these requirements now.
    fn takes_now(&self, demand: Demand) -> bool {
        let is_for_it = self.reserved.is_none_or(|reserved| reserved == demand);
        let has_room = if demand.cores > 1 || self.wide > 0 || self.is_kept_free() {
            !self.is_leaving && self.cores + u64::from(demand.cores) <= self.workers
        } else {
            self.has_room()
        };
        is_for_it
            && has_room
            && self.capacity.can_take(demand)
            && self.capacity.has_memory(self.memory + demand.memory)
    }

    /// Returns whether the member accepts another call without requirements.
    fn has_room(&self) -> bool {
        if self.is_leaving || self.workers == 0 || self.is_kept_free() {
            return false;
        }
        // A call that takes several workers must not share them with calls assigned then.
        if self.wide > 0 {
            return self.cores < self.workers;
        }
        // The expected total duration is limited, so a member accepts few long calls and many short ones. It is
        // computed from the tasks of the calls: recent short calls must not admit hundreds of long ones.
        let ahead = self.assigned.saturating_sub(self.workers);
        ahead < AHEAD_MIN
            || (ahead < AHEAD_MAX && self.expected_ns < self.workers * (AHEAD_NS + self.longest_ns))
    }

    fn occupy(&mut self, Claim { demand, task }: Claim) {
        self.assigned += 1;
        self.cores += u64::from(demand.cores);
        self.memory += demand.memory;
        self.wide += u64::from(demand.cores > 1);
        match self.tasks.iter_mut().find(|(known, _)| *known == task) {
            Some((_, calls)) => *calls += 1,
            None => self.tasks.push((task, 1)),
        }
    }

    fn release(&mut self, Claim { demand, task }: Claim) {
        self.assigned -= 1;
        self.cores -= u64::from(demand.cores);
        self.memory -= demand.memory;
        self.wide -= u64::from(demand.cores > 1);
        let index = self.tasks.iter().position(|(known, _)| *known == task).expect("it was assigned");
        let (_, calls) = &mut self.tasks[index];
        *calls -= 1;
        if *calls == 0 {
            self.tasks.swap_remove(index);
        }
    }

    fn estimate(&mut self, durations: &Durations) {
        (self.expected_ns, self.longest_ns) = (0, 0);
        for (task, calls) in &self.tasks {
            let ns = task.and_then(|task| durations.of(task)).unwrap_or(UNKNOWN_NS);
            self.expected_ns = self.expected_ns.saturating_add(calls.saturating_mul(ns));
            self.longest_ns = self.longest_ns.max(ns);
        }
    }

    /// Returns whether its workers are kept free, and not only its memory.
    fn is_kept_free(&self) -> bool {
        self.reserved.is_some_and(|demand| demand.cores > 1)
    }

    /// Returns the number of calls that must complete before another one starts.
    fn before(&self) -> u64 {
        (self.cores + 1).saturating_sub(self.workers)
    }

    /// Returns the expected time that a call waits for a worker.
    fn queue_ns(&self) -> u64 {
        self.queue_ps() / 1_000
    }

    /// Returns the expected wait in picoseconds: the calls that must complete first, at their mean duration, plus
    /// 10 ns for each assigned call, divided by the number of workers.
    fn queue_ps(&self) -> u64 {
        let mean_ns = self.expected_ns.checked_div(self.assigned).unwrap_or(0).max(1_000);
        // Each assigned call adds 10 ns, so that the first calls are distributed over all members.
        let waits_ps = self.before().saturating_mul(mean_ns).saturating_mul(1_000);
        waits_ps.saturating_add(self.assigned * 10_000) / self.workers.max(1)
    }
}
