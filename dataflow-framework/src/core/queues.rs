//! The calls that wait for a worker, and their assignment to members. Calls with requirements: `queues/placing.rs`.

mod placing;

use std::{collections::BTreeMap, sync::Arc};

use self::placing::Lane;
use super::{
    action::{Action, Assignment},
    call::{Call, CallState, Cause, Failing, Manner, Work},
    data::Data,
    demand::{Demand, LaneKind},
    levels::Levels,
    members::Member,
    observed::Observed,
    ready::{Nested, Ready, Urgency, is_short, urgency},
    seen::Seen,
    version::Source,
};
use crate::{
    ids::{Argument, CallId},
    options::{OnFailure, Options},
};

/// The base level of nested calls, to which their depth is added: running calls wait for them.
const NESTED_LEVEL: u32 = 1 << 31;

/// The number of attempts that a call may lose to a damaged or missing input; the next one fails the call.
const DAMAGES_MAX: u32 = 4;

/// The calls that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The plain calls of the program.
    ready: Ready,
    /// The plain nested calls.
    nested: Nested,
    /// The calls with requirements, and spread calls.
    lanes: BTreeMap<LaneKind, Lane>,
    levels: Levels,
    /// The calls that could not run on some members.
    troubles: BTreeMap<CallId, Troubled>,
    /// Whether no member can join: a call that no member can run fails, instead of waiting for one.
    has_fixed_members: bool,
    /// Whether each call runs twice, to compare the outputs.
    is_checked: bool,
}

/// The faults of members that a call has met.
#[derive(Debug, Default)]
struct Troubled {
    /// The members on which it could not run.
    shunned: Vec<Member>,
    /// The number of its attempts that failed because of a damaged or missing input.
    damages: u32,
}

impl Queues {
    /// Assigns one ready call, if there is a member for it; `end` is the least number that the next call may have.
    /// Returns whether a call was assigned.
    pub(super) fn assign_one(&mut self, data: &mut Data, observed: &mut Observed, end: CallId) -> bool {
        let any_is_plain = self.ready.len() > 0 || self.nested.has_ready();
        let open = if any_is_plain { data.members.next() } else { None };
        let has_lanes = !self.lanes.is_empty();
        if open.is_none() && !has_lanes {
            return false;
        }
        if (self.ready.len() > 1 || has_lanes) && self.levels.are_stale() {
            self.reorder(data, end);
        }
        if has_lanes && let Some((id, member)) = self.next_of_lanes(data, open.is_some()) {
            self.assign(data, observed, id, member);
            return true;
        }
        // The reservation of members may have changed since.
        let open = if any_is_plain { data.members.next() } else { None };
        open.map(|member| self.assign_next(data, observed, member)).is_some()
    }

    /// Assigns the next call of a member, to this member or to one with more of its data.
    fn assign_next(&mut self, data: &mut Data, observed: &mut Observed, member: Member) {
        if let Some(id) = self.nested.pop(self.ready.priority()) {
            let near = data.calls.get(&id).map(|call| data.choose(&call.arguments, member));
            return self.assign(data, observed, id, near.unwrap_or(member));
        }
        if !data.members.are_several() {
            let id = self.ready.pop().expect("some are ready");
            return self.assign(data, observed, id, member);
        }
        let key = self.ready.next_for(member).expect("some are ready");
        let (urgency, id) = key;
        let member = data.calls.get(&id).map_or(member, |call| {
            if is_short(urgency) {
                let (_, with) = data.whereabouts(&call.arguments);
                data.members.choose_for_short(&with, member)
            } else {
                data.choose(&call.arguments, member)
            }
        });
        self.ready.take(key, member);
        self.assign(data, observed, id, member);
    }

    fn assign(&mut self, data: &mut Data, observed: &mut Observed, id: CallId, member: Member) {
        // The call may have been cancelled since, or wait for a lost input.
        let Some(call) = data.calls.get(&id).filter(|call| call.state == CallState::Worker) else { return };
        let (task, mark, tries, arguments) =
            (call.task(), call.mark, call.failures, Arc::clone(&call.arguments));
        let manner = self.manner(data, observed, id, call);
        let has_one_run = manner.has_one_run() && call.failures == call.options.retry;
        let member = self.fit(data, id, member);
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

    /// Returns the member for a call for which this one was chosen: another one if the call could not run
    /// there. Calls of lanes keep theirs: it satisfies their demand, and was chosen with regard to such members.
    fn fit(&self, data: &Data, id: CallId, chosen: Member) -> Member {
        let (call, shunned) = (&data.calls[&id], self.shunned(id));
        let is_of_a_lane = call.demand() != Demand::NONE || call.options.spread;
        if is_of_a_lane || !shunned.contains(&chosen) {
            return chosen;
        }
        data.members.other_than(shunned).unwrap_or(chosen)
    }

    fn reorder(&mut self, data: &Data, end: CallId) {
        let first = data.calls.of_program().next().map_or(end, |(first, _)| first);
        let calls = data.calls.of_program().rev().map(|(id, call)| {
            let versions = call.written(id).filter_map(|version| data.versions.get(&version));
            (id, call.task(), versions.flat_map(|version| version.readers.iter().copied()))
        });
        self.levels.compute(first, end, calls);
        self.ready.reorder(&self.levels);
        self.reorder_lanes();
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
            once_token: call.options.is_durable().then(|| data.journal.token(id, call.mark)),
        }
    }

    pub(super) fn record_duration(&mut self, data: &mut Data, observed: &mut Observed, id: CallId, ns: u64) {
        let task = data.calls[&id].task();
        data.members.took(task, ns);
        self.levels.ended(task, ns);
        observed.of(task).ran(ns);
    }

    pub(super) fn push(&mut self, data: &mut Data, id: CallId) {
        data.calls.get_mut(&id).expect("it is unfinished").state = CallState::Worker;
        let call = &data.calls[&id];
        let (options, demand, within) = (call.options, call.demand(), data.within(id));
        let is_plain = demand == Demand::NONE && !options.spread;
        if let Some(within) = within.filter(|_| is_plain) {
            return self.nested.push(id, options.priority, within);
        }
        let level = within.map_or_else(|| self.levels.of(id), |within| NESTED_LEVEL + within.depth);
        let urgency: Urgency = urgency(options.priority, level);
        if is_plain {
            let nearness = data.nearness(id, &Arc::clone(&call.arguments));
            self.ready.push((urgency, id), nearness);
        } else {
            self.lanes.entry((demand, options.spread)).or_default().calls.insert((urgency, id));
        }
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
                troubled.shunned.push(member);
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

    fn shunned(&self, id: CallId) -> &[Member] {
        self.troubles.get(&id).map_or(&[], |troubled| &troubled.shunned)
    }

    pub(super) fn on_end(&mut self, id: CallId) {
        self.troubles.remove(&id);
    }

    pub(super) fn made(&mut self) {
        self.levels.made();
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        self.ready.on_lost(member);
    }

    /// Returns the number of waiting calls that are more urgent than a plain call, or as urgent and earlier.
    pub(super) fn before(&self, id: CallId) -> usize {
        self.ready.before(id)
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
    pub(super) fn is_empty(&self) -> bool {
        self.ready.len() == 0 && self.lanes.is_empty()
    }
}
