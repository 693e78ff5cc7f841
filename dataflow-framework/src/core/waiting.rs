//! Waits of tasks for their nested calls: the worker of a waiting task runs other calls.
//!
//! A task that waits for a value does so by a special call: it reads the value, is bound to the member of the
//! task, and needs no worker. So the value is fetched there, and recomputed when it is lost, as for any other
//! reader.

use std::ops::Range;

use super::{
    call::{Call, CallState, Manner, Origin},
    graph::{Action, Assignment, Graph},
    mark::Mark,
    members::Member,
    state::{
        groups::first_of,
        nests::{Answer, Nest},
    },
    version::{Source, State},
};
use crate::{
    failure::{Failed, Failure},
    ids::{Argument, CallId, Execution, VersionId, number_of_get},
    invocation::Invocation,
    options::Options,
    task::TaskDef,
};

/// The task of the call by which a task waits for a value.
pub(crate) const GET: TaskDef = TaskDef {
    name: "Data::get",
    module: module_path!(),
    signature: "",
    options: Options::DEFAULT,
    run: nothing,
    default_outputs: None,
};

/// A placeholder for a task that is not in the table of the program.
pub(super) const UNKNOWN: TaskDef = TaskDef { name: "unknown", ..GET };

fn nothing(_: &mut Invocation<'_>) -> Result<(), Failed> {
    Err(Failed::of("it is not run"))
}

impl Graph {
    pub(super) fn get(&mut self, member: Member, execution: Execution, version: VersionId) {
        let nest = self.nest(execution.call);
        nest.gets += 1;
        let id = number_of_get(execution, nest.gets);
        nest.get = Some(id);
        let call = Call {
            task: &GET,
            origin: Origin::Get(execution),
            mark: Mark::default(),
            options: Options::DEFAULT,
            arguments: [Argument::Read(version)].into(),
            writes: 0,
            known: 0,
            state: CallState::Inputs(0),
            store: 0,
            failures: 0,
            deaths: 0,
            is_earlier: false,
            taken: Vec::new(),
        };
        self.calls.insert(id, call);
        self.unfinished += 1;
        let read = self.version_mut(version);
        read.dependants += 1;
        read.readers.push(id);
        self.requeue(id);
        // It may have failed.
        if self.calls.contains_key(&id) && !self.versions[&version].is_with(member) {
            self.lend_worker(execution.call);
        }
    }

    /// Answers the task that waits for a value, once it is available.
    pub(super) fn answer_get(&mut self, id: CallId, execution: Execution) {
        let Some((member, _)) = self.nest(execution.call).runs else { return };
        let call = self.calls.get_mut(&id).expect("it waits");
        call.state = CallState::Runs(member);
        let arguments = std::sync::Arc::clone(&call.arguments);
        let mut elsewhere = Vec::new();
        for id in arguments.iter().flat_map(Argument::versions) {
            let version = &self.versions[id];
            if let State::Present(copies) = &version.state
                && !copies.members.contains(&member)
            {
                let members = copies.members.clone();
                elsewhere.push(Source { version: *id, mark: version.mark, members });
            }
        }
        let assignment = Assignment {
            call: id,
            task: &GET,
            mark: Mark::default(),
            tries: 0,
            reader: Some(execution),
            arguments,
            in_place: Vec::new(),
            manner: Manner::default(),
            elsewhere,
        };
        self.actions.push(Action::Assign(member, assignment));
    }

    /// Handles a task that has received its value.
    pub(super) fn on_got(&mut self, parent: CallId) {
        self.reclaim_worker(parent);
        if let Some(get) = self.nest(parent).get.take() {
            self.forget_get(get);
        }
    }

    /// Handles the failure of a value for which a task waits.
    pub(super) fn get_fails(&mut self, execution: Execution, failure: &Failure) {
        let Some(nest) = self.nests.by_call.get_mut(&execution.call) else { return };
        let Some((member, _)) = nest.runs.filter(|(_, runs)| *runs == execution) else { return };
        nest.get = None;
        failure.see();
        self.reclaim_worker(execution.call);
        self.actions.push(Action::Answer(member, execution, Answer::Failed(failure.told())));
    }

    /// Removes the call by which a task waits for a value.
    pub(super) fn forget_get(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.state != CallState::Done) else { return };
        call.state = CallState::Done;
        let arguments = std::sync::Arc::clone(&call.arguments);
        self.unfinished -= 1;
        self.forget_unneeded(id, &arguments);
    }

    pub(super) fn await_calls(
        &mut self,
        member: Member,
        execution: Execution,
        calls: Range<u64>,
        is_told: bool,
    ) {
        let parent = execution.call;
        self.nest(parent).awaits = Some((calls, is_told));
        self.recheck_waiting(parent);
        if self.nest(parent).awaits.is_some() {
            debug_assert!(self.runs_on(parent, member), "its steps are passed over otherwise");
            self.lend_worker(parent);
        }
    }

    /// Answers a task that waits for its calls, if they have ended.
    pub(super) fn recheck_waiting(&mut self, parent: CallId) {
        let Some(nest) = self.nests.by_call.get_mut(&parent) else { return };
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
        self.reclaim_worker(parent);
        self.actions.push(Action::Answer(member, execution, Answer::Ended(first)));
    }

    /// Lends the worker of a task to other calls while the task waits, or after it has ended.
    pub(super) fn lend_worker(&mut self, parent: CallId) {
        let nest = self.nest(parent);
        if !std::mem::replace(&mut nest.lends, true)
            && let Some((member, _)) = nest.runs
        {
            self.members.lend(member, self.claim_of(parent));
        }
    }

    pub(super) fn reclaim_worker(&mut self, parent: CallId) {
        let nest = self.nest(parent);
        if std::mem::take(&mut nest.lends)
            && let Some((member, _)) = nest.runs
        {
            self.members.take_back(member, self.claim_of(parent));
        }
    }

    /// Handles a member that has one assigned call less, which has not started.
    pub(super) fn return_worker(&mut self, id: CallId, member: Member) {
        let needs_none = |nest: &Nest| nest.lends;
        if self.nests.by_call.get(&id).is_some_and(needs_none) {
            self.reclaim_worker(id);
        }
        if !matches!(self.calls[&id].origin, Origin::Get(_)) {
            self.free(id, member);
        }
    }
}
