//! The steps of tasks that make calls. See `nested.rs`, and `handing_on.rs` for the completion of such calls.

use std::{collections::BTreeMap, ops::Range};

use super::{
    call::{CallState, NewCall, Origin, Within},
    failing::CANCELLED,
    graph::{Action, Graph},
    members::{Claim, Member},
    state::nests::{Answer, Nest, Step, TaskCall},
    version::{Copies, State, Version},
    waiting::UNKNOWN,
};
use crate::{
    failure::Failure,
    ids::{CallId, Execution, VersionId, number_within},
    options::OnFailure,
    task::{TaskDef, Tasks},
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
            return;
        }
        match step {
            Step::Begin => {}
            Step::Call(call, dropped) => {
                self.make_call(parent, call, tasks);
                for version in dropped {
                    self.drop_handle(parent, version);
                }
            }
            Step::Bring { position, bytes, content } => {
                self.add_data(parent, member, position, (bytes, content));
            }
            Step::Retain(version) => {
                self.take_handle(parent, version);
                self.version_mut(version).handles += 1;
            }
            Step::Release(version) => self.drop_handle(parent, version),
            Step::Get(version) => self.get(member, execution, version),
            Step::Got => self.on_got(parent),
            Step::Wait(calls, is_told) => self.await_calls(member, execution, calls, is_told),
            Step::Cancel(calls) => self.cancel_positions(parent, calls),
            Step::Group(calls) => self.add_group_of_task(parent, calls),
            Step::HandOn(versions) => self.nest(parent).handed_on = versions,
        }
    }

    /// Returns the state of a call whose task makes calls.
    pub(super) fn nest(&mut self, parent: CallId) -> &mut Nest {
        self.nests.by_call.get_mut(&parent).expect("its task makes calls")
    }

    /// Returns the call whose task has created data, or has made calls that read it.
    pub(super) fn task_with_handle(&self, data: VersionId) -> Option<CallId> {
        let has = |nest: &Nest| nest.handles.contains_key(&data) || nest.left.contains_key(&data);
        let with_handle = self.nests.by_call.iter().find(|(_, nest)| has(nest)).map(|(id, _)| *id);
        let reader = || self.versions.get(&data)?.readers.iter().find_map(|reader| self.within(*reader));
        with_handle.or_else(|| Some(reader()?.parent)).filter(|id| self.nests.by_call.contains_key(id))
    }

    fn nest_begins(&mut self, member: Member, execution: Execution) {
        let Execution { call: parent, .. } = execution;
        if !self.runs_on(parent, member) {
            return self.actions.push(Action::Answer(member, execution, Answer::Over));
        }
        self.nest_stops(parent);
        let mark = self.calls[&parent].mark.of_calls_within(parent);
        let depth = self.depth_of(parent);
        let nest = self.nests.by_call.entry(parent).or_default();
        nest.runs = Some((member, execution));
        (nest.mark, nest.depth) = (mark, depth);
    }

    /// Returns the length of the longest chain of calls that ends with this one.
    fn depth_of(&self, id: CallId) -> u64 {
        let reads = self.calls[&id].reads().map(|read| self.versions[&read].depth);
        reads.max().unwrap_or(0) + 1
    }

    /// Updates the depth of the output of a nested call: its inputs may have been forwarded since, by a task
    /// with nested calls.
    pub(super) fn update_depth(&mut self, id: CallId) {
        if self.within(id).is_none() {
            return;
        }
        let depth = self.depth_of(id);
        self.figures.depth = self.figures.depth.max(depth);
        for id in self.calls[&id].written(id) {
            if let Some(version) = self.versions.get_mut(&id) {
                version.depth = version.depth.max(depth);
            }
        }
    }

    /// Returns the position of a nested call.
    pub(super) fn within(&self, id: CallId) -> Option<Within> {
        match self.calls.get(&id)?.origin {
            Origin::Task(within) => Some(within),
            Origin::Program | Origin::Get(_) => None,
        }
    }

    fn make_call(&mut self, parent: CallId, call: TaskCall, tasks: Option<&Tasks>) {
        let TaskCall { position, number, task, mut options, arguments, writes, refused } = call;
        let above = &self.calls[&parent];
        let (tries, priority) = (above.failures, above.options.priority);
        options.priority = options.priority.saturating_add(priority);
        let (root, depth) = self.within(parent).map_or((parent, 0), |within| (within.root, within.depth));
        let within = Within { parent, root, position, depth: depth + 1 };
        let id = number_within(parent, tries, position);
        let task = task.or_else(|| tasks?.numbered(number));
        let nest = self.nest(parent);
        let mark = nest.mark.then_call(id, number, &arguments, writes);
        nest.mark = mark;
        let is_cancelled = nest.is_cancelled;
        if options.on_failure == OnFailure::CancelGroup {
            nest.groups.add_cancelling(position);
        }
        for slot in 0..writes {
            *nest.handles.entry(VersionId { call: id, slot }).or_default() += 1;
        }
        if self.is_made(id, writes) {
            if self.mark_of(id) != Some(mark) {
                self.fail_divergent(parent, position, task);
            }
            return self.take_over(parent, id, writes);
        }
        let task = task.unwrap_or(&UNKNOWN);
        let cancelled = is_cancelled.then(|| "it was cancelled".to_owned());
        let refused = refused.or(cancelled).map(|reason| Failure::new(task.name, id, reason));
        let known = self.earlier_within(root, id);
        let differs = known.as_ref().is_some_and(|known| known.mark != mark);
        if let Some(member) = known.as_ref().filter(|_| differs).and_then(|known| known.runs_on) {
            self.members.ended(member, Claim::UNKNOWN);
        }
        let new = NewCall { task, number, options, arguments, writes, refused, merge: None, commute: None };
        let left = self.remove_left_handles(parent, id, writes);
        self.add(id, new, mark, known.filter(|known| known.mark == mark), Origin::Task(within));
        // A handle of an earlier execution becomes one of this execution.
        for version in left {
            self.version_mut(version).handles -= 1;
        }
        if differs {
            self.fail_divergent(parent, position, Some(task));
        }
    }

    /// Returns whether a call of this number, or all its output, exists.
    fn is_made(&self, id: CallId, writes: u32) -> bool {
        let has = |slot| self.versions.contains_key(&VersionId { call: id, slot });
        self.calls.contains_key(&id) || (writes > 0 && (0..writes).all(has))
    }

    fn mark_of(&self, id: CallId) -> Option<super::Mark> {
        let call = self.calls.get(&id).map(|call| call.mark);
        call.or_else(|| self.versions.get(&VersionId { call: id, slot: 0 }).map(|version| version.mark))
    }

    /// Takes over the handles of a call that an earlier execution has made.
    fn take_over(&mut self, parent: CallId, id: CallId, writes: u32) {
        let left = self.remove_left_handles(parent, id, writes);
        let written = || (0..writes).map(|slot| VersionId { call: id, slot });
        let known = written().find_map(|id| self.versions.get(&id));
        let known = known.map(|version| (version.mark, version.depth));
        // All versions of a running call may have been dropped: they were written before the program restarted.
        let of_call = || self.calls.get(&id).map(|call| (call.mark, self.depth_of(id)));
        let Some((mark, depth)) = known.or_else(of_call) else { return };
        let mut states = written().filter_map(|id| self.versions.get(&id)).map(|version| &version.state);
        let failed = states.find(|state| matches!(state, State::Failed(_))).cloned();
        let again = failed.unwrap_or(State::Gone);
        if let State::Failed(failure) = &again
            && failure.reason() != CANCELLED
        {
            let failure = failure.clone();
            self.nest(parent).failures.push(failure);
        }
        for id in written().filter(|id| !left.contains(id)) {
            if let Some(version) = self.versions.get_mut(&id) {
                version.handles += 1;
                continue;
            }
            // This version was dropped, but not another one of the call.
            self.versions.insert(id, Version::new(again.clone(), mark, depth));
            if let Some(call) = self.calls.get_mut(&id.call) {
                call.known += 1;
            }
        }
    }

    /// Removes the handles of a call from those that earlier executions have left, one of each version, and
    /// returns the versions found.
    fn remove_left_handles(&mut self, parent: CallId, id: CallId, writes: u32) -> Vec<VersionId> {
        let nest = self.nest(parent);
        let written = (0..writes).map(|slot| VersionId { call: id, slot });
        written.filter(|version| take_one(&mut nest.left, *version)).collect()
    }

    fn add_data(&mut self, parent: CallId, member: Member, position: u64, (bytes, content): (u64, u128)) {
        let tries = self.calls[&parent].failures;
        let root = self.within(parent).map_or(parent, |within| within.root);
        let id = number_within(parent, tries, position);
        let version = VersionId { call: id, slot: 0 };
        let nest = self.nest(parent);
        let mark = nest.mark.then_data(id, content);
        nest.mark = mark;
        *nest.handles.entry(version).or_default() += 1;
        let is_left = take_one(&mut nest.left, version);
        let earlier = self.earlier_within(root, id);
        if let Some(known) = self.versions.get_mut(&version) {
            known.handles += u32::from(!is_left);
            if known.mark != mark {
                self.fail_divergent(parent, position, None);
            }
            return self.on_present(version, member, bytes);
        }
        let mut copies = Copies { members: vec![member], bytes };
        let earlier = earlier.filter(|earlier| earlier.mark == mark);
        let others = earlier.into_iter().flat_map(|earlier| earlier.copies.into_values());
        others.flat_map(|copies| copies.members).for_each(|member| copies.add(member));
        let depth = self.nest(parent).depth;
        self.versions.insert(version, Version::new(State::Present(copies), mark, depth));
    }

    fn take_handle(&mut self, parent: CallId, version: VersionId) {
        *self.nest(parent).handles.entry(version).or_default() += 1;
    }

    fn drop_handle(&mut self, parent: CallId, version: VersionId) {
        if take_one(&mut self.nest(parent).handles, version) {
            self.release(version);
        }
    }

    /// Fails a task that makes other calls than in its previous run, so that existing results are unusable.
    fn fail_divergent(&mut self, parent: CallId, position: u64, task: Option<&'static TaskDef>) {
        let what =
            task.map_or("data that it brings in".to_owned(), |task| format!("a call of `{}`", task.name));
        let reason = format!(
            "it was run again, and makes other calls than before: number {position} of what it does is {what} now, and \
             was something else, or had other arguments. It has to be a function of what it reads; clocks, random \
             numbers, and the order of a `HashMap` are usual reasons why it is not"
        );
        let failure = self.failure_of(parent, reason);
        self.nest(parent).fails.get_or_insert(failure);
    }

    /// Notes that a nested call will run.
    pub(super) fn child_begins(&mut self, id: CallId) {
        if let Some(Within { parent, position, .. }) = self.within(id)
            && let Some(nest) = self.nests.by_call.get_mut(&parent)
        {
            nest.unfinished.insert(position, id);
        }
    }

    /// Notes that a call has ended. The task that has made it may have waited for it.
    pub(super) fn child_ends(&mut self, id: CallId, origin: Origin) {
        match origin {
            Origin::Task(Within { parent, position, .. }) => {
                if let Some(nest) = self.nests.by_call.get_mut(&parent) {
                    nest.unfinished.remove(&position);
                    self.recheck_waiting(parent);
                    self.complete(parent);
                }
            }
            Origin::Program => self.on_earlier_over(id),
            Origin::Get(_) => {}
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
            is_cancelled: nest.is_cancelled,
            ..Nest::default()
        };
        if let Some((member, execution)) = runs {
            if lends {
                self.members.take_back(member, self.claim_of(id));
            }
            // The task may continue there nevertheless.
            self.actions.push(Action::Answer(member, execution, Answer::Over));
        }
        if let Some(get) = get {
            self.forget_get(get);
        }
    }

    /// Stops the tasks that make calls and run on a lost member.
    pub(super) fn stop_nests_on(&mut self, member: Member) {
        let on_it = |nest: &Nest| nest.runs.is_some_and(|(on, _)| on == member);
        let lost = self.nests.by_call.iter().filter(|(_, nest)| on_it(nest)).map(|(id, _)| *id);
        for id in lost.collect::<Vec<_>>() {
            self.nest_stops(id);
        }
    }

    /// Drops the calls and data of a task that has ended or failed: nested calls that have not started are
    /// cancelled.
    pub(super) fn nest_ends(&mut self, id: CallId) {
        self.nest_stops(id);
        let Some(Nest { left, unfinished, .. }) = self.nests.by_call.remove(&id) else { return };
        for child in unfinished.into_values() {
            self.abandon(child);
        }
        for (version, number) in left {
            let known = self.version_mut(version);
            known.handles -= number;
            // No task will create it.
            if matches!(known.state, State::Awaited) && !self.calls.contains_key(&version.call) {
                self.version_mut(version).state = State::Gone;
            }
            self.forget_unless_needed(version);
        }
    }

    /// Cancels a call whose task's caller has ended, or its nested calls if it runs.
    fn abandon(&mut self, id: CallId) {
        let Some(call) = self.calls.get(&id) else { return };
        if let CallState::Inputs(_) | CallState::Worker = call.state {
            let failure = self.failure_of(id, "the call has ended whose task has made it");
            return self.cancel(id, &failure);
        }
        self.cancel_within(id);
    }

    /// Cancels the calls that the task of a call makes.
    pub(super) fn cancel_within(&mut self, id: CallId) {
        let Some(nest) = self.nests.by_call.get_mut(&id) else { return };
        nest.is_cancelled = true;
        let calls: Vec<_> = nest.unfinished.values().copied().collect();
        self.cancel_each(calls);
    }

    pub(super) fn cancel_positions(&mut self, parent: CallId, positions: Range<u64>) {
        let calls: Vec<_> = self.nest(parent).unfinished.range(positions).map(|(_, id)| *id).collect();
        self.cancel_each(calls);
    }
}

/// Takes one handle from a table. Returns whether there was one.
fn take_one(handles: &mut BTreeMap<VersionId, u32>, version: VersionId) -> bool {
    let Some(number) = handles.get_mut(&version) else { return false };
    *number -= 1;
    if *number == 0 {
        handles.remove(&version);
    }
    true
}
