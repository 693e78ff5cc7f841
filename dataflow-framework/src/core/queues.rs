//! The calls that wait for a worker, and their assignment to members.
//!
//! Each [class](Class) of calls has a queue, so that a call without a place does not delay others. Of the queues
//! with a member that accepts another call, the one with the most urgent call is the next. Calls that no member can
//! run wait for one that can.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    action::{Action, Assignment},
    call::{Call, CallState, Cause, Failing, Manner, Work},
    calls::Calls,
    data::Data,
    demand::{Class, Demand, Lack},
    levels::Levels,
    members::Member,
    observed::Observed,
    pauses::Pauses,
    ready::{Key, Nested, Ready, is_short, urgency},
    seen::Seen,
    version::Source,
};
use crate::{
    ids::{Argument, CallId},
    options::{OnFailure, Options},
};

/// The number of attempts that a call may lose to a damaged or missing input; the next one fails the call.
const DAMAGES_MAX: u32 = 4;

/// The number of queues from which empty ones are dropped: they are kept for the positions of the members in them.
const QUEUES_MAX: usize = 64;

/// The calls that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The queue of the plain calls is the first one.
    by_class: BTreeMap<Class, Queue>,
    levels: Levels,
    /// The calls that have failed, or could not run, on some members.
    troubles: BTreeMap<CallId, Troubled>,
    pub(super) pauses: Pauses,
    /// Whether no member can join: a call that no member can run fails, instead of waiting for one.
    has_fixed_members: bool,
    /// Whether each call runs twice, to compare the outputs.
    is_checked: bool,
}

/// The calls of one class that wait for a worker.
#[derive(Debug, Default)]
struct Queue {
    /// The calls of the program.
    ready: Ready,
    nested: Nested,
    /// Whether a member may be reserved for them.
    is_reserving: bool,
    /// Whether it was reported that no member can run them.
    is_told: bool,
}

impl Queue {
    /// Returns whether any member can run a call of this queue, and reports if none can.
    fn can_be_run(&mut self, data: &Data, class: &Class, id: CallId) -> bool {
        let lack = Lack::of(class.demand, data.members.capacities());
        let was_told = std::mem::replace(&mut self.is_told, lack.is_some());
        if let Some(lack) = lack.filter(|_| !was_told) {
            let task = data.calls[&id].work.name();
            tracing::warn!(
                task,
                call = id,
                "a call waits for a node: it needs {lack}; start one that has it"
            );
        }
        !self.is_told
    }

    /// Removes the first calls that no longer wait, and returns the next call.
    fn first(&mut self, calls: &Calls) -> Option<Key> {
        let first = |queue: &Self| queue.nested.first(queue.ready.priority()).or_else(|| queue.ready.first());
        let mut key = first(self);
        while let Some((_, id)) = key
            && calls.get(&id).is_none_or(|call| call.state != CallState::Worker)
        {
            let _: Option<CallId> = self.nested.pop(self.ready.priority()).or_else(|| self.ready.pop());
            key = first(self);
        }
        key
    }
}

/// The faults of members that a call has met.
#[derive(Debug, Default)]
struct Troubled {
    /// The members on which it could not run, in order.
    shunned: Vec<Member>,
    /// The member on which it has failed last.
    failed_on: Option<Member>,
    /// The number of its attempts that failed because of a damaged or missing input.
    damages: u32,
}

impl Queues {
    /// Assigns one ready call, if there is a member for it; `end` is the least number that the next call may have.
    /// Returns whether a call was assigned.
    pub(super) fn assign_one(&mut self, data: &mut Data, observed: &mut Observed, end: CallId) -> bool {
        let Some(mut next) = self.next(data) else { return false };
        let are_several = || self.by_class.values().map(|queue| queue.ready.len()).sum::<usize>() > 1;
        if self.levels.are_stale(&data.members.durations) && are_several() {
            self.reorder(data, end);
            let Some(again) = self.next(data) else { return false };
            next = again;
        }
        let (class, member) = next;
        self.assign_next(data, observed, &class, member);
        true
    }

    /// Returns the class of the most urgent call that has a member, and the one with the least work. Reserves members
    /// for more urgent calls without a member.
    fn next(&mut self, data: &mut Data) -> Option<(Class, Member)> {
        loop {
            let (mut next, mut blocked, mut has_changed) = (None::<(Key, &Class, Member)>, Vec::new(), false);
            let (mut is_any_unused, mut plain) = (false, None::<Key>);
            for (class, queue) in &mut self.by_class {
                let may_start = data.members.reached_limit(class.demand).is_none();
                let Some(key) = queue.first(&data.calls).filter(|_| may_start) else {
                    if std::mem::take(&mut queue.is_reserving) {
                        data.members.unreserve(class.demand);
                        has_changed = true;
                    }
                    is_any_unused |= class.is_troubled();
                    continue;
                };
                match data.members.next(class) {
                    Some(member) if next.is_none_or(|(first, ..)| key < first) => {
                        next = Some((key, class, member));
                    }
                    None if class.demand != Demand::NONE => blocked.push((key, class.clone())),
                    None => plain = plain.into_iter().chain([key]).min(),
                    Some(_) => {}
                }
            }
            let first = next.map(|(key, ..)| key);
            let next = next.map(|(_, class, member)| (class.clone(), member));
            if is_any_unused {
                self.drop_empty(data, Class::is_troubled);
            }
            blocked.sort_unstable();
            has_changed |= blocked.iter().any(|(key, class)| {
                let queue = self.by_class.get_mut(class).expect("it has this call");
                // A call with limits waits for its turn among the plain calls, too.
                let plain = plain.filter(|_| !class.demand.limits.is_empty());
                let is_first = first.into_iter().chain(plain).all(|other| *key < other);
                let is_urgent = queue.can_be_run(data, class, key.1) && is_first;
                let reserves = is_urgent && data.members.reserve(class);
                queue.is_reserving |= reserves;
                reserves
            });
            if !has_changed {
                return next;
            }
        }
    }

    /// Assigns the next call of a class, to this member or to one with more of its data.
    fn assign_next(&mut self, data: &mut Data, observed: &mut Observed, class: &Class, member: Member) {
        let queue = self.by_class.get_mut(class).expect("it has a call");
        queue.is_told = false;
        if std::mem::take(&mut queue.is_reserving) {
            data.members.unreserve(class.demand);
        }
        if let Some(id) = queue.nested.pop(queue.ready.priority()) {
            let near = data.calls.get(&id).filter(|_| !class.is_spread);
            let near = near.map(|call| data.choose(class, &call.arguments, member));
            return self.assign(data, observed, (class, id), near.unwrap_or(member));
        }
        if class.is_spread || !data.members.are_several() {
            let id = queue.ready.pop().expect("some are ready");
            return self.assign(data, observed, (class, id), member);
        }
        let key = queue.ready.next_for(member).expect("some are ready");
        let (urgency, id) = key;
        let member = data.calls.get(&id).map_or(member, |call| {
            if is_short(urgency) {
                let (_, with) = data.whereabouts(&call.arguments);
                data.members.choose_for_short(class, &with, member)
            } else {
                data.choose(class, &call.arguments, member)
            }
        });
        queue.ready.take(key, member);
        self.assign(data, observed, (class, id), member);
    }

    fn assign(
        &mut self,
        data: &mut Data,
        observed: &mut Observed,
        (class, id): (&Class, CallId),
        member: Member,
    ) {
        // The call may have been cancelled since, or wait for a lost input.
        let waits = |call: &&Call| call.state == CallState::Worker && self.class_of(id, call) == *class;
        let Some(call) = data.calls.get(&id).filter(waits) else { return };
        let (task, mark, tries, arguments) =
            (call.task(), call.mark, call.failures, Arc::clone(&call.arguments));
        let manner = self.manner(data, observed, id, call);
        let has_one_run = manner.has_one_run() && call.failures == call.options.retry;
        data.occupy(id, member);
        let (mut in_place, mut taken) = (Vec::new(), Vec::new());
        let (mut elsewhere, mut moved_bytes) = (Vec::new(), 0);
        for argument in &*arguments {
            for read in argument.versions() {
                assert!(data.versions[read].is_present(), "a call is ready when its inputs are there");
                let is_named = elsewhere.iter().any(|source: &Source| source.version == *read);
                if let Some(source) = data.source_for(*read, member).filter(|_| !is_named) {
                    moved_bytes += data.versions[read].bytes();
                    elsewhere.push(source);
                }
            }
            if let Argument::Update(version) = argument {
                let is_taken = has_one_run && data.take(id, member, *version);
                in_place.push(is_taken);
                taken.extend(is_taken.then_some(*version));
            }
        }
        let call = data.calls.get_mut(&id).expect("it is unfinished");
        (call.state, call.is_earlier, call.taken) = (CallState::Runs(member), false, taken);
        observed.of(task).moved_bytes += moved_bytes;
        let work = Work::Task(task);
        let assignment = Assignment { call: id, work, mark, tries, arguments, in_place, manner, elsewhere };
        observed.see(Seen::Assigns { call: id, to: member.0 });
        data.actions.push(Action::Assign(member, assignment));
    }

    fn class_of(&self, id: CallId, call: &Call) -> Class {
        let troubled = self.troubles.get(&id);
        Class {
            demand: call.demand(),
            is_spread: call.options.spread,
            shunned: troubled.map_or_else(Vec::new, |troubled| troubled.shunned.clone()),
            failed_on: troubled.and_then(|troubled| troubled.failed_on),
        }
    }

    /// Returns the queue of a class, and drops empty ones if there are too many.
    fn queue(&mut self, data: &mut Data, class: Class) -> &mut Queue {
        if !self.by_class.contains_key(&class) {
            if self.by_class.len() >= QUEUES_MAX {
                self.drop_empty(data, |_| true);
            }
            data.members.watch(class.demand);
        }
        self.by_class.entry(class).or_default()
    }

    /// Drops the empty queues of the classes that `may` be dropped.
    fn drop_empty(&mut self, data: &mut Data, may: impl Fn(&Class) -> bool) {
        self.by_class
            .retain(|class, queue| !may(class) || queue.first(&data.calls).is_some() || queue.is_reserving);
        data.members.watch_only(|demand| self.by_class.keys().any(|class| class.demand == demand));
    }

    fn reorder(&mut self, data: &Data, end: CallId) {
        let first = data.calls.of_program().next().map_or(end, |(first, _)| first);
        let calls = data.calls.of_program().rev().map(|(id, call)| {
            let versions = call.written(id).filter_map(|version| data.versions.get(&version));
            (id, call.task(), versions.flat_map(|version| version.readers.iter().copied()))
        });
        self.levels.compute(first, end, &data.members.durations, calls);
        self.by_class.values_mut().for_each(|queue| queue.ready.reorder(&self.levels));
    }

    fn manner(&self, data: &Data, observed: &Observed, id: CallId, call: &Call) -> Manner {
        let ignores = call.options.on_failure == OnFailure::Ignore;
        let failing = match ignores {
            true if data.journal.history().is_ignored(id) => Failing::HasFailed,
            // If it is recomputed, others may have seen its output.
            true if call.failures == call.options.retry && !data.journal.history().has_ended(id) => {
                Failing::Defaults
            }
            _ => Failing::Nothing,
        };
        let Options { timeout, isolated: is_isolated, memory_max, .. } = call.options;
        Manner {
            failing,
            timeout,
            // A task with effects, or a nondeterministic one, cannot be compared.
            is_checked: self.is_checked && !call.options.is_durable(),
            is_timed: observed.is_timed,
            is_isolated,
            memory_max,
            // Others may have seen the defaults of a call that has failed.
            is_cached: call.options.cached && !self.is_checked && failing != Failing::HasFailed,
            once_token: call.options.is_durable().then(|| data.journal.token(id, call.mark)),
        }
    }

    /// Records the duration of a call; `None` if its output is from a cache.
    pub(super) fn record_duration(
        &mut self,
        data: &mut Data,
        observed: &mut Observed,
        id: CallId,
        ns: Option<u64>,
    ) {
        let task = data.calls[&id].task();
        self.levels.ended();
        let Some(ns) = ns else { return observed.of(task).cached += 1 };
        data.members.took(task, ns);
        observed.of(task).ran(ns);
    }

    /// Adds a call whose inputs are available, unless it pauses.
    pub(super) fn push(&mut self, data: &mut Data, id: CallId) {
        if self.pauses.holds(id) {
            return;
        }
        data.calls.get_mut(&id).expect("it is unfinished").state = CallState::Worker;
        let call = &data.calls[&id];
        let (priority, within, class) = (call.options.priority, call.within, self.class_of(id, call));
        if let Some(within) = within {
            return self.queue(data, class).nested.push(id, priority, within);
        }
        let nearness = data.nearness(id, &Arc::clone(&call.arguments));
        let urgency = urgency(priority, self.levels.of(id));
        self.queue(data, class).ready.push((urgency, id), nearness);
    }

    /// Handles a call that could not run on its member. Returns whether it cannot run on any.
    pub(super) fn on_unfit(&mut self, data: &mut Data, id: CallId, member: Member, cause: Cause) -> bool {
        let troubled = self.troubles.entry(id).or_default();
        let call = data.calls.get_mut(&id).expect("it was assigned");
        let is_hopeless = match cause {
            Cause::Damaged(_) => {
                troubled.damages += 1;
                troubled.damages > DAMAGES_MAX
            }
            Cause::Member => {
                if let Err(at) = troubled.shunned.binary_search(&member) {
                    troubled.shunned.insert(at, member);
                }
                !data.members.any_other_than(&troubled.shunned, call.demand())
            }
            // It waits for a member with a larger store.
            Cause::Store(bytes) => {
                call.store = bytes;
                data.members.on_store_exceeded(member, bytes);
                self.has_fixed_members && !data.members.any_other_than(&[], call.demand())
            }
        };
        if is_hopeless {
            self.troubles.remove(&id);
        }
        is_hopeless
    }

    /// Handles a call that failed on a member.
    pub(super) fn on_failed(&mut self, id: CallId, member: Member) {
        self.troubles.entry(id).or_default().failed_on = Some(member);
    }

    /// Removes a call that has ended, made within `root` or itself a call of the program.
    pub(super) fn on_end(&mut self, root: CallId, id: CallId) {
        self.troubles.remove(&id);
        self.pauses.remove(root, id);
    }

    pub(super) fn made(&mut self) {
        self.levels.made();
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        self.by_class.values_mut().for_each(|queue| queue.ready.on_lost(member));
    }

    /// Returns the number of waiting calls of the same class that are more urgent than a call, or as urgent and
    /// earlier.
    pub(super) fn before(&self, id: CallId) -> usize {
        self.by_class.values().map(|queue| queue.ready.before(id)).max().unwrap_or(0)
    }

    /// Records that no member can join later.
    pub(crate) fn fix_members(&mut self) {
        self.has_fixed_members = true;
    }

    /// Runs each call twice from now on, to compare the outputs.
    pub(crate) fn check(&mut self) {
        self.is_checked = true;
    }

    #[cfg(test)]
    pub(super) fn classes(&self) -> usize {
        self.by_class.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_class.values().all(|queue| queue.ready.len() == 0)
    }
}
