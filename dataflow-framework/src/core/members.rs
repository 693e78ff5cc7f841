//! The members that run calls, and the choice of one for a call.
//!
//! A call goes where it is expected to begin first: after the calls that were assigned there before, and the transfer
//! of what it reads and is not there. Considered are those that have some of what it reads, and the one with the least
//! to do: so the choice costs little whatever their number.

mod leaving;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    demand::{Capacity, Demand},
    durations::{Durations, TaskKey},
};
use crate::task::TaskDef;

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

/// How long a call is expected to take of whose task none has ended: at first one is assigned ahead for each worker.
const UNKNOWN_NS: u64 = AHEAD_NS;

/// How long a transfer between two members is expected to take, however small it is.
const LATENCY_NS: u64 = 300_000;

/// What a transfer between two members is expected to move in a microsecond, in bytes.
const BYTES_BY_US: u64 = 200;

/// The members that run calls.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<Member, Load>,
    /// Those that take another call, by how much they have to do.
    open: BTreeSet<(u64, Member)>,
    durations: Durations,
    /// The mean times of tasks by which it was noted what members have to do.
    noted_ns: BTreeMap<TaskKey, u64>,
    /// The number of those that leave, and were not told that they may go.
    leavers: usize,
}

/// What a call takes of the member on which it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    demand: Demand,
    /// For how long, which its task tells; `None` if that is not known.
    task: Option<TaskKey>,
}

impl Claim {
    /// That of a call of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { demand: Demand::NONE, task: None };

    pub(super) fn of(demand: Demand, task: &'static TaskDef) -> Self {
        Self { demand, task: Some(TaskKey::of(task)) }
    }
}

/// The members that run calls now, and are not about to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Crew {
    pub(super) members: u64,
    pub(super) workers: u64,
    /// The number of members that take another call.
    pub(super) with_room: u64,
}

/// What a member has to do.
#[derive(Debug)]
struct Load {
    workers: u64,
    capacity: Capacity,
    assigned: u64,
    /// The workers that the assigned calls take.
    cores: u64,
    /// The memory that they take, in bytes.
    memory: u64,
    /// Their tasks, which are few, each with the number of its calls.
    tasks: Vec<(Option<TaskKey>, u64)>,
    /// How long they are expected to take altogether, and how long the longest of them.
    expected_ns: u64,
    longest_ns: u64,
    /// The number of those that take several workers.
    wide: u64,
    /// The number of calls that it was given because they are spread.
    spread: u64,
    /// For which calls it is kept free.
    reserved: Option<Demand>,
    /// The number of calls that were assigned to it, and need no worker, since their tasks wait for others.
    lent: u64,
    /// Whether it is given no more calls, because it leaves.
    is_leaving: bool,
    /// Whether it was told that it may go.
    may_go: bool,
    /// The size of what it was given for others that leave, in bytes.
    rescued: u64,
    /// How much it has to do, as it is noted in [`Members::open`], if it takes another call.
    rank: Option<u64>,
}

impl Members {
    pub(super) fn add(&mut self, member: Member, capacity: Capacity) {
        self.remove(member);
        let load = Load {
            workers: u64::from(capacity.workers),
            capacity,
            assigned: 0,
            cores: 0,
            memory: 0,
            tasks: Vec::new(),
            expected_ns: 0,
            longest_ns: 0,
            wide: 0,
            // It is given as many from now on as those of which that has the least.
            spread: self.known.values().map(|load| load.spread).min().unwrap_or(0),
            reserved: None,
            lent: 0,
            is_leaving: false,
            may_go: false,
            rescued: 0,
            rank: None,
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

    pub(super) fn leaves(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            (load.is_leaving, load.may_go) = (true, false);
        }
        self.note(member);
        self.count_leavers();
    }

    /// Notes how much a member has to do, after that has changed.
    fn note(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            load.expects(&self.durations);
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

    /// Returns the members that run calls and are none of these.
    fn others_than(&self, shunned: &[Member]) -> impl Iterator<Item = (&Member, &Load)> {
        let runs = |load: &Load| !load.is_leaving && load.workers > 0;
        self.known.iter().filter(move |(member, load)| runs(load) && !shunned.contains(member))
    }

    /// Returns whether any member runs calls that is none of these.
    pub(super) fn any_other_than(&self, shunned: &[Member]) -> bool {
        self.others_than(shunned).next().is_some()
    }

    /// Returns the member with the least to do that may be given a call now and is none of these.
    pub(super) fn other_than(&self, shunned: &[Member]) -> Option<Member> {
        // Those that are kept for calls with demands must not be given others.
        let others = self.others_than(shunned).filter(|(_, load)| !load.is_kept_free() && load.wide == 0);
        others.min_by_key(|(_, load)| load.queue_ns()).map(|(member, _)| *member)
    }

    pub(super) fn has(&self, member: Member) -> bool {
        self.known.contains_key(&member)
    }

    /// Tells that a call was assigned to a member.
    pub(super) fn assigned(&mut self, member: Member, claim: Claim, is_spread: bool) {
        if let Some(load) = self.known.get_mut(&member) {
            load.takes(claim);
            load.spread += u64::from(is_spread);
        }
        self.note(member);
    }

    /// Tells that a member has one call less.
    pub(super) fn ended(&mut self, member: Member, claim: Claim) {
        if let Some(load) = self.known.get_mut(&member) {
            load.has_less(claim);
        }
        self.note(member);
    }

    /// Tells that a call that was assigned to a member waits for others, and leaves to them what it demands.
    pub(super) fn lends(&mut self, member: Member, claim: Claim) {
        if let Some(load) = self.known.get_mut(&member) {
            load.has_less(claim);
            load.lent += 1;
        }
        self.note(member);
    }

    /// Tells that such a call goes on.
    pub(super) fn takes_back(&mut self, member: Member, claim: Claim) {
        if let Some(load) = self.known.get_mut(&member) {
            load.takes(claim);
            load.lent -= 1;
        }
        self.note(member);
    }

    /// Tells how long a call has taken.
    pub(super) fn took(&mut self, task: &'static TaskDef, ns: u64) {
        let is_first = self.durations.took(task, ns);
        let key = TaskKey::of(task);
        let mean_ns = self.durations.of(key).unwrap_or(ns);
        let noted_ns = self.noted_ns.entry(key).or_insert(mean_ns);
        // Now and then, since all members are looked at.
        if is_first || mean_ns.abs_diff(*noted_ns) > *noted_ns / 4 {
            *noted_ns = mean_ns;
            let members: Vec<_> = self.known.keys().copied().collect();
            for member in members {
                self.note(member);
            }
        }
    }

    /// Returns the members that run calls.
    pub(super) fn crew(&self) -> Crew {
        let mut crew = Crew::default();
        for load in self.known.values().filter(|load| !load.is_leaving && load.workers > 0) {
            crew.members += 1;
            crew.workers += load.workers;
            crew.with_room += u64::from(load.has_room());
        }
        crew
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.known.len() > 1
    }

    /// Returns the member that has the least to do of those that take another call. Of equal ones it is the first, which
    /// is where the program runs.
    pub(super) fn next(&self) -> Option<Member> {
        self.open.first().map(|(_, member)| *member)
    }

    /// Returns the member for a call, of which some members have these numbers of bytes. `bytes` is the size of
    /// everything that it reads, and `least` the member that has the least to do.
    pub(super) fn choose(&self, bytes: u64, with: &[(Member, u64)], least: Member) -> Member {
        let has_room =
            |member: &&(Member, u64)| self.known.get(&member.0).is_some_and(|load| load.rank.is_some());
        let holders = with.iter().filter(has_room).copied();
        let all = holders.map(|(member, _)| member).chain([least]);
        all.min_by_key(|member| self.begin_ns(*member, bytes, with)).unwrap_or(least)
    }

    /// Returns the member for a short call: whoever has the most of what it reads, also one that takes no other calls.
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

    /// Returns in which time a call could begin on a member.
    fn begin_ns(&self, member: Member, bytes: u64, with: &[(Member, u64)]) -> u64 {
        let held = with.iter().find(|(other, _)| *other == member).map_or(0, |(_, held)| *held);
        let missing = bytes.saturating_sub(held);
        let transfer_ns = if missing > 0 { LATENCY_NS + missing * 1_000 / BYTES_BY_US } else { 0 };
        self.known[&member].queue_ns() + transfer_ns
    }

    /// Returns the member for a call that may not run anywhere, as [`choose`](Self::choose) does for others: of all that
    /// can take it now, or of these one that was given the fewest that are spread.
    pub(super) fn place(
        &self,
        demand: Demand,
        is_spread: bool,
        bytes: u64,
        with: &[(Member, u64)],
    ) -> Option<Member> {
        let fitting = self.known.iter().filter(|(_, load)| load.takes_now(demand));
        let cost = |member: Member, load: &Load| {
            if is_spread { load.spread } else { self.begin_ns(member, bytes, with) }
        };
        fitting.min_by_key(|(member, load)| cost(**member, load)).map(|(member, _)| *member)
    }

    /// Keeps a member free for a call: of those that can take it, the one on which the fewest workers are taken.
    pub(super) fn reserve(&mut self, demand: Demand) {
        if self.is_reserved(demand) {
            return;
        }
        let able = self.known.iter_mut().filter(|(_, load)| {
            !load.is_leaving && load.reserved.is_none() && load.capacity.can_take(demand)
        });
        let Some((member, load)) = able.min_by_key(|(_, load)| load.cores) else { return };
        load.reserved = Some(demand);
        let member = *member;
        self.note(member);
    }

    /// Returns whether a member is kept free for calls of this kind.
    pub(super) fn is_reserved(&self, demand: Demand) -> bool {
        self.known.values().any(|load| !load.is_leaving && load.reserved == Some(demand))
    }

    /// Keeps no member free any more for calls of this kind.
    pub(super) fn unreserve(&mut self, demand: Demand) {
        let kept = self.known.iter_mut().filter(|(_, load)| load.reserved == Some(demand));
        let kept: Vec<_> = kept.map(|(member, load)| (load.reserved.take(), *member)).collect();
        for (_, member) in kept {
            self.note(member);
        }
    }
}

impl Load {
    /// Returns whether the member takes a call now that may not run anywhere.
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

    /// Returns whether the member takes another call that may run anywhere.
    fn has_room(&self) -> bool {
        if self.is_leaving || self.workers == 0 || self.is_kept_free() {
            return false;
        }
        // One that takes several workers must not share them with those that would run then.
        if self.wide > 0 {
            return self.cores < self.workers;
        }
        // Few calls that are long, and many that are short, also where both come together: otherwise a member would be
        // given hundreds of long ones because short ones have ended of late.
        let ahead = self.assigned.saturating_sub(self.workers);
        ahead < AHEAD_MIN
            || (ahead < AHEAD_MAX && self.expected_ns < self.workers * (AHEAD_NS + self.longest_ns))
    }

    fn takes(&mut self, Claim { demand, task }: Claim) {
        self.assigned += 1;
        self.cores += u64::from(demand.cores);
        self.memory += demand.memory;
        self.wide += u64::from(demand.cores > 1);
        match self.tasks.iter_mut().find(|(known, _)| *known == task) {
            Some((_, calls)) => *calls += 1,
            None => self.tasks.push((task, 1)),
        }
    }

    fn has_less(&mut self, Claim { demand, task }: Claim) {
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

    /// Computes how long its calls are expected to take.
    fn expects(&mut self, durations: &Durations) {
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

    /// Returns the number of calls for whose end another one has to wait.
    fn before(&self) -> u64 {
        (self.cores + 1).saturating_sub(self.workers)
    }

    /// Returns how long a call waits for a worker.
    fn queue_ns(&self) -> u64 {
        self.queue_ps() / 1_000
    }

    /// Returns the same in picoseconds, by which members are compared: the calls that wait, or else those that run, for
    /// each worker.
    fn queue_ps(&self) -> u64 {
        let mean_ns = self.expected_ns.checked_div(self.assigned).unwrap_or(0).max(1_000);
        // A call counts even if it is short, so that the first ones go to all members.
        let waits_ps = self.before().saturating_mul(mean_ns).saturating_mul(1_000);
        waits_ps.saturating_add(self.assigned * 10_000) / self.workers.max(1)
    }
}
