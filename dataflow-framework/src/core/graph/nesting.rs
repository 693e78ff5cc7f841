//! Calls with nested calls: the steps of their tasks, and their completion. A call completes once its nested calls have
//! completed and its forwarded results exist. See `nests.rs`.

use std::ops::Range;

use super::Graph;
use crate::{
    core::{
        action::Action,
        call::{Call, CallState, NewCall, Outcome, Within, Work},
        mark::Mark,
        members::{Claim, Member},
        nests::{Nest, take_one},
        steps::{Answer, Step, TaskCall},
        version::{Copies, State, Version},
    },
    failure::{Failed, Failure, Reason},
    ids::{Argument, CallId, Execution, VersionId, number_of_get, number_within},
    options::{OnFailure, Options},
    task::{Body, TaskDef, Tasks},
};

/// A placeholder for a task that is not in the table of the program.
const UNKNOWN: TaskDef = TaskDef {
    name: "unknown",
    module: module_path!(),
    signature: "",
    code: "",
    options: Options::DEFAULT,
    run: Body::Thread(|_| Err(Failed::of("it is not run"))),
    default_outputs: None,
};

impl Graph {
    /// Handles a step of the task of a call on a member. It is ignored if it belongs to another execution than
    /// the current one.
    pub(crate) fn step(&mut self, member: Member, execution: Execution, step: Step, tasks: Option<&Tasks>) {
        let Execution { call: parent, .. } = execution;
        if let Step::Begin = step {
            return self.nest_begins(member, execution);
        }
        let is_present = |nest: &Nest| nest.runs == Some((member, execution)) && nest.outcome.is_none();
        if !self.nests.by_call.get(&parent).is_some_and(is_present) {
            if let Step::Bring { position, .. } = step {
                self.drop_data_of_stopped(parent, member, position);
            }
            return;
        }
        match step {
            Step::Begin => {}
            Step::Call(call, dropped) => {
                self.make_call(parent, call, tasks);
                for version in dropped {
                    self.nests.drop_handle(&mut self.data, parent, version);
                }
            }
            Step::Bring { position, bytes, content } => {
                self.add_data(parent, member, position, (bytes, content));
            }
            Step::Retain(version) => {
                *self.nests.nest(parent).handles.entry(version).or_default() += 1;
                self.data.version_mut(version).handles += 1;
            }
            Step::Release(version) => self.nests.drop_handle(&mut self.data, parent, version),
            Step::Get(version) => self.get(member, execution, version),
            Step::Got => self.on_got(parent),
            Step::Wait(calls, is_told) => {
                self.nests.await_calls(&mut self.data, member, execution, calls, is_told);
            }
            Step::Cancel(calls) => self.cancel_positions(parent, calls),
            Step::Group(calls) => self.add_group_of_task(parent, calls),
            Step::HandOn(versions) => self.nests.nest(parent).handed_on = versions,
        }
    }

    fn nest_begins(&mut self, member: Member, execution: Execution) {
        let Execution { call: parent, .. } = execution;
        if !self.data.runs_on(parent, member) {
            return self.data.actions.push(Action::Answer(member, execution, Answer::Over));
        }
        self.nest_stops(parent);
        let mark = self.data.calls[&parent].mark.of_calls_within(parent);
        let depth = self.data.depth_of(parent);
        let nest = self.nests.by_call.entry(parent).or_default();
        nest.runs = Some((member, execution));
        (nest.mark, nest.depth) = (mark, depth);
    }

    fn make_call(&mut self, parent: CallId, call: TaskCall, tasks: Option<&Tasks>) {
        let TaskCall { position, number, task, mut options, arguments, writes, refused } = call;
        let above = &self.data.calls[&parent];
        let (tries, priority) = (above.failures, above.options.priority);
        options.priority = options.priority.saturating_add(priority);
        let (root, depth) =
            self.data.within(parent).map_or((parent, 0), |within| (within.root, within.depth));
        let within = Within { parent, root, position, depth: depth + 1 };
        let id = number_within(parent, tries, position);
        let task = task.or_else(|| tasks?.numbered(number));
        let nest = self.nests.nest(parent);
        let mark = nest.mark.then_call(id, number, &arguments, writes);
        nest.mark = mark;
        if options.on_failure == OnFailure::CancelGroup {
            nest.groups.add_cancelling(position);
        }
        for slot in 0..writes {
            *nest.handles.entry(VersionId { call: id, slot }).or_default() += 1;
        }
        if self.data.is_made(id, writes) {
            if self.data.mark_of(id) != Some(mark) {
                self.nests.fail_divergent(&self.data, parent, position, task);
            }
            return self.nests.take_over(&mut self.data, parent, id, writes);
        }
        let task = task.unwrap_or(&UNKNOWN);
        let waits_for_itself = (!options.limits.is_empty() && self.has_limits(parent)).then_some(
            "it has limits, and so has the call within which it is made: calls with limits make none, since they could wait \
             for each other",
        );
        let refused = refused.map(Reason::from).or(waits_for_itself.map(Reason::from));
        let refused = refused.map(|reason| Failure::new(task.name, id, reason));
        let known = self.replay.take_within(root, id);
        let differs = known.as_ref().is_some_and(|known| known.mark != mark);
        if let Some(member) = known.as_ref().filter(|_| differs).and_then(|known| known.runs_on) {
            self.data.members.ended(member, Claim::UNKNOWN);
        }
        let new = NewCall { task, number, options, arguments, writes, refused, merge: None, commute: None };
        let left = self.nests.remove_left_handles(parent, id, writes);
        self.add(id, new, mark, known.filter(|known| known.mark == mark), Some(within));
        // A handle of an earlier execution becomes one of this execution.
        for version in left {
            self.data.version_mut(version).handles -= 1;
        }
        if differs {
            self.nests.fail_divergent(&self.data, parent, position, Some(task));
        }
    }

    /// Returns whether a call, or a call around it, has limits.
    fn has_limits(&self, mut id: CallId) -> bool {
        while let Some(call) = self.data.calls.get(&id) {
            if !call.options.limits.is_empty() {
                return true;
            }
            let Some(within) = call.within else { break };
            id = within.parent;
        }
        false
    }

    fn add_data(&mut self, parent: CallId, member: Member, position: u64, (bytes, content): (u64, u128)) {
        let tries = self.data.calls[&parent].failures;
        let root = self.data.within(parent).map_or(parent, |within| within.root);
        let id = number_within(parent, tries, position);
        let version = VersionId { call: id, slot: 0 };
        let nest = self.nests.nest(parent);
        let mark = nest.mark.then_data(id, content);
        nest.mark = mark;
        *nest.handles.entry(version).or_default() += 1;
        let is_left = take_one(&mut nest.left, version);
        let earlier = self.replay.take_within(root, id);
        if let Some(known) = self.data.versions.get_mut(&version) {
            known.handles += u32::from(!is_left);
            if known.mark != mark {
                self.nests.fail_divergent(&self.data, parent, position, None);
            }
            return self.on_present(version, member, bytes);
        }
        let mut copies = Copies { members: vec![member], bytes };
        let earlier = earlier.filter(|earlier| earlier.mark == mark);
        let others = earlier.into_iter().flat_map(|earlier| earlier.copies.into_values());
        others.flat_map(|copies| copies.members).for_each(|member| copies.add(member));
        let depth = self.nests.nest(parent).depth;
        self.data.versions.insert(version, Version::new(State::Present(copies), mark, depth));
    }

    fn get(&mut self, member: Member, execution: Execution, version: VersionId) {
        let nest = self.nests.nest(execution.call);
        nest.gets += 1;
        let id = number_of_get(execution, nest.gets);
        nest.get = Some(id);
        let arguments = vec![Argument::Read(version)];
        let call = Call::new(Work::Get(execution), None, Mark::default(), Options::DEFAULT, arguments, 0);
        self.data.calls.insert(id, call);
        self.data.unfinished += 1;
        self.data.version_mut(version).add_dependant(Some(id));
        self.requeue(id);
        // It may have failed.
        if self.data.calls.contains_key(&id) && !self.data.versions[&version].is_with(member) {
            self.nests.lend_worker(&mut self.data, execution.call);
        }
    }

    fn on_got(&mut self, parent: CallId) {
        self.nests.reclaim_worker(&mut self.data, parent);
        if let Some(get) = self.nests.nest(parent).get.take() {
            self.forget_get(get);
        }
    }

    fn forget_get(&mut self, id: CallId) {
        let Some(call) = self.data.calls.get_mut(&id).filter(|call| call.state != CallState::Done) else {
            return;
        };
        call.state = CallState::Done;
        let arguments = std::sync::Arc::clone(&call.arguments);
        self.data.unfinished -= 1;
        self.forget_unneeded(id, &arguments);
    }

    fn add_group_of_task(&mut self, parent: CallId, calls: Range<u64>) {
        let nest = self.nests.nest(parent);
        nest.groups.add(&calls);
        let is_one = |failure: &Failure| failure.position().is_some_and(|at| calls.contains(&at));
        if nest.failures.iter().any(|failure| failure.cancels_group() && is_one(failure)) {
            self.cancel_positions(parent, calls);
        }
    }

    /// Handles the outcome of the task of a call. Returns it if the call has the same outcome now; otherwise
    /// nested calls are unfinished.
    pub(super) fn of_nest(&mut self, id: CallId, outcome: Outcome) -> Option<Outcome> {
        if let Some(Work::Get(_)) = self.data.calls.get(&id).map(|call| call.work) {
            // The task itself reports the value that it waits for.
            return None;
        }
        let Some(nest) = self.nests.by_call.get_mut(&id).filter(|nest| nest.runs.is_some()) else {
            return Some(outcome);
        };
        if let Outcome::Unfit(_) = outcome {
            // It runs again elsewhere, and makes the same calls.
            self.nests.reclaim_worker(&mut self.data, id);
            return Some(outcome);
        }
        let Outcome::Written { .. } = outcome else {
            self.nests.reclaim_worker(&mut self.data, id);
            self.nests.nest(id).runs = None;
            self.nest_ends(id);
            return Some(outcome);
        };
        nest.outcome = Some(outcome);
        self.nests.lend_worker(&mut self.data, id);
        self.complete(id);
        None
    }

    /// Completes a call whose task has ended, if all its nested calls have ended too.
    fn complete(&mut self, id: CallId) {
        let Some(nest) = self.nests.by_call.get_mut(&id) else { return };
        let Some((member, _)) = nest.runs.filter(|_| nest.outcome.is_some() && nest.unfinished.is_empty())
        else {
            return;
        };
        let handed_on = nest.handed_on.clone();
        let is_awaited = |version: &VersionId| matches!(self.data.versions[version].state, State::Awaited);
        if handed_on.iter().any(|(_, version)| is_awaited(version)) {
            return;
        }
        let gone: Vec<_> = handed_on.iter().map(|(_, version)| *version).collect();
        let gone =
            gone.into_iter().filter(|version| matches!(self.data.versions[version].state, State::Gone));
        let gone: Vec<_> = gone.collect();
        if !gone.is_empty() {
            return self.recompute_forwarded(id, &gone);
        }
        let reason = self.nests.untold(&self.data, id);
        if reason.is_none() && !self.nests.are_named(&mut self.data, id, &handed_on) {
            return;
        }
        self.nests.reclaim_worker(&mut self.data, id);
        self.data.free(id, member);
        let nest = self.nests.nest(id);
        nest.runs = None;
        let Some(Outcome::Written { bytes, ns }) = nest.outcome.take() else {
            unreachable!("other ends are at once")
        };
        if let Some(reason) = reason {
            let failure = self.data.failure_of(id, reason);
            self.nest_ends(id);
            return self.failed(id, &failure);
        }
        if let Some(ns) = ns {
            self.data.members.took(self.data.calls[&id].task(), ns);
        }
        self.hand_on(id, &handed_on);
        self.written(id, member, &bytes);
    }

    /// Recomputes versions that a task forwards. Versions in the journal are restored immediately, without the
    /// end of a call.
    fn recompute_forwarded(&mut self, id: CallId, gone: &[VersionId]) {
        for version in gone {
            self.make_again(*version);
        }
        let is_present = |version| self.data.versions.get(version).is_some_and(Version::is_present);
        if gone.iter().all(is_present) {
            self.complete(id);
        }
    }

    /// Handles a member that has renamed a version, or does not have it. Returns whether it was ordered to.
    pub(super) fn is_named(&mut self, id: VersionId, member: Member, is_done: bool) -> bool {
        let Some(nest) = self.nests.by_call.get_mut(&id.call) else { return false };
        if nest.named.get(&id.slot) != Some(&(member, false)) {
            return false;
        }
        if is_done {
            nest.named.insert(id.slot, (member, true));
        } else {
            nest.named.remove(&id.slot);
            let from = nest.handed_on.iter().find(|(slot, _)| *slot == id.slot).map(|(_, from)| *from);
            if let Some(from) = from {
                self.on_fetch_failed(from, &[member]);
            }
        }
        self.complete(id.call);
        true
    }

    /// Moves the renaming of versions from a lost member to another one.
    pub(super) fn move_names(&mut self, member: Member) {
        let is_lost = |nest: &Nest| nest.named.values().any(|(on, _)| *on == member);
        let lost = self.nests.by_call.iter().filter(|(_, nest)| is_lost(nest)).map(|(id, _)| *id);
        for id in lost.collect::<Vec<_>>() {
            if let Some(nest) = self.nests.by_call.get_mut(&id) {
                nest.named.retain(|_, (on, _)| *on != member);
                self.complete(id);
            }
        }
    }

    fn hand_on(&mut self, id: CallId, versions: &[(u32, VersionId)]) {
        for (slot, from) in versions {
            let to = VersionId { call: id, slot: *slot };
            let State::Present(Copies { bytes, .. }) = self.data.versions[from].state else {
                unreachable!("it is there, or the call has failed")
            };
            let depth = self.data.versions[from].depth;
            if let Some(version) = self.data.versions.get_mut(&to) {
                version.depth = version.depth.max(depth);
            }
            let (member, _) = self.nests.by_call[&id].named[slot];
            self.on_present(to, member, bytes);
        }
    }

    /// Updates the depth of the output of a nested call: its inputs may have been forwarded since, by a task
    /// with nested calls.
    pub(super) fn update_depth(&mut self, id: CallId) {
        if self.data.within(id).is_none() {
            return;
        }
        let depth = self.data.depth_of(id);
        self.observed.figures.depth = self.observed.figures.depth.max(depth);
        for id in self.data.calls[&id].written(id) {
            if let Some(version) = self.data.versions.get_mut(&id) {
                version.depth = version.depth.max(depth);
            }
        }
    }

    /// Notes that a call has ended. The task that has made it may have waited for it.
    pub(super) fn child_ends(&mut self, id: CallId, within: Option<Within>) {
        let Some(Within { parent, position, .. }) = within else {
            return self.replay.on_over(&mut self.data, &mut self.recording, id);
        };
        if let Some(nest) = self.nests.by_call.get_mut(&parent) {
            nest.unfinished.remove(&position);
            self.nests.recheck_waiting(&mut self.data, parent);
            self.complete(parent);
        }
    }

    /// Notes that the task of a call, if it makes calls, has to run again: its nested calls continue, and its
    /// handles are kept until it makes them again.
    pub(super) fn nest_stops(&mut self, id: CallId) {
        let Some(nest) = self.nests.by_call.get_mut(&id) else { return };
        for (version, number) in std::mem::take(&mut nest.handles) {
            *nest.left.entry(version).or_default() += number;
        }
        let (get, lends, runs) = (nest.get.take(), nest.lends, nest.runs);
        *nest = Nest {
            left: std::mem::take(&mut nest.left),
            unfinished: std::mem::take(&mut nest.unfinished),
            ..Nest::default()
        };
        if let Some((member, execution)) = runs {
            if lends {
                self.data.members.take_back(member, self.data.claim_of(id));
            }
            // The task may continue there nevertheless.
            self.data.actions.push(Action::Answer(member, execution, Answer::Over));
        }
        if let Some(get) = get {
            self.forget_get(get);
        }
    }

    pub(super) fn stop_nests_on(&mut self, member: Member) {
        let on_it = |nest: &Nest| nest.runs.is_some_and(|(on, _)| on == member);
        let lost = self.nests.by_call.iter().filter(|(_, nest)| on_it(nest)).map(|(id, _)| *id);
        for id in lost.collect::<Vec<_>>() {
            self.nest_stops(id);
        }
    }

    /// Drops the calls and data of a task that has ended or failed: unfinished nested calls are cancelled.
    pub(super) fn nest_ends(&mut self, id: CallId) {
        self.nest_stops(id);
        let Some(Nest { left, unfinished, .. }) = self.nests.by_call.remove(&id) else { return };
        for child in unfinished.into_values() {
            self.abandon(child);
        }
        for (version, number) in left {
            let known = self.data.version_mut(version);
            known.handles -= number;
            // No task will create it.
            if matches!(known.state, State::Awaited) && !self.data.calls.contains_key(&version.call) {
                self.data.version_mut(version).state = State::Gone;
            }
            self.data.forget_unless_needed(version);
        }
    }
}
