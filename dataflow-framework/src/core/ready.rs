//! The calls that wait for a worker: their order, and the choice of a call for a member.
//!
//! Calls of the highest priority start first, of these the ones with the longest chain of dependent calls.
//! Among equal ones, a member takes a call whose data it has; otherwise one whose results will meet those of
//! its last call: a call that waits for both reads them together; otherwise the one that follows its last call
//! in the order of the program, unless another member is there already; otherwise one in the middle of the
//! widest remaining range. So members take ranges of a program's calls: the outputs of neighbours are often
//! read together, as in every reduction, and then are on one member. Short calls are inserted before all others
//! of their priority.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use super::{
    call::Within,
    levels::{Levels, SHORT},
    members::Member,
};
use crate::ids::CallId;

/// The maximum number of ranges to compare for the widest one.
const RANGES_MAX: usize = 64;

/// The base level of nested calls, to which their depth is added: running calls wait for them.
const NESTED_LEVEL: u32 = 1 << 31;

/// The calls that wait for a worker.
#[derive(Debug, Default)]
pub(super) struct Ready {
    all: BTreeSet<Key>,
    /// The calls whose data a member has.
    near: BTreeMap<Member, BTreeSet<Key>>,
    /// The calls, by the calls where their results meet others.
    meeting: BTreeSet<(CallId, Key)>,
    /// The keys of the calls in the two maps above.
    nearness: HashMap<CallId, (Key, Nearness)>,
    places: BTreeMap<Member, Place>,
    /// The last calls that members have taken.
    taken: BTreeSet<(CallId, Member)>,
}

/// The neighbourhood of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Nearness {
    /// The member that has its data.
    pub(super) home: Option<Member>,
    /// The calls where its results meet others, the nearest first.
    pub(super) meets: Vec<CallId>,
}

/// The position of a member in the program.
#[derive(Debug)]
struct Place {
    /// Its last call.
    call: CallId,
    /// The calls where its results meet others.
    meets: Vec<CallId>,
}

/// The urgency of a call: its priority, and its level.
pub(super) type Urgency = (Reverse<i32>, Reverse<u32>);

/// The order of calls.
pub(super) type Key = (Urgency, CallId);

pub(super) fn urgency(priority: i32, level: u32) -> Urgency {
    (Reverse(priority), Reverse(level))
}

/// Returns whether a call runs first because it is short.
pub(super) fn is_short((_, Reverse(level)): Urgency) -> bool {
    level == SHORT
}

fn all_of(urgency: Urgency, calls: RangeInclusive<CallId>) -> RangeInclusive<Key> {
    (urgency, *calls.start())..=(urgency, *calls.end())
}

impl Ready {
    /// Adds a call. Its neighbourhood matters only if there are several members.
    pub(super) fn push(&mut self, key: Key, nearness: Nearness) {
        let (_, call) = key;
        // It may have waited before, until one of its inputs was lost.
        self.remove_neighbourhood(call);
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

    /// Removes a call from the maps of neighbourhoods, and returns its neighbourhood.
    fn remove_neighbourhood(&mut self, call: CallId) -> Nearness {
        let Some((key, nearness)) = self.nearness.remove(&call) else { return Nearness::default() };
        if let Some(near) = nearness.home.and_then(|home| self.near.get_mut(&home)) {
            near.remove(&key);
        }
        for meets in &nearness.meets {
            self.meeting.remove(&(*meets, key));
        }
        nearness
    }

    pub(super) fn first(&self) -> Option<Key> {
        self.all.first().copied()
    }

    pub(super) fn pop(&mut self) -> Option<CallId> {
        let (_, call) = self.all.pop_first()?;
        self.remove_neighbourhood(call);
        Some(call)
    }

    pub(super) fn take(&mut self, (urgency, call): Key, member: Member) {
        self.all.remove(&(urgency, call));
        let Nearness { home, meets } = self.remove_neighbourhood(call);
        // After a call with local data, or a short one, the member continues from its previous position.
        if is_short(urgency) || (home == Some(member) && self.places.contains_key(&member)) {
            return;
        }
        self.leave_place(member);
        self.taken.insert((call, member));
        self.places.insert(member, Place { call, meets });
    }

    fn leave_place(&mut self, member: Member) {
        if let Some(Place { call, .. }) = self.places.remove(&member) {
            self.taken.remove(&(call, member));
        }
    }

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

    /// Returns the first of the calls whose results meet those of the member's last call soonest. It may have a
    /// lower level than others; but the call that waits for both is as urgent as the last one.
    fn met(&self, member: Member, (priority, _): Urgency) -> Option<Key> {
        let meets = &self.places.get(&member)?.meets;
        meets.iter().find_map(|meets| {
            let first = ((priority, Reverse(u32::MAX)), 0);
            let last = ((priority, Reverse(0)), CallId::MAX);
            self.meeting.range((*meets, first)..=(*meets, last)).next().map(|(_, key)| *key)
        })
    }

    /// Returns the call after the member's last one, unless another member is there.
    fn following(&self, member: Member, urgency: Urgency) -> Option<Key> {
        let next = self.places.get(&member)?.call + 1;
        let key = *self.all.range(all_of(urgency, next..=CallId::MAX)).next()?;
        let is_others = self.taken.range((next, Member(0))..(key.1, Member(0))).next().is_some();
        (!is_others).then_some(key)
    }

    /// Returns the call in the middle of the widest range that no member has started.
    fn middle_of_widest(&self, urgency: Urgency) -> Option<Key> {
        if self.all.len() <= self.places.len() {
            return None;
        }
        let (first, last) = self.first_and_last(urgency, 0, CallId::MAX)?;
        let taken = self.taken.range((first, Member(0))..=(last, Member(u32::MAX))).take(RANGES_MAX);
        // Whether a member comes from before a range, and starts it.
        let mut is_begun = self.taken.range(..(first, Member(0))).next_back().is_some();
        let mut start = first;
        let mut widest: Option<(u64, Key)> = None;
        for end in taken.map(|(call, _)| *call).chain([last]) {
            if let Some((first, last)) = self.first_and_last(urgency, start, end)
                && widest.is_none_or(|(width, _)| width < last - first)
            {
                let from = if is_begun { first + (last - first) / 2 } else { first };
                let key = self.all.range(all_of(urgency, from..=last)).next();
                widest = key.map(|key| (last - first, *key)).or(widest);
            }
            (start, is_begun) = (end + 1, true);
        }
        widest.map(|(_, key)| key)
    }

    /// Returns the first and the last of the calls in this range.
    fn first_and_last(&self, urgency: Urgency, from: CallId, to: CallId) -> Option<(CallId, CallId)> {
        if from > to {
            return None;
        }
        let mut calls = self.all.range(all_of(urgency, from..=to)).map(|(_, call)| *call);
        let first = calls.next()?;
        Some((first, calls.next_back().unwrap_or(first)))
    }

    pub(super) fn priority(&self) -> Option<i32> {
        self.all.first().map(|((Reverse(priority), _), _)| *priority)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of waiting calls that are more urgent, or as urgent and earlier.
    pub(super) fn before(&self, call: CallId) -> usize {
        self.all.iter().position(|(_, other)| *other == call).unwrap_or(0)
    }

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

    pub(super) fn on_lost(&mut self, member: Member) {
        for (_, call) in self.near.remove(&member).unwrap_or_default() {
            if let Some((_, nearness)) = self.nearness.get_mut(&call) {
                nearness.home = None;
            }
        }
        self.leave_place(member);
    }
}

/// The nested calls that wait for a worker: by priority, then the deepest first, so that running calls
/// complete before others start, and few tasks wait at a time.
#[derive(Debug, Default)]
pub(super) struct Nested {
    ready: BTreeSet<(Reverse<i32>, Reverse<u32>, u64, CallId)>,
    /// The number of calls that were ready so far.
    order: u64,
}

impl Nested {
    pub(super) fn push(&mut self, id: CallId, priority: i32, within: Within) {
        self.order += 1;
        self.ready.insert((Reverse(priority), Reverse(within.depth), self.order, id));
    }

    /// Returns the first call that waits for a worker, unless one of the program has a higher priority.
    pub(super) fn first(&self, of_program: Option<i32>) -> Option<Key> {
        let (Reverse(priority), Reverse(depth), _, id) = *self.ready.first()?;
        let is_first = of_program.is_none_or(|of_program| of_program <= priority);
        is_first.then(|| (urgency(priority, NESTED_LEVEL + depth), id))
    }

    pub(super) fn pop(&mut self, of_program: Option<i32>) -> Option<CallId> {
        self.first(of_program)?;
        self.ready.pop_first().map(|(.., id)| id)
    }
}
