//! The members that run calls, and the choice of one for a call.
//!
//! A call is assigned to the member where it is expected to start first: after the calls assigned there before,
//! and the transfer of its missing inputs. Only the members that have some of its inputs, and the member with the
//! least work, are considered, so the cost does not depend on the number of members.
//!
//! A member runs as many calls at a time as it has workers, so its memory has to suffice for the assigned calls
//! with the largest demands of that number, and calls can be assigned ahead. A call that takes several workers, or has
//! limits, is never assigned ahead: it is assigned only when enough workers are free, so that it starts immediately. A
//! member that always receives other calls would never have enough free workers or memory, so one is *reserved* for the
//! demand: the one with the fewest used workers. Until the call is assigned, it receives no other calls, or no
//! others that demand memory if only memory is missing.
//!
//! A call that is a future takes no worker, and starts as soon as it is assigned. So it is assigned to the member with the
//! least work, or with its data, as long as that has fewer than [`FUTURES_MAX`] of them.

mod claims;
mod leaving;
mod limits;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    demand::{Capacity, Class, Demand},
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

/// The maximum number of futures that a member runs at a time.
pub(crate) const FUTURES_MAX: u64 = 1_024;

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
    /// For each demand of waiting calls, the members that accept another such call, by their amount of work.
    open: BTreeMap<Demand, BTreeSet<(u64, Member)>>,
    pub(super) durations: Durations,
    /// The number of leaving members that were not allowed to go yet.
    leavers: usize,
    /// Whether some members have not reported the calls that they run since an earlier run of the program.
    are_untold: bool,
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

/// The numbers of members and workers that can run calls, without leaving and cordoned members.
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
    /// The number of assigned calls that are futures; they are not in `assigned`.
    futures: u64,
    /// Their total demand of memory, in bytes.
    futures_memory: u64,
    /// The workers used by the assigned calls.
    cores: u64,
    /// The numbers of assigned calls by their demands of memory, in bytes.
    memory: BTreeMap<u64, u64>,
    /// The tasks of the assigned calls, which are few, each with the number of its calls.
    tasks: Vec<(Option<TaskKey>, u64)>,
    /// The numbers of assigned calls, including calls that wait for others, by the names of their limits.
    limits: BTreeMap<&'static str, i64>,
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
    /// Whether it receives no more calls, because an operator has cordoned it.
    is_cordoned: bool,
    may_go: bool,
    /// The size of the data that it has received from leaving members, in bytes.
    rescued: u64,
    /// Its amount of work, as recorded in [`Members::open`].
    rank: u64,
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
        if let Some(Load { rank, .. }) = self.known.remove(&member) {
            for open in self.open.values_mut() {
                open.remove(&(rank, member));
            }
        }
        self.count_leavers();
    }

    pub(super) fn cordon(&mut self, member: Member, is_cordoned: bool) {
        self.change(member, |load| {
            load.is_cordoned = is_cordoned;
            // Another member is kept free for the demand.
            load.reserved = load.reserved.filter(|_| !is_cordoned);
        });
    }

    /// Returns whether a member receives no calls: it leaves, is cordoned, or is unknown.
    pub(super) fn is_closed(&self, member: Member) -> bool {
        self.known.get(&member).is_none_or(Load::is_closed)
    }

    /// Updates the recorded amount of work of a member.
    fn note(&mut self, member: Member) {
        let Some(load) = self.known.get_mut(&member) else { return };
        load.estimate(&self.durations);
        let before = load.rank;
        load.rank = load.queue_ps();
        for (demand, open) in &mut self.open {
            if before != load.rank {
                open.remove(&(before, member));
            }
            let entry = (load.rank, member);
            let _: bool = if load.accepts(*demand) { open.insert(entry) } else { open.remove(&entry) };
        }
    }

    /// Starts to record the members that accept calls with this demand.
    pub(super) fn watch(&mut self, demand: Demand) {
        for demand in [Demand::NONE, demand] {
            let accepting = self.known.iter().filter(|(_, load)| load.accepts(demand));
            let accepting = accepting.map(|(member, load)| (load.rank, *member));
            self.open.entry(demand).or_insert_with(|| accepting.collect());
        }
    }

    /// Records the members that accept calls only for these demands.
    pub(super) fn watch_only(&mut self, is_used: impl Fn(Demand) -> bool) {
        self.open.retain(|demand, _| *demand == Demand::NONE || is_used(*demand));
    }

    /// Returns the members that accept calls, except for the shunned ones.
    fn others_than(&self, shunned: &[Member]) -> impl Iterator<Item = (&Member, &Load)> {
        let runs = |load: &Load| !load.is_closed() && load.workers > 0;
        self.known.iter().filter(move |(member, load)| runs(load) && !shunned.contains(member))
    }

    /// Returns whether any member that is not shunned can run calls with these requirements.
    pub(super) fn any_other_than(&self, shunned: &[Member], demand: Demand) -> bool {
        self.others_than(shunned).any(|(_, load)| load.capacity.can_take(demand))
    }

    /// Returns the condition under which a member receives no calls of a class: it is shunned, and another one can
    /// run them; or they have failed there last, and another one has a worker for them now.
    fn avoids<'a>(&self, class: &'a Class) -> impl Fn(Member) -> bool + use<'a> {
        let Class { demand, shunned, failed_on, .. } = class;
        let is_shunning = !shunned.is_empty() && self.any_other_than(shunned, *demand);
        let shunned: &[Member] = if is_shunning { shunned } else { &[] };
        let failed_on = failed_on.filter(|failed_on| {
            let mut others = self.others_than(shunned).filter(|(other, _)| *other != failed_on);
            others.any(|(_, load)| load.has_free_workers(*demand))
        });
        move |member| shunned.contains(&member) || failed_on == Some(member)
    }

    /// Records that the store of a member is too small for inputs of this size.
    pub(super) fn on_store_exceeded(&mut self, member: Member, bytes: u64) {
        self.change(member, |Load { capacity, .. }| {
            capacity.store_exceeded = match capacity.store_exceeded {
                0 => bytes,
                before => before.min(bytes),
            };
        });
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
            load.count_limits(claim.demand, 1);
        });
    }

    pub(super) fn ended(&mut self, member: Member, claim: Claim) {
        self.change(member, |load| {
            load.release(claim);
            load.count_limits(claim.demand, -1);
        });
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
        // Only for significant changes, since it visits all members.
        if self.durations.took(task, ns) {
            let members: Vec<_> = self.known.keys().copied().collect();
            for member in members {
                self.note(member);
            }
        }
    }

    pub(super) fn crew(&self) -> Crew {
        let mut crew = Crew::default();
        for load in self.known.values().filter(|load| !load.is_closed() && load.workers > 0) {
            crew.members += 1;
            crew.workers += load.workers;
            crew.with_room += u64::from(load.accepts(Demand::NONE));
        }
        crew
    }

    /// Returns the number of workers of each member.
    pub(super) fn workers(&self) -> BTreeMap<Member, u64> {
        self.known.iter().map(|(member, load)| (*member, load.workers)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn are_several(&self) -> bool {
        self.known.len() > 1
    }

    /// Returns the member with the least work that accepts another call of a class; for spread calls, the one that
    /// has received the fewest of them. Of equal members it is the one with the lowest number: that of the
    /// program, if it is among them.
    pub(super) fn next(&self, class: &Class) -> Option<Member> {
        let avoids = self.avoids(class);
        let open = self.open.get(&class.demand)?.iter().map(|(_, member)| *member);
        let mut open = open.filter(|member| !avoids(*member));
        if class.is_spread {
            open.min_by_key(|member| (self.known[member].spread, *member))
        } else {
            open.next()
        }
    }

    /// Returns the member for a call. `bytes` is the total size of its inputs, `with` lists the members that
    /// have some of them and how many bytes each has, and `least` is the member with the least work.
    pub(super) fn choose(&self, class: &Class, bytes: u64, with: &[(Member, u64)], least: Member) -> Member {
        let accepts = |load: &Load| load.accepts(class.demand);
        let all = self.holders(class, with, accepts).map(|(member, _)| member).chain([least]);
        all.min_by_key(|member| self.begin_ns(class.demand, *member, bytes, with)).unwrap_or(least)
    }

    /// Returns the member for a short call: the one with most of its inputs, even if it accepts no other calls.
    pub(super) fn choose_for_short(&self, class: &Class, with: &[(Member, u64)], least: Member) -> Member {
        let takes = |load: &Load| {
            if class.demand.is_of_future() {
                return load.accepts(class.demand);
            }
            let is_full = load.wide > 0 || load.assigned >= load.workers + AHEAD_MAX;
            class.demand.cores == 1
                && class.demand.limits.is_empty()
                && !is_full
                && load.is_suitable(class.demand)
        };
        self.holders(class, with, takes).max_by_key(|(_, held)| *held).map_or(least, |(member, _)| member)
    }

    /// Returns the members with inputs that may run a call of a class.
    fn holders(
        &self,
        class: &Class,
        with: &[(Member, u64)],
        may: impl Fn(&Load) -> bool,
    ) -> impl Iterator<Item = (Member, u64)> {
        let avoids = self.avoids(class);
        let may = move |member: &Member| self.known.get(member).is_some_and(&may) && !avoids(*member);
        with.iter().filter(move |(member, _)| may(member)).copied()
    }

    /// Returns the expected time until a call could start on a member.
    fn begin_ns(&self, demand: Demand, member: Member, bytes: u64, with: &[(Member, u64)]) -> u64 {
        let held = with.iter().find(|(other, _)| *other == member).map_or(0, |(_, held)| *held);
        let missing = bytes.saturating_sub(held);
        let transfer_ns = if missing > 0 { LATENCY_NS + missing * 1_000 / BYTES_BY_US } else { 0 };
        let load = &self.known[&member];
        let queue_ns = if demand.is_of_future() { load.futures * 10 } else { load.queue_ns() };
        queue_ns + transfer_ns
    }

    /// Keeps the member with the fewest busy workers free for a call that has no place, of the members that can run
    /// it, unless one is kept for its demand. Returns whether one is kept now that was not before.
    pub(super) fn reserve(&mut self, class: &Class) -> bool {
        let (demand, avoids) = (class.demand, self.avoids(class));
        // If all members are busy, a call that can be assigned ahead only waits for its turn.
        if !demand.is_immediate() && (demand.memory == 0 || self.open[&Demand::NONE].is_empty()) {
            return false;
        }
        let may = self.known.iter().filter(|(member, load)| !load.is_closed() && !avoids(**member));
        if may.clone().any(|(_, load)| load.reserved == Some(demand)) {
            return false;
        }
        let able = may.filter(|(_, load)| {
            let is_idle = demand.is_immediate() || load.accepts(Demand::NONE);
            is_idle && load.reserved.is_none() && load.capacity.can_take(demand)
        });
        let Some((member, _)) = able.min_by_key(|(_, load)| load.cores) else { return false };
        let member = *member;
        self.change(member, |load| load.reserved = Some(demand));
        true
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
    fn is_closed(&self) -> bool {
        self.is_leaving || self.is_cordoned
    }

    /// Returns whether the member accepts another call with this demand.
    fn accepts(&self, demand: Demand) -> bool {
        if demand.is_of_future() {
            return self.futures < FUTURES_MAX && self.is_suitable(demand);
        }
        // A call that takes several workers must not share them with calls assigned then.
        if demand.is_immediate() || self.wide > 0 || self.is_kept_free() {
            self.has_free_workers(demand)
        } else {
            // The expected total duration is limited, so a member accepts few long calls and many short ones. It is
            // computed from the tasks of the calls: recent short calls must not admit hundreds of long ones.
            let ahead = self.assigned.saturating_sub(self.workers);
            let has_room = ahead < AHEAD_MIN
                || (ahead < AHEAD_MAX && self.expected_ns < self.workers * (AHEAD_NS + self.longest_ns));
            has_room && self.is_suitable(demand)
        }
    }

    /// Returns whether another call with this demand would start immediately.
    fn has_free_workers(&self, demand: Demand) -> bool {
        self.cores + u64::from(demand.cores) <= self.workers && self.is_suitable(demand)
    }

    /// Returns whether the member can run a call with this demand as soon as it has a worker.
    fn is_suitable(&self, demand: Demand) -> bool {
        let takes_place = !demand.is_of_future();
        let is_kept_for =
            |other: Demand| other != demand && (other.is_immediate() && takes_place || demand.memory > 0);
        !self.is_closed()
            && self.workers > 0
            && !self.reserved.is_some_and(is_kept_for)
            && (demand == Demand::NONE || (self.capacity.can_take(demand) && self.has_memory_for(demand)))
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
        self.reserved.is_some_and(Demand::is_immediate)
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
    /// 10 ns for each assigned call, also for a future, divided by the number of workers.
    fn queue_ps(&self) -> u64 {
        let mean_ns = self.expected_ns.checked_div(self.assigned).unwrap_or(0).max(1_000);
        // Each assigned call adds 10 ns, so that the first calls are distributed over all members.
        let waits_ps = self.before().saturating_mul(mean_ns).saturating_mul(1_000);
        waits_ps.saturating_add((self.assigned + self.futures) * 10_000) / self.workers.max(1)
    }
}
