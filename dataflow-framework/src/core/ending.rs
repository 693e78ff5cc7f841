//! The end of a call, or its failure to start: its output becomes available, other calls become ready, and data
//! that is no longer needed is dropped.

use std::sync::Arc;

use super::{
    call::{CallState, Origin, Outcome},
    graph::{Action, Graph},
    members::Member,
    seen::Seen,
    version::{Copies, Source, State, Version},
};
use crate::ids::{Argument, CallId, VersionId};

impl Graph {
    /// Handles the outcome of a call that was assigned to a member. It is ignored if the call was recalled from
    /// the member since.
    pub(crate) fn ended(&mut self, id: CallId, member: Member, outcome: Outcome) {
        if self.is_unmade(id) {
            return self.ended_early(id, member, &outcome);
        }
        if !self.runs_on(id, member) {
            return self.ended_elsewhere(id, member, &outcome);
        }
        self.on_outcome(id, member, outcome);
    }

    /// Handles the output of a call on a member to which it is no longer assigned.
    fn ended_elsewhere(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        match outcome {
            Outcome::Durable { bytes, by, .. } if self.is_permanent_execution(id, *by) => {
                self.on_left_over(id, member, bytes);
            }
            Outcome::Durable { bytes, .. } => self.discard_duplicate_output(id, member, bytes.len()),
            Outcome::Ignored { bytes, .. } if self.is_only_there(id) => {
                self.discard_duplicate_output(id, member, bytes.len());
            }
            Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } => {
                self.on_left_over(id, member, bytes);
            }
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Handles the outcome of a call on the member to which it is assigned.
    fn on_outcome(&mut self, id: CallId, member: Member, outcome: Outcome) {
        self.see(Seen::TakesIn { call: id, from: member.0 });
        // Otherwise calls that its task has made are unfinished.
        let Some(outcome) = self.of_nest(id, outcome) else { return };
        self.free(id, member);
        if !matches!(outcome, Outcome::Unfit(_)) {
            self.troubles.remove(id);
        }
        let Some(outcome) = self.defer_until_recorded(id, member, outcome) else { return };
        match outcome {
            Outcome::Written { bytes, ns } | Outcome::Durable { bytes, ns, .. } => {
                self.record_duration(id, ns);
                self.written(id, member, &bytes);
            }
            Outcome::Ignored { bytes, reason } => {
                self.ignored(id, &reason);
                self.written(id, member, &bytes);
            }
            Outcome::Failed(failure) => self.failed(id, &failure),
            Outcome::Unfit(unfit) => self.on_unfit(id, member, unfit),
        }
    }

    pub(super) fn record_duration(&mut self, id: CallId, ns: u64) {
        let task = self.calls[&id].task;
        self.members.took(task, ns);
        self.levels.ended(task, ns);
        self.observed.of(task).ran(ns);
    }

    /// Handles a member that could not fetch a version for an assigned call from the members `tried`.
    /// `unchanged` are the versions that the call would have updated in place, with their sizes.
    pub(crate) fn unable(
        &mut self,
        id: CallId,
        member: Member,
        missing: VersionId,
        tried: &[Member],
        unchanged: &[(VersionId, u64)],
    ) {
        if self.runs_on(id, member) {
            self.on_fetch_failed(missing, tried);
            self.on_fetch_failed(missing, &[member]);
            self.return_worker(id, member);
            for (version, bytes) in unchanged.iter().filter(|(version, _)| *version != missing) {
                self.on_present(*version, member, *bytes);
            }
            self.drop_taken(id, member);
            self.requeue(id);
        }
    }

    pub(super) fn written(&mut self, id: CallId, member: Member, bytes: &[u64]) {
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Done;
        self.unfinished -= 1;
        let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
        self.add_end(id);
        self.update_depth(id);
        for (version, bytes) in written.zip(bytes) {
            if !self.is_handed_on(version) {
                self.on_present(version, member, *bytes);
            }
        }
        self.forget_unneeded(id, &arguments);
    }

    /// Forgets data of a completed call that is no longer needed.
    pub(super) fn forget_unneeded(&mut self, id: CallId, arguments: &[Argument]) {
        self.release_inputs(id, arguments);
        self.nest_ends(id);
        self.reductions.remove(id);
        self.chains.remove(id);
        let origin = self.calls[&id].origin;
        let written = self.calls[&id].written(id);
        if !self.has_losses || self.calls[&id].writes == 0 {
            self.forget_call(id);
        }
        // The program may have dropped its handles before.
        for version in written {
            self.forget_unless_needed(version);
        }
        // All versions may have been dropped before, if they were available.
        if self.calls.get(&id).is_some_and(|call| call.known == 0) {
            self.forget_call(id);
        }
        self.child_ends(id, origin);
    }

    /// Records that a member has a version.
    pub(super) fn on_present(&mut self, id: VersionId, member: Member, bytes: u64) {
        let Some(version) = self.versions.get_mut(&id) else {
            // When its call ran again, it was not needed; but it may be kept there.
            if !self.kept.has(id, member) {
                self.actions.push(Action::Forget(member, id));
            }
            return;
        };
        match &mut version.state {
            State::Present(copies) => {
                copies.add(member);
                return self.rescue(id);
            }
            // The program has received the failure.
            State::Failed(_) => return self.actions.push(Action::Forget(member, id)),
            state @ (State::Awaited | State::Gone) => {
                *state = State::Present(Copies { members: vec![member], bytes });
            }
        }
        if version.is_wanted && member != Member::HERE {
            let source = Source { version: id, mark: version.mark, members: vec![member] };
            self.actions.push(Action::Bring(source));
        }
        self.rescue(id);
        self.copy_to_all(id);
        let readers = self.versions[&id].readers.clone();
        self.reductions.on_available(id, &readers);
        self.on_available_for_turns(&readers);
        for reader in readers {
            if self.is_held(reader) {
                self.recount_blocked(reader);
                continue;
            }
            let call = self.calls.get_mut(&reader).expect("readers are unfinished");
            // A running call has received it already.
            if let CallState::Inputs(missing) = &mut call.state {
                *missing -= 1;
                if *missing == 0 {
                    self.push_ready(reader);
                }
            }
        }
    }

    /// Makes a call wait for its missing inputs, and lets lost ones be recomputed. The call must be registered
    /// as a reader.
    pub(super) fn requeue(&mut self, id: CallId) {
        self.see(Seen::Waits { call: id });
        self.nest_stops(id);
        let arguments = Arc::clone(&self.calls[&id].arguments);
        let (mut missing, mut gone, mut failed) = (0, Vec::new(), None);
        for input in arguments.iter().flat_map(Argument::versions) {
            let version = &self.versions[input];
            missing += usize::from(!version.is_present());
            match &version.state {
                State::Gone => gone.push(*input),
                State::Failed(failure) => failed = Some(failure.clone()),
                State::Awaited | State::Present(_) => {}
            }
        }
        if let Some(failure) = failed {
            self.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
            return self.cancel(id, &failure);
        }
        self.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
        // The member that had it, or would have updated it in place, may have been the only one that stays.
        if self.members.any_leaves() {
            arguments.iter().flat_map(Argument::versions).for_each(|input| self.rescue(*input));
        }
        if missing == 0 {
            self.push_ready(id);
        }
        for version in gone {
            // The previous input may have failed, and this call with it.
            if self.versions.get(&version).is_some_and(Version::is_awaited) {
                self.make_again(version);
            }
        }
    }

    pub(super) fn push_ready(&mut self, id: CallId) {
        if self.is_held(id) {
            return;
        }
        let call = self.calls.get_mut(&id).expect("it is unfinished");
        call.state = CallState::Worker;
        match call.origin {
            Origin::Get(execution) => self.answer_get(id, execution),
            Origin::Program | Origin::Task(_) => self.queue_for_worker(id),
        }
    }

    fn release_inputs(&mut self, id: CallId, arguments: &[Argument]) {
        for input in arguments.iter().flat_map(Argument::versions) {
            let readers = &mut self.version_mut(*input).readers;
            let position = readers.iter().position(|reader| *reader == id).expect("it was a reader");
            readers.remove(position);
            self.forget_unless_needed(*input);
        }
    }
}
