//! Nested calls: their numbers, and the state of a task that makes calls.
//!
//! Nested calls are calls of the graph like those of the program. A task reports each in *steps*, from the node
//! where it runs, and waits there for its inputs, which arrive in *answers*.
//!
//! *Numbers.* The number of a nested call is the hash of its path: of the call whose task makes it, the number
//! of failures of that call, and the position among the task's steps. So it is the same whenever the task runs
//! again, and depends on no clock. Its highest bit is set, which distinguishes it from a call of the program.
//! Two calls with the same number would have different marks, which fails the task that makes the second; with
//! a million calls the probability is one in twenty million.
//!
//! *Repeated runs.* When the node of such a task is lost, the task runs again, and makes the same calls. Its
//! handles are kept until then, so that its calls continue, and their output stays; each handle is taken over
//! when the call that writes it is made again. Nothing is left of the task when it ends: its handles are
//! released, and its call completes only after all nested calls. If it fails, unfinished nested calls are
//! cancelled.
//!
//! *A restarted program* also restarts such tasks: an execution of an earlier run ends at its next step.
//! Completed nested calls are known from the data and history of the nodes, like those of the program; see
//! `replay.rs`.

use std::{collections::BTreeMap, ops::Range};

use super::{
    action::{Action, Assignment},
    call::{CallState, Manner, Outcome, Within, Work},
    data::Data,
    groups::{Groups, first_of},
    mark::Mark,
    members::Member,
    steps::Answer,
    version::{Copies, State, Version},
};
use crate::{
    failure::{Failed, Failure, Reason},
    ids::{Argument, CallId, Execution, VersionId},
    task::TaskDef,
};

/// A call whose task makes calls.
#[derive(Debug, Default)]
pub(super) struct Nest {
    /// The member of the task, and its execution; `None` if it has to run again.
    pub(super) runs: Option<(Member, Execution)>,
    /// The mark of its last step.
    pub(super) mark: Mark,
    pub(super) depth: u64,
    pub(super) handles: BTreeMap<VersionId, u32>,
    /// The handles of earlier executions that this one has not taken over.
    pub(super) left: BTreeMap<VersionId, u32>,
    /// Its unfinished calls, by their positions.
    pub(super) unfinished: BTreeMap<u64, CallId>,
    pub(super) failures: Vec<Failure>,
    /// The call by which it waits for a value.
    pub(super) get: Option<CallId>,
    /// The number of values for which this execution has waited.
    pub(super) gets: u64,
    /// The calls for which it waits, and whether it receives their failures.
    pub(super) awaits: Option<(Range<u64>, bool)>,
    /// Whether its worker runs other calls now.
    pub(super) lends: bool,
    /// The outcome of its task, once it has ended.
    pub(super) outcome: Option<Outcome>,
    pub(super) handed_on: Vec<(u32, VersionId)>,
    /// The members that rename its forwarded output, by slots, and whether that is done.
    pub(super) named: BTreeMap<u32, (Member, bool)>,
    /// The failure of the call, whatever the outcome of its task.
    pub(super) fails: Option<Failure>,
    pub(super) groups: Groups,
}

/// The calls whose tasks make calls.
#[derive(Debug, Default)]
pub(super) struct Nests {
    pub(super) by_call: BTreeMap<CallId, Nest>,
}

impl Nests {
    pub(super) fn nest(&mut self, parent: CallId) -> &mut Nest {
        self.by_call.get_mut(&parent).expect("its task makes calls")
    }

    /// Returns the call whose task has created data, or has made calls that read it.
    pub(super) fn task_with_handle(&self, data: &Data, id: VersionId) -> Option<CallId> {
        let has = |nest: &Nest| nest.handles.contains_key(&id) || nest.left.contains_key(&id);
        let with_handle = self.by_call.iter().find(|(_, nest)| has(nest)).map(|(id, _)| *id);
        let reader = || data.versions.get(&id)?.readers.iter().find_map(|reader| data.within(*reader));
        with_handle.or_else(|| Some(reader()?.parent)).filter(|id| self.by_call.contains_key(id))
    }

    pub(super) fn child_begins(&mut self, data: &Data, id: CallId) {
        if let Some(Within { parent, position, .. }) = data.within(id)
            && let Some(nest) = self.by_call.get_mut(&parent)
        {
            nest.unfinished.insert(position, id);
        }
    }

    pub(super) fn drop_handle(&mut self, data: &mut Data, parent: CallId, version: VersionId) {
        if take_one(&mut self.nest(parent).handles, version) {
            data.release(version);
        }
    }

    /// Removes the handles of a call from those that earlier executions have left, one of each version, and
    /// returns the versions found.
    pub(super) fn remove_left_handles(&mut self, parent: CallId, id: CallId, writes: u32) -> Vec<VersionId> {
        let nest = self.nest(parent);
        let written = (0..writes).map(|slot| VersionId { call: id, slot });
        written.filter(|version| take_one(&mut nest.left, *version)).collect()
    }

    /// Takes over the handles of a call that an earlier execution has made.
    pub(super) fn take_over(&mut self, data: &mut Data, parent: CallId, id: CallId, writes: u32) {
        let left = self.remove_left_handles(parent, id, writes);
        let written = || (0..writes).map(|slot| VersionId { call: id, slot });
        let known = written().find_map(|id| data.versions.get(&id));
        let known = known.map(|version| (version.mark, version.depth));
        // All versions of a running call may have been dropped: they were written before the program restarted.
        let of_call = || data.calls.get(&id).map(|call| (call.mark, data.depth_of(id)));
        let Some((mark, depth)) = known.or_else(of_call) else { return };
        let mut states = written().filter_map(|id| data.versions.get(&id)).map(|version| &version.state);
        let failed = states.find(|state| matches!(state, State::Failed(_))).cloned();
        let again = failed.unwrap_or(State::Gone);
        if let State::Failed(failure) = &again
            && !failure.cause().is_cancelled()
        {
            let failure = failure.clone();
            self.nest(parent).failures.push(failure);
        }
        for id in written().filter(|id| !left.contains(id)) {
            if let Some(version) = data.versions.get_mut(&id) {
                version.handles += 1;
                continue;
            }
            // This version was dropped, but not another one of the call.
            data.versions.insert(id, Version::new(again.clone(), mark, depth));
            if let Some(call) = data.calls.get_mut(&id.call) {
                call.known += 1;
            }
        }
    }

    /// Fails a task that makes other calls than in its previous run, so that existing results are unusable.
    pub(super) fn fail_divergent(
        &mut self,
        data: &Data,
        parent: CallId,
        position: u64,
        task: Option<&'static TaskDef>,
    ) {
        let what =
            task.map_or("data that it brings in".to_owned(), |task| format!("a call of `{}`", task.name));
        let reason = format!(
            "it was run again, and makes other calls than before: number {position} of what it does is {what} now, and \
             was something else, or had other arguments. It has to be a function of what it reads; clocks, random \
             numbers, and the order of a `HashMap` are usual reasons why it is not"
        );
        let failure = data.failure_of(parent, reason);
        self.nest(parent).fails.get_or_insert(failure);
    }

    /// Lends the worker of a task to other calls while the task waits, or after it has ended.
    pub(super) fn lend_worker(&mut self, data: &mut Data, parent: CallId) {
        let nest = self.nest(parent);
        if !std::mem::replace(&mut nest.lends, true)
            && let Some((member, _)) = nest.runs
        {
            data.members.lend(member, data.claim_of(parent));
        }
    }

    pub(super) fn reclaim_worker(&mut self, data: &mut Data, parent: CallId) {
        let nest = self.nest(parent);
        if std::mem::take(&mut nest.lends)
            && let Some((member, _)) = nest.runs
        {
            data.members.take_back(member, data.claim_of(parent));
        }
    }

    /// Handles a member that has one assigned call less, which has not started.
    pub(super) fn return_worker(&mut self, data: &mut Data, id: CallId, member: Member) {
        let needs_none = |nest: &Nest| nest.lends;
        if self.by_call.get(&id).is_some_and(needs_none) {
            self.reclaim_worker(data, id);
        }
        if let Work::Task(_) = data.calls[&id].work {
            data.free(id, member);
        }
    }

    pub(super) fn answer_get(&mut self, data: &mut Data, id: CallId, execution: Execution) {
        let call = data.calls.get_mut(&id).expect("it waits");
        call.state = CallState::Worker;
        let Some((member, _)) = self.nest(execution.call).runs else { return };
        call.state = CallState::Runs(member);
        let arguments = std::sync::Arc::clone(&call.arguments);
        let reads = arguments.iter().flat_map(Argument::versions);
        let elsewhere = reads.filter_map(|read| data.source_for(*read, member)).collect();
        let assignment = Assignment {
            call: id,
            work: Work::Get(execution),
            mark: Mark::default(),
            tries: 0,
            arguments,
            in_place: Vec::new(),
            manner: Manner::default(),
            elsewhere,
        };
        data.actions.push(Action::Assign(member, assignment));
    }

    /// Handles the failure of a value for which a task waits.
    pub(super) fn get_fails(&mut self, data: &mut Data, execution: Execution, failure: &Failure) {
        let Some(nest) = self.by_call.get_mut(&execution.call) else { return };
        let Some((member, _)) = nest.runs.filter(|(_, runs)| *runs == execution) else { return };
        nest.get = None;
        failure.see();
        self.reclaim_worker(data, execution.call);
        data.actions.push(Action::Answer(member, execution, Answer::Failed(failure.told())));
    }

    pub(super) fn await_calls(
        &mut self,
        data: &mut Data,
        member: Member,
        execution: Execution,
        calls: Range<u64>,
        is_told: bool,
    ) {
        let parent = execution.call;
        self.nest(parent).awaits = Some((calls, is_told));
        self.recheck_waiting(data, parent);
        if self.nest(parent).awaits.is_some() {
            debug_assert!(data.runs_on(parent, member), "its steps are passed over otherwise");
            self.lend_worker(data, parent);
        }
    }

    pub(super) fn recheck_waiting(&mut self, data: &mut Data, parent: CallId) {
        let Some(nest) = self.by_call.get_mut(&parent) else { return };
        let (Some((member, execution)), Some((calls, is_told))) = (nest.runs, nest.awaits.clone()) else {
            return;
        };
        if nest.unfinished.range(calls.clone()).next().is_some() {
            return;
        }
        nest.awaits = None;
        let is_one = |failure: &&Failure| failure.position().is_some_and(|at| calls.contains(&at));
        let failed: Vec<_> = nest.failures.iter().filter(is_one).filter(|_| is_told).cloned().collect();
        failed.iter().for_each(Failure::see);
        let first = first_of(failed.iter(), Failure::position).map(Failure::told);
        self.reclaim_worker(data, parent);
        data.actions.push(Action::Answer(member, execution, Answer::Ended(first)));
    }

    /// Lets members keep the forwarded versions of a task as the output of its call. Returns whether that is
    /// done everywhere: a member that is asked for the new name must have it.
    pub(super) fn are_named(&mut self, data: &mut Data, id: CallId, versions: &[(u32, VersionId)]) -> bool {
        let mark = data.calls[&id].mark;
        for (slot, from) in versions {
            let State::Present(Copies { members, .. }) = &data.versions[from].state else { continue };
            let here = members.contains(&Member::HERE).then_some(Member::HERE);
            let Some(member) = here.or(members.first().copied()) else { continue };
            let nest = self.by_call.get_mut(&id).expect("its task makes calls");
            if !nest.named.contains_key(slot) {
                nest.named.insert(*slot, (member, member == Member::HERE));
                data.actions.push(Action::Alias(member, *from, VersionId { call: id, slot: *slot }, mark));
            }
        }
        self.nest(id).named.values().all(|(_, is_done)| *is_done)
    }

    /// Returns the reason why a call fails although its task has returned normally: a failure that its
    /// forwarded output depends on, or one that the task has not received.
    pub(super) fn untold(&mut self, data: &Data, id: CallId) -> Option<Reason> {
        let nest = &self.by_call[&id];
        if let Some(failure) = &nest.fails {
            return Some(failure.cause().clone());
        }
        let handed_on = nest.handed_on.iter().find_map(|(_, version)| match &data.versions[version].state {
            State::Failed(failure) => Some(failure),
            _ => None,
        });
        let failure = handed_on.or_else(|| nest.failures.iter().find(|failure| !failure.is_seen()))?;
        Some(Failed::of(failure).into())
    }

    /// Returns whether a version written here is forwarded output of a task.
    pub(super) fn is_handed_on(&self, version: VersionId) -> bool {
        let nest = self.by_call.get(&version.call);
        nest.is_some_and(|nest| nest.handed_on.iter().any(|(slot, _)| *slot == version.slot))
    }
}

/// Takes one handle from a table. Returns whether there was one.
pub(super) fn take_one(handles: &mut BTreeMap<VersionId, u32>, version: VersionId) -> bool {
    let Some(number) = handles.get_mut(&version) else { return false };
    *number -= 1;
    if *number == 0 {
        handles.remove(&version);
    }
    true
}
