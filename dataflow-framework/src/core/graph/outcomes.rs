//! The outcome of a call, or its failure to start: its output becomes available, other calls become ready or fail, and
//! data that is no longer needed is dropped.

use std::sync::Arc;

use super::Graph;
use crate::{
    core::{
        action::Action,
        call::{CallState, Cause, Outcome, Unfit, Work},
        journal::{fact::Fact, recording::After},
        members::Member,
        seen::Seen,
        version::{Copies, Source, State, Version},
    },
    failure::Failure,
    ids::{Argument, CallId, VersionId},
    options::OnFailure,
};

impl Graph {
    /// Handles the outcome of a call that was assigned to a member. It is ignored if the call was recalled from
    /// the member since.
    pub(crate) fn ended(&mut self, id: CallId, member: Member, outcome: Outcome) {
        if self.is_of_stopped(id, member, &outcome) {
            return;
        }
        if self.replay.is_unmade(&self.data, id) {
            return self.replay.ended_early(&mut self.data, &mut self.recording, id, member, &outcome);
        }
        if !self.data.runs_on(id, member) {
            return self.ended_elsewhere(id, member, &outcome);
        }
        self.on_outcome(id, member, outcome);
    }

    /// Handles the output of a call on a member to which it is no longer assigned.
    fn ended_elsewhere(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        match outcome {
            Outcome::Durable { bytes, by, .. } if self.data.journal.is_permanent_execution(id, *by) => {
                self.on_left_over(id, member, bytes);
            }
            Outcome::Durable { bytes, .. } => self.data.discard_duplicate_output(id, member, bytes.len()),
            Outcome::Ignored { bytes, .. } if self.data.journal.is_only_there(id) => {
                self.data.discard_duplicate_output(id, member, bytes.len());
            }
            Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } => {
                self.on_left_over(id, member, bytes);
            }
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Handles the outcome of a call on the member to which it is assigned.
    fn on_outcome(&mut self, id: CallId, member: Member, outcome: Outcome) {
        self.observed.see(Seen::TakesIn { call: id, from: member.0 });
        // Otherwise calls that its task has made are unfinished.
        let Some(outcome) = self.of_nest(id, outcome) else { return };
        self.data.free(id, member);
        if let Outcome::Failed(_) = outcome {
            self.queues.on_failed(id, member);
        }
        let Some(outcome) = self.defer_until_recorded(id, member, outcome) else { return };
        match outcome {
            Outcome::Durable { bytes, ns, .. } => {
                self.queues.record_duration(&mut self.data, &mut self.observed, id, Some(ns));
                self.written(id, member, &bytes);
            }
            Outcome::Written { bytes, ns } => {
                self.queues.record_duration(&mut self.data, &mut self.observed, id, ns);
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

    /// Handles the outcome of a call that is no longer assigned, if it must be recorded before it becomes
    /// visible. Returns any other outcome.
    fn defer_until_recorded(&mut self, id: CallId, member: Member, outcome: Outcome) -> Option<Outcome> {
        if !self.data.journal.is_on() {
            return Some(match outcome {
                Outcome::Durable { bytes, ns, .. } => Outcome::Written { bytes, ns: Some(ns) },
                other => other,
            });
        }
        match outcome {
            Outcome::Durable { bytes, ns, by, values } => {
                self.queues.record_duration(&mut self.data, &mut self.observed, id, Some(ns));
                self.recording.settle(&mut self.data, id, (member, by), bytes, values);
                None
            }
            Outcome::Ignored { bytes, reason } if !self.data.journal.history().is_ignored(id) => {
                self.recording.record(
                    &mut self.data,
                    Fact::Ignored(id),
                    id,
                    After::Ignored { member, bytes, reason },
                );
                None
            }
            other => Some(other),
        }
    }

    fn on_unfit(&mut self, id: CallId, member: Member, unfit: Unfit) {
        let Unfit { reason, unchanged, cause } = unfit;
        let damaged = if let Cause::Damaged(version) = cause { Some(version) } else { None };
        for (version, bytes) in unchanged {
            if Some(version) != damaged {
                self.on_present(version, member, bytes);
            }
        }
        self.data.drop_taken(id, member);
        if let Some(version) = damaged {
            self.on_damaged(version, member, &reason.text);
        }
        let task = self.data.calls[&id].work.name();
        if self.queues.on_unfit(&mut self.data, id, member, cause) {
            return self.failed(id, &Failure::new(task, id, reason));
        }
        tracing::warn!(
            task,
            call = id,
            reason = reason.text,
            "a call cannot run on a node, and is tried again"
        );
        self.requeue(id);
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
        if self.has_stopped(id, member, unchanged) {
            return;
        }
        if self.data.runs_on(id, member) {
            self.on_fetch_failed(missing, tried);
            self.on_fetch_failed(missing, &[member]);
            self.nests.return_worker(&mut self.data, id, member);
            for (version, bytes) in unchanged.iter().filter(|(version, _)| *version != missing) {
                self.on_present(*version, member, *bytes);
            }
            self.data.drop_taken(id, member);
            self.requeue(id);
        }
    }

    /// Handles a recorded fact, which may become visible from now on.
    pub(crate) fn journalled(&mut self, fact: Fact) {
        let calls = fact.calls();
        match fact {
            Fact::Ended(ended) => {
                self.recording.on_ended(&ended);
                self.data.journal.on_durable(ended);
            }
            Fact::Merged { call, parts } => {
                self.reductions.order.on_recorded(&mut self.data, &mut self.queues, call, parts);
            }
            Fact::Commuted { call, with } => {
                self.chains.order.on_recorded(&mut self.data, &mut self.queues, call, with);
            }
            Fact::Paused { root, call, failures, until_us } if self.data.is_unfinished(call) => {
                self.queues.pauses.record((root, call), failures, until_us);
            }
            Fact::Kept { .. } | Fact::History(_) => self.data.journal.on_preserved(),
            _ => {}
        }
        for id in calls {
            match self.recording.take(id) {
                Some(After::Written { members, bytes }) => {
                    self.make_outcome_permanent(id, &members, &bytes);
                    self.data.cut_lineage(id);
                }
                Some(After::Ignored { member, bytes, reason }) => {
                    self.ignored(id, &reason);
                    if self.data.members.has(member) && !self.recording.is_any_damaged(id, member) {
                        self.written(id, member, &bytes);
                    } else {
                        // The call writes the defaults again.
                        self.data.discard_duplicate_output(id, member, bytes.len());
                        self.requeue(id);
                    }
                }
                Some(After::Failed(failure)) => {
                    self.notify_of_cancellation(id);
                    self.fail_permanently(id, &failure);
                }
                None => {}
            }
            self.recording.forget_damages(id);
        }
    }

    fn make_outcome_permanent(&mut self, id: CallId, members: &[Member], bytes: &[u64]) {
        let call = self.data.calls.get_mut(&id).expect("it was recorded");
        call.state = CallState::Done;
        let arguments = Arc::clone(&call.arguments);
        let versions: Vec<_> = call.written(id).collect();
        self.data.unfinished -= 1;
        self.data.add_end(id);
        for (version, bytes) in versions.iter().zip(bytes) {
            for member in members {
                if self.data.members.has(*member) && !self.recording.is_damaged(*version, *member) {
                    self.on_present(*version, *member, *bytes);
                }
            }
            // The version may be lost or damaged by now.
            let known = self.data.versions.get_mut(version).map(|version| &mut version.state);
            if let Some(state @ State::Awaited) = known {
                *state = State::Gone;
            }
        }
        self.forget_unneeded(id, &arguments);
        for version in versions {
            let known = self.data.versions.get(&version);
            if known.is_some_and(|known| known.is_awaited() && matches!(known.state, State::Gone)) {
                self.make_again(version);
            }
        }
    }

    pub(super) fn written(&mut self, id: CallId, member: Member, bytes: &[u64]) {
        let call = self.data.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Done;
        self.data.unfinished -= 1;
        let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
        self.data.add_end(id);
        self.update_depth(id);
        for (version, bytes) in written.zip(bytes) {
            if !self.nests.is_handed_on(version) {
                self.on_present(version, member, *bytes);
            }
        }
        self.forget_unneeded(id, &arguments);
    }

    pub(super) fn forget_unneeded(&mut self, id: CallId, arguments: &[Argument]) {
        self.data.release_inputs(id, arguments);
        let within = self.data.within(id);
        self.queues.on_end(within.map_or(id, |within| within.root), id);
        self.nest_ends(id);
        self.reductions.remove(id);
        self.chains.remove(id);
        let written = self.data.calls[&id].written(id);
        if !self.data.has_losses || self.data.calls[&id].writes == 0 {
            self.data.forget_call(id);
        }
        // The program may have dropped its handles before.
        for version in written {
            self.data.forget_unless_needed(version);
        }
        // All versions may have been dropped before, if they were available.
        if self.data.calls.get(&id).is_some_and(|call| call.known == 0) {
            self.data.forget_call(id);
        }
        self.child_ends(id, within);
    }

    /// Records that a member has a version.
    pub(super) fn on_present(&mut self, id: VersionId, member: Member, bytes: u64) {
        let Some(version) = self.data.versions.get_mut(&id) else {
            // When its call ran again, it was not needed; but it may be kept there.
            if !self.data.kept.has(id, member) {
                self.data.actions.push(Action::Forget(member, id));
            }
            return;
        };
        match &mut version.state {
            State::Present(copies) => {
                copies.add(member);
                return self.data.rescue(id);
            }
            // The program has received the failure.
            State::Failed(_) => return self.data.actions.push(Action::Forget(member, id)),
            state @ (State::Awaited | State::Gone) => {
                *state = State::Present(Copies { members: vec![member], bytes });
            }
        }
        if version.is_wanted && member != Member::HERE {
            let source = Source { version: id, mark: version.mark, members: vec![member] };
            self.data.actions.push(Action::Bring(source));
        }
        self.data.rescue(id);
        self.data.copy_to_all(id);
        let readers = self.data.versions[&id].readers.clone();
        self.reductions.on_available(id, &readers);
        self.chains.on_available_for_turns(&self.data, &readers);
        for reader in readers {
            if self.is_held(reader) {
                self.recount_blocked(reader);
                continue;
            }
            let call = self.data.calls.get_mut(&reader).expect("readers are unfinished");
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
        self.observed.see(Seen::Waits { call: id });
        self.nest_stops(id);
        let arguments = Arc::clone(&self.data.calls[&id].arguments);
        let (mut missing, mut gone, mut failed) = (0, Vec::new(), None);
        for input in arguments.iter().flat_map(Argument::versions) {
            let version = &self.data.versions[input];
            missing += usize::from(!version.is_present());
            match &version.state {
                State::Gone => gone.push(*input),
                State::Failed(failure) => failed = Some(failure.clone()),
                State::Awaited | State::Present(_) => {}
            }
        }
        if let Some(failure) = failed {
            self.data.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
            return self.cancel(id, &failure);
        }
        self.data.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
        // The member that had it, or would have updated it in place, may have been the only one that stays.
        if self.data.members.any_leaves() {
            arguments.iter().flat_map(Argument::versions).for_each(|input| self.data.rescue(*input));
        }
        if missing == 0 {
            self.push_ready(id);
        }
        for version in gone {
            // The previous input may have failed, and this call with it.
            if self.data.versions.get(&version).is_some_and(Version::is_awaited) {
                self.make_again(version);
            }
        }
    }

    pub(super) fn push_ready(&mut self, id: CallId) {
        if self.is_held(id) {
            return;
        }
        let call = self.data.calls.get_mut(&id).expect("it is unfinished");
        match call.work {
            Work::Get(execution) => self.nests.answer_get(&mut self.data, id, execution),
            Work::Task(_) => self.queues.push(&mut self.data, id),
        }
    }

    pub(super) fn failed(&mut self, id: CallId, failure: &Failure) {
        // Another try makes its own calls.
        self.nest_ends(id);
        let call = self.data.calls.get_mut(&id).expect("it was assigned");
        call.failures += 1;
        if call.failures <= call.options.retry {
            self.observed.figures.retries += 1;
            self.observed.of(call.task()).retries += 1;
            self.queues.pauses.begin(&mut self.data, id);
            return self.requeue(id);
        }
        if !self.recording.record_failure(&mut self.data, id, failure) {
            self.fail_permanently(id, failure);
        }
    }

    /// Reports a failure to the program, or to the task that made the call.
    pub(super) fn report_failure(&mut self, id: CallId, failure: &Failure, on_failure: OnFailure) {
        self.failures.report_failure(
            &self.data,
            &mut self.nests,
            &mut self.observed,
            id,
            failure,
            on_failure,
        );
    }

    pub(super) fn fail_permanently(&mut self, id: CallId, failure: &Failure) {
        let call = self.data.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Worker;
        let on_failure = call.options.on_failure;
        let failure = self.data.located(id, failure.clone());
        self.data.add_failure(id, failure.cause().clone());
        self.report_failure(id, &failure, on_failure);
        let is_cancelled = failure.cause().is_cancelled();
        let group = if is_cancelled {
            None
        } else {
            self.failures.group_to_cancel(&self.data, &mut self.nests, self.replay.next(), id, on_failure)
        };
        self.cancel(id, &failure);
        // The call itself has failed by now, and is not cancelled.
        if let Some(group) = group {
            self.cancel_failed_group(group);
        }
    }

    fn ignored(&mut self, id: CallId, reason: &str) {
        let of = self.data.calls[&id].task();
        let task = of.name;
        // A recomputation has been logged before.
        if !self.data.journal.history().is_ignored(id) {
            tracing::warn!(task, call = id, reason, "a call has failed, which is ignored");
            self.observed.figures.ignored += 1;
            self.observed.of(of).ignored += 1;
        }
        self.data.journal.add_ignored(id);
    }

    /// Fails a call without output, and all calls that need it.
    pub(super) fn cancel(&mut self, id: CallId, failure: &Failure) {
        let mut cancelled = vec![id];
        while let Some(id) = cancelled.pop() {
            let Some(call) = self.data.calls.get_mut(&id) else { continue };
            // A reader of two failed versions is visited twice; and a running one has its inputs.
            if matches!(call.state, CallState::Done | CallState::Runs(_) | CallState::Recorded) {
                continue;
            }
            call.state = CallState::Done;
            self.data.unfinished -= 1;
            let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
            match call.work {
                Work::Get(execution) => self.nests.get_fails(&mut self.data, execution, failure),
                Work::Task(task) => self.observed.record_unsuccessful(task, id),
            }
            for id in written {
                // If the call had run before, some versions may exist, or be no longer needed.
                let Some(version) = self.data.versions.get_mut(&id).filter(|version| !version.is_present())
                else {
                    continue;
                };
                version.state = State::Failed(failure.clone());
                cancelled.extend(&version.readers);
            }
            self.forget_unneeded(id, &arguments);
        }
    }
}
