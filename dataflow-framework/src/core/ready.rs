//! The calls that wait for a worker: in which order they begin, and where.
//!
//! Those of the highest priority begin first, of these the ones with the most calls behind one another that depend on
//! them. Of those that are equal in this, a member takes one whose data it has. Otherwise it takes one whose results
//! will meet those of the call that it took last: they are read together, by a call that waits for both. Otherwise it
//! takes the one that comes, in the order of the program, after the one that it took last, unless another member is
//! there already; and otherwise it begins anew in the middle of the widest range that is left. So members take ranges
//! of a program's calls: what neighbours write is often read together, as in every reduction, and then is in one place.
//! Short calls it does by the way, before all others of their priority.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use super::{
    levels::{Levels, SHORT},
    members::Member,
};
use crate::ids::CallId;

/// The maximum number of ranges of which the widest is sought.
const RANGES_MAX: usize = 64;

/// The number of calls among which one is sought that has nothing to do with what another member does.
const APART_MAX: usize = 32;

/// The calls that wait for a worker.
#[derive(Debug, Default)]
pub(super) struct Ready {
    all: BTreeSet<Key>,
    /// Those whose data a member has.
    near: BTreeMap<Member, BTreeSet<Key>>,
    /// By the calls where their results meet others.
    meeting: BTreeSet<(CallId, Key)>,
    /// By what they are in the two above.
    nearness: HashMap<CallId, (Key, Nearness)>,
    places: BTreeMap<Member, Place>,
    /// The calls that members have taken last.
    taken: BTreeSet<(CallId, Member)>,
    /// The calls where the results of these meet others.
    begun: BTreeSet<(CallId, Member)>,
}

/// What is near to a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Nearness {
    /// The member that has its data.
    pub(super) home: Option<Member>,
    /// The calls where its results meet others, the nearest first.
    pub(super) meets: Vec<CallId>,
}

/// Where a member is in the program.
#[derive(Debug)]
struct Place {
    /// The call that it has taken last.
    call: CallId,
    /// Where its results meet others.
    meets: Vec<CallId>,
}

/// How urgent a call is: its priority, and its level.
pub(super) type Urgency = (Reverse<i32>, Reverse<u32>);

/// The order of calls.
pub(super) type Key = (Urgency, CallId);

/// Returns how urgent a call of a priority and a level is.
pub(super) fn urgency(priority: i32, level: u32) -> Urgency {
    (Reverse(priority), Reverse(level))
}

/// Returns whether a call comes first because it is short.
pub(super) fn is_short((_, Reverse(level)): Urgency) -> bool {
    level == SHORT
}

fn all_of(urgency: Urgency, calls: RangeInclusive<CallId>) -> RangeInclusive<Key> {
    (urgency, *calls.start())..=(urgency, *calls.end())
}

impl Ready {
    /// Adds a call. What is near to it is only of interest if there are several members.
    pub(super) fn push(&mut self, key: Key, nearness: Nearness) {
        let (_, call) = key;
        // It may have waited before, until something was lost that it reads.
        self.leaves(call);
        self.all.insert(key);
        if nearness.home.is_some() || !nearness.meets.is_empty() {
            self.near_to(key, &nearness);
            self.nearness.insert(call, (key, nearness));
        }
    }

    fn near_to(&mut self, key: Key, Nearness { home, meets }: &Nearness) {
        if let Some(home) = home {
            self.near.entry(*home).or_default().insert(key);
        }
        self.meeting.extend(meets.iter().map(|meets| (*meets, key)));
    }

    /// Removes a call from where it is near, and returns what was.
    fn leaves(&mut self, call: CallId) -> Nearness {
        let Some((key, nearness)) = self.nearness.remove(&call) else { return Nearness::default() };
        if let Some(near) = nearness.home.and_then(|home| self.near.get_mut(&home)) {
            near.remove(&key);
        }
        for meets in &nearness.meets {
            self.meeting.remove(&(*meets, key));
        }
        nearness
    }

    /// Returns the first call.
    pub(super) fn first(&self) -> Option<Key> {
        self.all.first().copied()
    }

    /// Takes the first call.
    pub(super) fn pop(&mut self) -> Option<CallId> {
        let (_, call) = self.all.pop_first()?;
        self.leaves(call);
        Some(call)
    }

    /// Takes a call for a member.
    pub(super) fn take(&mut self, (urgency, call): Key, member: Member) {
        self.all.remove(&(urgency, call));
        let Nearness { home, meets } = self.leaves(call);
        // What it has at home, or is short, it does by the way, and then goes on where it was.
        if is_short(urgency) || (home == Some(member) && self.places.contains_key(&member)) {
            return;
        }
        self.leaves_place(member);
        self.taken.insert((call, member));
        self.begun.extend(meets.iter().map(|meets| (*meets, member)));
        self.places.insert(member, Place { call, meets });
    }

    fn leaves_place(&mut self, member: Member) {
        let Some(Place { call, meets }) = self.places.remove(&member) else { return };
        self.taken.remove(&(call, member));
        for meets in meets {
            self.begun.remove(&(meets, member));
        }
    }

    /// Returns the call that a member should begin next.
    pub(super) fn next_for(&self, member: Member) -> Option<Key> {
        let first = *self.all.first()?;
        let (urgency, _) = first;
        let near = self.near.get(&member).and_then(BTreeSet::first);
        if is_short(urgency) {
            return near.copied().filter(|(near, _)| *near == urgency).or(Some(first));
        }
        let key = near.copied().filter(|((priority, _), _)| *priority == urgency.0);
        let key = key.or_else(|| self.met(member, urgency));
        let key = key.or_else(|| self.following(member, urgency));
        key.or_else(|| self.middle_of_widest(urgency)).or(Some(first))
    }

    /// Returns the first of the calls whose results meet those of the one that a member took last, soonest. It may have
    /// a lower level than others; but the call that waits for both is as urgent as the one that was taken.
    fn met(&self, member: Member, (priority, _): Urgency) -> Option<Key> {
        let meets = &self.places.get(&member)?.meets;
        meets.iter().find_map(|meets| {
            let first = ((priority, Reverse(u32::MAX)), 0);
            let last = ((priority, Reverse(0)), CallId::MAX);
            self.meeting.range((*meets, first)..=(*meets, last)).next().map(|(_, key)| *key)
        })
    }

    /// Returns the call after the one that a member took last, unless another member is there.
    fn following(&self, member: Member, urgency: Urgency) -> Option<Key> {
        let next = self.places.get(&member)?.call + 1;
        let key = *self.all.range(all_of(urgency, next..=CallId::MAX)).next()?;
        let is_others = self.taken.range((next, Member(0))..(key.1, Member(0))).next().is_some();
        (!is_others).then_some(key)
    }

    /// Returns the call in the middle of the widest range after which no member comes.
    fn middle_of_widest(&self, urgency: Urgency) -> Option<Key> {
        if self.all.len() <= self.places.len() {
            return None;
        }
        let (first, last) = self.ends(urgency, 0, CallId::MAX)?;
        let taken = self.taken.range((first, Member(0))..=(last, Member(u32::MAX))).take(RANGES_MAX);
        // Whether a member comes from before a range, and begins it.
        let mut is_begun = self.taken.range(..(first, Member(0))).next_back().is_some();
        let mut start = first;
        let mut widest: Option<(u64, Key)> = None;
        for end in taken.map(|(call, _)| *call).chain([last]) {
            if let Some((first, last)) = self.ends(urgency, start, end)
                && widest.is_none_or(|(width, _)| width < last - first)
            {
                let from = if is_begun { first + (last - first) / 2 } else { first };
                widest = self.apart(urgency, from..=last).map(|key| (last - first, key)).or(widest);
            }
            (start, is_begun) = (end + 1, true);
        }
        widest.map(|(_, key)| key)
    }

    /// Returns the first and the last of the calls between these.
    fn ends(&self, urgency: Urgency, from: CallId, to: CallId) -> Option<(CallId, CallId)> {
        if from > to {
            return None;
        }
        let mut calls = self.all.range(all_of(urgency, from..=to)).map(|(_, call)| *call);
        let first = calls.next()?;
        Some((first, calls.next_back().unwrap_or(first)))
    }

    /// Returns the first of these calls, but rather one whose results do not meet those of what another member does.
    fn apart(&self, urgency: Urgency, calls: RangeInclusive<CallId>) -> Option<Key> {
        let mut calls = self.all.range(all_of(urgency, calls)).copied();
        let first = calls.clone().next();
        calls.by_ref().take(APART_MAX).find(|(_, call)| !self.meets_others(*call)).or(first)
    }

    fn meets_others(&self, call: CallId) -> bool {
        let Some((_, Nearness { meets, .. })) = self.nearness.get(&call) else { return false };
        let any = |meets: CallId| (meets, Member(0))..=(meets, Member(u32::MAX));
        meets.iter().any(|meets| self.begun.range(any(*meets)).next().is_some())
    }

    /// Returns the highest priority.
    pub(super) fn priority(&self) -> Option<i32> {
        self.all.first().map(|((Reverse(priority), _), _)| *priority)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of calls that are more urgent than one that waits, or as urgent and earlier.
    pub(super) fn before(&self, call: CallId) -> usize {
        self.all.iter().position(|(_, other)| *other == call).unwrap_or(0)
    }

    /// Orders all calls anew.
    pub(super) fn reorder(&mut self, levels: &Levels) {
        let again = |((priority, _), call): Key| (urgency(priority.0, levels.of(call)), call);
        self.all = std::mem::take(&mut self.all).into_iter().map(again).collect();
        self.near.clear();
        self.meeting.clear();
        for (call, (key, nearness)) in std::mem::take(&mut self.nearness) {
            let key = again(key);
            self.near_to(key, &nearness);
            self.nearness.insert(call, (key, nearness));
        }
    }

    /// Forgets a member.
    pub(super) fn is_lost(&mut self, member: Member) {
        for (_, call) in self.near.remove(&member).unwrap_or_default() {
            if let Some((_, nearness)) = self.nearness.get_mut(&call) {
                nearness.home = None;
            }
        }
        self.leaves_place(member);
    }
}
