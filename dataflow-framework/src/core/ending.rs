//! What follows when a call has ended, or could not begin: what it has written is there, others become ready, and what
//! nobody needs any more is forgotten.

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
    /// Tells how a call has ended that was assigned to a member. That is passed over if it was taken from the member
    /// meanwhile.
    pub(crate) fn ended(&mut self, id: CallId, member: Member, outcome: Outcome) {
        if self.is_unmade(id) {
            return self.ended_early(id, member, &outcome);
        }
        if !self.runs_on(id, member) {
            return self.ended_elsewhere(id, member, &outcome);
        }
        self.takes_in(id, member, outcome);
    }

    /// Takes in what a call has left on a member to which it is not assigned any more.
    fn ended_elsewhere(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        match outcome {
            Outcome::Durable { bytes, by, .. } if self.counts_for_ever(id, *by) => {
                self.is_left_over(id, member, bytes);
            }
            Outcome::Durable { bytes, .. } => self.is_not_for_ever(id, member, bytes.len()),
            Outcome::Ignored { bytes, .. } if self.is_only_there(id) => {
                self.is_not_for_ever(id, member, bytes.len());
            }
            Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } => {
                self.is_left_over(id, member, bytes);
            }
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Takes in how a call has ended on the member to which it is assigned.
    fn takes_in(&mut self, id: CallId, member: Member, outcome: Outcome) {
        self.see(Seen::TakesIn { call: id, from: member.0 });
        // Otherwise calls that its task has made have not ended.
        let Some(outcome) = self.of_nest(id, outcome) else { return };
        self.frees(id, member);
        if !matches!(outcome, Outcome::Unfit(_)) {
            self.troubles.are_over(id);
        }
        let Some(outcome) = self.is_to_be_recorded(id, member, outcome) else { return };
        match outcome {
            Outcome::Written { bytes, ns } | Outcome::Durable { bytes, ns, .. } => {
                self.has_taken(id, ns);
                self.written(id, member, &bytes);
            }
            Outcome::Ignored { bytes, reason } => {
                self.ignored(id, &reason);
                self.written(id, member, &bytes);
            }
            Outcome::Failed(failure) => self.failed(id, &failure),
            Outcome::Unfit(unfit) => self.unfit(id, member, unfit),
        }
    }

    /// Notes how long a call has taken.
    pub(super) fn has_taken(&mut self, id: CallId, ns: u64) {
        let task = self.calls[&id].task;
        self.members.took(task, ns);
        self.levels.ended(task, ns);
        self.observed.of(task).ran(ns);
    }

    /// Tells that a member could not get a version for a call that was assigned to it from those that were `tried`.
    /// `unchanged` are the versions that the call would have changed in place, with their sizes.
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
            self.gives_worker_back(id, member);
            for (version, bytes) in unchanged.iter().filter(|(version, _)| *version != missing) {
                self.is_there(*version, member, *bytes);
            }
            self.misses_what_it_took(id, member);
            self.begins_again(id);
        }
    }

    pub(super) fn written(&mut self, id: CallId, member: Member, bytes: &[u64]) {
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Done;
        self.unfinished -= 1;
        let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
        self.has_ended(id);
        self.deepens(id);
        for (version, bytes) in written.zip(bytes) {
            if !self.is_handed_on(version) {
                self.is_there(version, member, *bytes);
            }
        }
        self.is_over(id, &arguments);
    }

    /// Forgets what nobody needs of a call that has ended.
    pub(super) fn is_over(&mut self, id: CallId, arguments: &[Argument]) {
        self.release_inputs(id, arguments);
        self.nest_ends(id);
        self.reductions.is_over(id);
        self.chains.is_over(id);
        let origin = self.calls[&id].origin;
        let written = self.calls[&id].written(id);
        if !self.has_losses || self.calls[&id].writes == 0 {
            self.forget_call(id);
        }
        // The program may have dropped its handles before.
        for version in written {
            self.forget_unless_needed(version);
        }
        // All of them may have been forgotten before, if they were there.
        if self.calls.get(&id).is_some_and(|call| call.known == 0) {
            self.forget_call(id);
        }
        self.child_ends(id, origin);
    }

    /// Notes that a member has a version.
    pub(super) fn is_there(&mut self, id: VersionId, member: Member, bytes: u64) {
        let Some(version) = self.versions.get_mut(&id) else {
            // When its call was run again, it was not needed; but it may be kept there.
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
            // The program was told so.
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
        self.reductions.is_there(id, &readers);
        self.is_there_for_turns(&readers);
        for reader in readers {
            if self.is_held(reader) {
                self.waits_as_before(reader);
                continue;
            }
            let call = self.calls.get_mut(&reader).expect("readers are unfinished");
            // One that runs has got it already.
            if let CallState::Inputs(missing) = &mut call.state {
                *missing -= 1;
                if *missing == 0 {
                    self.is_ready(reader);
                }
            }
        }
    }

    /// Makes a call, which is a reader of what it reads, wait for those that are not there, and has those made again
    /// that are gone.
    pub(super) fn begins_again(&mut self, id: CallId) {
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
        // The member that had it, or would have changed it in place, may have been the only one that stays.
        if self.members.any_leaves() {
            arguments.iter().flat_map(Argument::versions).for_each(|input| self.rescue(*input));
        }
        if missing == 0 {
            self.is_ready(id);
        }
        for version in gone {
            // The one before may have failed, and this call with it.
            if self.versions.get(&version).is_some_and(Version::is_awaited) {
                self.make_again(version);
            }
        }
    }

    pub(super) fn is_ready(&mut self, id: CallId) {
        if self.is_held(id) {
            return;
        }
        let call = self.calls.get_mut(&id).expect("it is unfinished");
        call.state = CallState::Worker;
        match call.origin {
            Origin::Get(execution) => self.is_got(id, execution),
            Origin::Program | Origin::Task(_) => self.waits_for_worker(id),
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
