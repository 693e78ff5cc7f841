//! Losses of members and of their data: needed data is fetched from another member, restored, or recomputed.

use std::sync::Arc;

use super::Graph;
use crate::{
    core::{
        action::Action,
        call::{Call, CallState},
        data::read_cache::Kept,
        journal::Once,
        members::Member,
        version::State,
    },
    failure::Failure,
    ids::{Argument, CallId, NESTED_BIT, VersionId},
};

/// The number of members lost with a call after which the call is considered the cause. Other calls that waited
/// on these members are lost with it, but get another place and other neighbours the next time.
pub(in crate::core) const DEATHS_MAX: u32 = 4;

impl Graph {
    pub(crate) fn lost(&mut self, member: Member) {
        self.stop_nests_on(member);
        self.stopping.on_lost(member);
        self.data.members.remove(member);
        self.queues.on_lost(member);
        self.replay.on_lost(member);
        self.recording.on_lost(&mut self.data, member);
        self.data.kept.on_lost(member);
        let lost = self.data.versions_on(member);
        for id in &lost {
            self.data.version_mut(*id).remove_copy(member);
        }
        // The calls first, so that each waits for the inputs that it really lacks.
        let affected: Vec<_> = self
            .data
            .calls
            .iter()
            .filter(|(_, call)| match call.state {
                CallState::Runs(on) => on == member,
                CallState::Inputs(_) | CallState::Worker => true,
                CallState::Done | CallState::Recorded => false,
            })
            .map(|(id, _)| id)
            .collect();
        for id in affected {
            self.recheck_after_loss(id, member);
        }
        for id in lost {
            let Some(version) = self.data.versions.get(&id) else { continue };
            let (is_present, is_wanted) = (version.is_present(), version.is_wanted);
            if is_present {
                // The remaining members may be leaving.
                self.data.rescue(id);
            } else {
                self.data.end_copy(id);
            }
            if is_wanted {
                self.want_again(id);
            }
            // It may have been known only because it was being copied.
            self.data.forget_unless_needed(id);
        }
        self.restart_copies(member);
        self.replay.rescue(&mut self.data);
        self.move_names(member);
        self.nobody_stays();
    }

    /// Lets a call wait for its missing inputs after a loss, if they have changed.
    fn recheck_after_loss(&mut self, id: CallId, lost: Member) {
        // An earlier input may have failed, and this call with it.
        let Some(call) = self.data.calls.get_mut(&id) else { return };
        if call.state == CallState::Runs(lost) {
            call.deaths += 1;
            if call.deaths > DEATHS_MAX {
                let reason =
                    format!("{} nodes were lost to which it was assigned, one after another", call.deaths);
                let failure = Failure::new(call.work.name(), id, reason);
                if !self.recording.record_failure(&mut self.data, id, &failure) {
                    self.fail_permanently(id, &failure);
                }
                return;
            }
        }
        self.recheck_inputs(id);
    }

    fn recheck_inputs(&mut self, id: CallId) {
        let Some(call) = self.data.calls.get(&id) else { return };
        let reads = call.arguments.iter().flat_map(Argument::versions);
        let missing = reads.filter(|input| !self.data.versions[input].is_present()).count();
        match call.state {
            CallState::Inputs(before) if before == missing => {}
            CallState::Worker if missing == 0 => {}
            // It was cancelled with an earlier one.
            CallState::Done | CallState::Recorded => {}
            _ => self.requeue(id),
        }
    }

    /// Does the same as [`recheck_inputs`](Self::recheck_inputs), except for running calls: they have received their
    /// inputs, or will report that they could not.
    fn recheck_inputs_unless_running(&mut self, id: CallId) {
        let runs = |call: &Call| matches!(call.state, CallState::Runs(_));
        if !self.data.calls.get(&id).is_some_and(runs) {
            self.recheck_inputs(id);
        }
    }

    /// Handles a version that could not be fetched to the node of the program from the members `tried`.
    pub(crate) fn not_brought(&mut self, id: VersionId, tried: &[Member]) {
        if self.data.versions.get(&id).is_some_and(|version| version.is_wanted) {
            self.on_fetch_failed(id, tried);
            self.want_again(id);
        }
        self.not_copied(id, Member::HERE, tried);
    }

    /// Removes the copies of a version on the members `tried`, which did not send it. If there is no other
    /// copy, it is recomputed. A member that received it in the meantime was not asked, and keeps it.
    pub(super) fn on_fetch_failed(&mut self, id: VersionId, tried: &[Member]) {
        // Data created by the program cannot be recomputed.
        let Some(version) =
            self.data.versions.get_mut(&id).filter(|_| self.data.calls.contains_key(&id.call))
        else {
            return;
        };
        let State::Present(copies) = &mut version.state else { return };
        let is_unreachable = |member: &mut Member| *member != Member::HERE && tried.contains(member);
        let unreachable = copies.members.extract_if(.., is_unreachable);
        self.data.actions.extend(unreachable.map(|member| Action::Forget(member, id)));
        if copies.members.is_empty() {
            version.state = State::Gone;
            for reader in version.readers.clone() {
                self.recheck_inputs_unless_running(reader);
            }
        }
    }

    /// Fetches or recomputes a version for which the program waits.
    fn want_again(&mut self, id: VersionId) {
        if matches!(self.data.versions[&id].state, State::Gone) {
            self.make_again(id);
        } else if let Some(source) = self.data.source_for(id, Member::HERE) {
            self.data.actions.push(Action::Bring(source));
        }
    }

    pub(super) fn make_again(&mut self, id: VersionId) {
        let (asked, mut gone) = (id, vec![id]);
        while let Some(id) = gone.pop() {
            // Its readers may have been cancelled, since another input has failed.
            let Some(version) = self.data.versions.get(&id) else { continue };
            if !version.is_awaited() && (id != asked || version.handles == 0) {
                continue;
            }
            if !matches!(version.state, State::Gone) || self.is_still_kept(id) || self.restore(id) {
                continue;
            }
            let version = self.data.version_mut(id);
            version.state = State::Awaited;
            let Some(call) = self.data.calls.get_mut(&id.call) else {
                if id.call < NESTED_BIT {
                    // It was not dropped, but may have been damaged before the last other copy was lost.
                    self.on_lost_for_good(
                        id,
                        "the program created it with `Data::new`, and all nodes that had it are lost",
                    );
                } else if self.nests.task_with_handle(&self.data, id).is_none() {
                    self.on_lost_for_good(
                        id,
                        "the task that created it with `Data::new` has ended, and all nodes that had it are lost",
                    );
                }
                // Otherwise the task that has created it creates it again, since the task's output was lost
                // too.
                continue;
            };
            if call.state != CallState::Done {
                // It runs again for another of its versions.
                continue;
            }
            self.data.unfinished += 1;
            self.nests.child_begins(&self.data, id.call);
            let call = &self.data.calls[&id.call];
            self.observed.figures.repeated += 1;
            self.observed.of(call.task()).repeated += 1;
            let arguments = Arc::clone(&call.arguments);
            let (mut missing, mut has_failed) = (0, false);
            for input in arguments.iter().flat_map(Argument::versions) {
                let version = self.data.version_mut(*input);
                version.readers.push(id.call);
                missing += usize::from(!version.is_present());
                has_failed |= matches!(version.state, State::Failed(_));
                if matches!(version.state, State::Gone) {
                    gone.push(*input);
                }
            }
            self.data.calls.get_mut(&id.call).expect("it is known").state = CallState::Inputs(missing);
            // An input that has failed now may have been available when the call ran before.
            if missing == 0 || has_failed {
                self.requeue(id.call);
            }
        }
    }

    /// Restores a version that is needed again from the kept ones. Returns whether it was kept.
    fn is_still_kept(&mut self, id: VersionId) -> bool {
        let kept = self.data.kept.remove(id);
        if let Some(Kept { member, bytes, .. }) = kept {
            self.on_present(id, member, bytes);
        }
        kept.is_some()
    }

    /// Restores a lost version from the journal if its call must not run again. Returns whether that is so.
    fn restore(&mut self, id: VersionId) -> bool {
        let Some(Once { mark, values, .. }) = self.data.journal.once(id.call) else { return false };
        let value = values.as_ref().and_then(|values| values.get(id.slot as usize));
        let Some(value) = value else {
            let task = self.data.calls.get(&id.call).map_or("", |call| call.work.name());
            let reason = "what it has written was with nodes that are lost, and it must not run again, since it has an \
                          effect or might write something else: it is larger than what goes to the journal";
            let failure = Failure::new(task, id.call, reason);
            self.failures.fatal.get_or_insert(failure);
            return true;
        };
        let (mark, value) = (*mark, Arc::clone(value));
        let bytes = value.len() as u64;
        self.data.actions.push(Action::Restore { version: id, mark, value });
        self.on_present(id, Member::HERE, bytes);
        true
    }

    pub(crate) fn on_damaged(&mut self, id: VersionId, member: Member, reason: &str) {
        self.data.kept.on_gone(id, member);
        self.replay.on_damaged(id, member);
        let can_be_made = self.data.calls.contains_key(&id.call);
        let known = self.data.versions.get_mut(&id).filter(|version| version.is_present());
        let Some(version) = known else { return self.recording.on_unrecorded_output_corrupt(id, member) };
        if !version.remove_copy(member) {
            // The program may be about to read the version that was here.
            if version.is_wanted {
                self.want_again(id);
            }
            // The remaining members may be leaving.
            return self.data.rescue(id);
        }
        if can_be_made {
            for reader in version.readers.clone() {
                self.recheck_inputs_unless_running(reader);
            }
            if self.data.versions.get(&id).is_some_and(|version| version.is_wanted) {
                self.want_again(id);
            }
            return;
        }
        self.on_lost_for_good(id, reason);
    }

    /// Handles the loss of data that the program or a task created with `Data::new`: no call can recompute it.
    fn on_lost_for_good(&mut self, id: VersionId, reason: &str) {
        let failure = match self.nests.task_with_handle(&self.data, id) {
            Some(parent) => {
                let failure = self
                    .data
                    .failure_of(parent, format!("data that it created with `Data::new` is lost: {reason}"));
                self.nests.nest(parent).fails.get_or_insert(failure.clone());
                failure
            }
            None => Failure::new("Data::new", id.call, reason),
        };
        let Some(version) = self.data.versions.get_mut(&id) else { return };
        version.state = State::Failed(failure.clone());
        let readers = version.readers.clone();
        if id.call < NESTED_BIT {
            self.failures.add(failure.clone());
        }
        // Running readers have received it, or will report that they have not.
        for reader in readers {
            self.cancel(reader, &failure);
        }
    }

    /// Handles a leaving member: it receives no more calls, and data that only it has is copied to others.
    /// [`Action::LetGo`] reports when it may go.
    pub(crate) fn on_leaving(&mut self, member: Member) {
        self.data.members.leave(member);
        if !self.data.has_losses {
            return;
        }
        let mut held = self.data.versions_on(member);
        if !self.data.members.anybody_stays() {
            // As many as fit, but first those that cannot be recomputed.
            held.sort_by_key(|id| (!self.data.journal.is_precious(*id), self.data.versions[id].bytes()));
        }
        for id in held {
            self.data.rescue(id);
        }
        self.replay.rescue(&mut self.data);
        for id in self.data.kept.with(member) {
            self.data.rescue_kept(id);
        }
    }

    /// Handles a member that was cordoned, and receives no more calls, or was uncordoned.
    pub(crate) fn on_cordon(&mut self, member: Member, is_cordoned: bool) {
        self.data.members.cordon(member, is_cordoned);
    }

    pub(crate) fn not_copied(&mut self, id: VersionId, to: Member, tried: &[Member]) {
        if self.is_named(id, to, false) || self.recording.is_second(&mut self.data, id, to, false) {
            return;
        }
        if let Some(version) = self.data.versions.get_mut(&id) {
            version.was_read = false;
        }
        if self.data.is_copied(id, to) {
            // Those members do not have it; but others may, and leave too.
            self.on_fetch_failed(id, tried);
            for member in tried.iter().copied().filter(|member| *member != Member::HERE) {
                self.on_not_kept(id, member);
            }
            self.rescue_again(id);
        }
    }

    /// Handles a member that does not send its kept version, or one of an earlier run.
    fn on_not_kept(&mut self, id: VersionId, member: Member) {
        if self.data.kept.has(id, member) {
            self.data.kept.on_gone(id, member);
            self.data.actions.push(Action::Forget(member, id));
        }
        if self.replay.is_unmade(&self.data, id.call) {
            self.replay.on_damaged(id, member);
            self.data.actions.push(Action::Forget(member, id));
        }
    }

    /// Copies a version again after its copy has failed, if it is only on leaving members.
    fn rescue_again(&mut self, id: VersionId) {
        self.data.rescue(id);
        self.data.rescue_kept(id);
        self.replay.rescue_one(&mut self.data, id);
    }

    fn restart_copies(&mut self, member: Member) {
        for id in self.data.copied_to(member) {
            self.data.end_copy(id);
            self.rescue_again(id);
            self.data.forget_unless_needed(id);
        }
    }

    /// Recalls a call from a leaving or cordoned member that has not started it; or one that the member has been running
    /// since an earlier run of the program, and that has to run again; or ends a cancelled one. `unchanged` are the versions that it
    /// would have updated in place, with their sizes.
    pub(crate) fn returned(&mut self, id: CallId, member: Member, unchanged: &[(VersionId, u64)]) {
        if self.has_stopped(id, member, unchanged) {
            return;
        }
        if !self.data.runs_on(id, member) {
            return self.replay.on_not_running(&mut self.data, member, id);
        }
        if !self.data.calls[&id].is_earlier && !self.data.members.is_closed(member) {
            // The report is about an earlier assignment, but the member runs the call for this run of the
            // program as well.
            return;
        }
        self.nests.return_worker(&mut self.data, id, member);
        for (version, bytes) in unchanged {
            self.on_present(*version, member, *bytes);
        }
        self.requeue(id);
    }

    /// Handles the loss of the last staying members. If the node of the program was allowed to go, it must now
    /// write everything to the journal first.
    fn nobody_stays(&mut self) {
        if self.data.journal.is_on()
            && self.data.members.is_leaving(Member::HERE)
            && !self.data.members.anybody_stays()
        {
            self.on_leaving(Member::HERE);
        }
    }

    /// Returns whether the node of the program may still go after it was [allowed to](Action::LetGo): others
    /// that have started to leave since may need it.
    pub(crate) fn may_go_still(&self) -> bool {
        self.data.members.here_may_go(
            self.data.is_all_copied(),
            &self.recording.members(&self.data),
            !self.data.journal.is_on(),
        )
    }
}
