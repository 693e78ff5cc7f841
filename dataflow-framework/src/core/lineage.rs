//! Dropping of data, and its recomputation.
//!
//! A version that is no longer needed is dropped by its members. The call that has written it stays known while
//! data that may be needed again depends on it: with the calls before, it is the recipe for that data. So when
//! a member is lost, a needed version without another copy is recomputed by its call, which needs its inputs,
//! and so on, back to existing data. Nothing else is recomputed.
//!
//! A task is a function: run again on the same inputs it writes the same versions. Data created by the program
//! has no call, so it is kept while anything depends on it.

use std::sync::Arc;

use super::{
    call::{Call, CallState},
    graph::{Action, Graph},
    members::Member,
    rescue::Keeping,
    version::{Source, State},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, NESTED_BIT, VersionId},
};

/// The number of members lost with a call after which the call is considered the cause. Other calls that waited
/// on these members are lost with it, but get another place and other neighbours the next time.
pub(super) const DEATHS_MAX: u32 = 4;

impl Graph {
    /// Handles the loss of a member and all its data.
    pub(crate) fn lost(&mut self, member: Member) {
        self.stop_nests_on(member);
        self.members.remove(member);
        self.ready.on_lost(member);
        self.on_earlier_lost(member);
        self.on_durable_lost(member);
        self.kept.on_lost(member);
        let lost = self.versions.iter().filter(|(_, version)| version.is_with(member)).map(|(id, _)| *id);
        let mut lost: Vec<_> = lost.collect();
        // The order of a hash table varies.
        lost.sort_unstable();
        for id in &lost {
            let version = self.version_mut(*id);
            let State::Present(copies) = &mut version.state else { continue };
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                version.state = State::Gone;
            }
        }
        // The calls first, so that each waits for the inputs that it really lacks.
        let affected: Vec<_> = self
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
            let Some(version) = self.versions.get(&id) else { continue };
            let (is_present, is_wanted) = (version.is_present(), version.is_wanted);
            if is_present {
                // The remaining members may be leaving.
                self.rescue(id);
            } else {
                self.copying.remove(&id);
            }
            if is_wanted {
                self.want_again(id);
            }
            // It may have been known only because it was being copied.
            self.forget_unless_needed(id);
        }
        self.restart_copies(member);
        self.rescue_earlier();
        self.move_names(member);
        self.nobody_stays();
    }

    /// Lets a member drop the data that a call would have updated in place, had it started. The member reports
    /// other inputs of the call when it receives them, and these may be in flight.
    pub(super) fn drop_taken(&mut self, id: CallId, member: Member) {
        let taken = self.calls.get_mut(&id).map(|call| std::mem::take(&mut call.taken));
        for version in taken.into_iter().flatten() {
            let is_to_come = self.copying.get(&version) == Some(&member);
            if !is_to_come && !self.versions[&version].is_with(member) {
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    /// Lets a call wait for its missing inputs after a loss, if they have changed.
    fn recheck_after_loss(&mut self, id: CallId, lost: Member) {
        // An earlier input may have failed, and this call with it.
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.state == CallState::Runs(lost) {
            call.deaths += 1;
            if call.deaths > DEATHS_MAX {
                let reason =
                    format!("{} nodes were lost to which it was assigned, one after another", call.deaths);
                let failure = Failure::new(call.task.name, id, reason);
                if !self.record_failure(id, &failure) {
                    self.fail_permanently(id, &failure);
                }
                return;
            }
        }
        self.recheck_inputs(id);
    }

    /// Lets a call wait for its missing inputs, if they have changed.
    fn recheck_inputs(&mut self, id: CallId) {
        let Some(call) = self.calls.get(&id) else { return };
        let reads = call.arguments.iter().flat_map(Argument::versions);
        let missing = reads.filter(|input| !self.versions[input].is_present()).count();
        match call.state {
            CallState::Inputs(before) if before == missing => {}
            CallState::Worker if missing == 0 => {}
            // It was cancelled with an earlier one.
            CallState::Done | CallState::Recorded => {}
            _ => self.requeue(id),
        }
    }

    /// Handles a version that could not be fetched to the node of the program from the members `tried`.
    pub(crate) fn not_brought(&mut self, id: VersionId, tried: &[Member]) {
        if self.versions.get(&id).is_some_and(|version| version.is_wanted) {
            self.on_fetch_failed(id, tried);
            self.want_again(id);
        }
        self.not_copied(id, Member::HERE, tried);
    }

    /// Removes the copies of a version on the members `tried`, which did not send it. If there is no other
    /// copy, it is recomputed. A member that received it in the meantime was not asked, and keeps it.
    pub(super) fn on_fetch_failed(&mut self, id: VersionId, tried: &[Member]) {
        // Data created by the program cannot be recomputed.
        let Some(version) = self.versions.get_mut(&id).filter(|_| self.calls.contains_key(&id.call)) else {
            return;
        };
        let State::Present(copies) = &mut version.state else { return };
        let is_unreachable = |member: &mut Member| *member != Member::HERE && tried.contains(member);
        let unreachable = copies.members.extract_if(.., is_unreachable);
        self.actions.extend(unreachable.map(|member| Action::Forget(member, id)));
        if copies.members.is_empty() {
            version.state = State::Gone;
            for reader in version.readers.clone() {
                self.recheck_inputs_unless_running(reader);
            }
        }
    }

    /// Does the same as [`recheck_inputs`](Self::recheck_inputs), except for running calls: they have received their
    /// inputs, or will report that they could not.
    pub(super) fn recheck_inputs_unless_running(&mut self, id: CallId) {
        let runs = |call: &Call| matches!(call.state, CallState::Runs(_));
        if !self.calls.get(&id).is_some_and(runs) {
            self.recheck_inputs(id);
        }
    }

    /// Returns whether a version is available or has failed. If it is lost, it is recomputed.
    pub(crate) fn has_outcome(&mut self, id: VersionId) -> bool {
        match &self.version_mut(id).state {
            State::Failed(_) | State::Present(_) => true,
            State::Awaited => false,
            State::Gone => {
                self.make_again(id);
                self.versions[&id].is_present()
            }
        }
    }

    /// Fetches or recomputes a version for which the program waits.
    pub(super) fn want_again(&mut self, id: VersionId) {
        match &self.versions[&id].state {
            State::Gone => self.make_again(id),
            State::Present(copies) if !copies.members.contains(&Member::HERE) => {
                let (mark, members) = (self.versions[&id].mark, copies.members.clone());
                self.actions.push(Action::Bring(Source { version: id, mark, members }));
            }
            _ => {}
        }
    }

    /// Recomputes a lost version, and all lost inputs of that.
    pub(super) fn make_again(&mut self, id: VersionId) {
        let (asked, mut gone) = (id, vec![id]);
        while let Some(id) = gone.pop() {
            // Its readers may have been cancelled, since another input has failed.
            let Some(version) = self.versions.get(&id) else { continue };
            if !version.is_awaited() && (id != asked || version.handles == 0) {
                continue;
            }
            if !matches!(version.state, State::Gone) || self.is_still_kept(id) || self.restore(id) {
                continue;
            }
            let version = self.version_mut(id);
            version.state = State::Awaited;
            let Some(call) = self.calls.get_mut(&id.call) else {
                if id.call < NESTED_BIT {
                    // It was not dropped, but may have been damaged before the last other copy was lost.
                    self.on_lost_for_good(
                        id,
                        "the program created it with `Data::new`, and all nodes that had it are lost",
                    );
                } else if self.task_with_handle(id).is_none() {
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
            self.unfinished += 1;
            self.child_begins(id.call);
            let call = &self.calls[&id.call];
            self.figures.repeated += 1;
            self.observed.of(call.task).repeated += 1;
            let arguments = Arc::clone(&call.arguments);
            let (mut missing, mut has_failed) = (0, false);
            for input in arguments.iter().flat_map(Argument::versions) {
                let version = self.version_mut(*input);
                version.readers.push(id.call);
                missing += usize::from(!version.is_present());
                has_failed |= matches!(version.state, State::Failed(_));
                if matches!(version.state, State::Gone) {
                    gone.push(*input);
                }
            }
            self.calls.get_mut(&id.call).expect("it is known").state = CallState::Inputs(missing);
            // An input that has failed now may have been available when the call ran before.
            if missing == 0 || has_failed {
                self.requeue(id.call);
            }
        }
    }

    /// Drops a version if it is not needed, and the calls that are not needed to recompute anything.
    pub(super) fn forget_unless_needed(&mut self, id: VersionId) {
        // Usually there is only the first one.
        let (mut first, mut unneeded) = (Some(id), Vec::new());
        while let Some(id) = first.take().or_else(|| unneeded.pop()) {
            let Some(version) = self.versions.get_mut(&id) else { continue };
            // An awaited version has to be known when its call completes.
            let is_copied = self.copying.contains_key(&id);
            let is_awaited = matches!(version.state, State::Awaited) && self.calls.contains_key(&id.call);
            if version.is_needed() || is_copied || is_awaited {
                continue;
            }
            // Data created by the program cannot be recomputed.
            if version.dependants > 0 && version.is_present() && !self.calls.contains_key(&id.call) {
                continue;
            }
            // The same holds for permanent output that is not in the journal.
            if self.is_precious(id) && self.versions[&id].is_present() {
                continue;
            }
            let keeper = match self.keep(id) {
                Keeping::UnderWay => continue,
                Keeping::With(member) => Some(member),
                Keeping::No => None,
            };
            let Some(version) = self.versions.get_mut(&id) else { continue };
            if let State::Present(copies) = &version.state {
                let others = copies.members.iter().filter(|member| Some(**member) != keeper);
                self.actions.extend(others.map(|member| Action::Forget(*member, id)));
            }
            if version.dependants > 0 {
                if version.is_present() {
                    version.state = State::Gone;
                }
                continue;
            }
            self.versions.remove(&id);
            let Some(call) = self.calls.get_mut(&id.call) else { continue };
            call.known -= 1;
            if call.known == 0 && call.state == CallState::Done {
                unneeded.extend(self.remove_call(id.call));
            }
        }
    }

    /// Removes a completed call, and the data that was needed only to run it again.
    pub(super) fn forget_call(&mut self, id: CallId) {
        for version in self.remove_call(id) {
            self.forget_unless_needed(version);
        }
    }

    /// Removes a call, and returns its inputs.
    fn remove_call(&mut self, id: CallId) -> Vec<VersionId> {
        let Some(call) = self.calls.remove(&id) else { return Vec::new() };
        let read: Vec<_> = call.reads().collect();
        for version in &read {
            self.version_mut(*version).dependants -= 1;
        }
        read
    }

    /// Returns whether the graph is in its initial state.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.versions.is_empty()
            && self.ready.len() == 0
            && self.lanes.is_empty()
            && self.unfinished == 0
            && self.nests.by_call.is_empty()
            && self.reductions.is_empty()
            && self.chains.is_empty()
    }
}
