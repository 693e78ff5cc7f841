//! Dropping of data. See `graph/losses.rs` for its recomputation.
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
    super::{action::Action, call::CallState, members::Member, version::State},
    Data,
    copies::Keeping,
};
use crate::ids::{Argument, CallId, NESTED_BIT, VersionId};

impl Data {
    pub(in crate::core) fn release(&mut self, version: VersionId) {
        self.version_mut(version).handles -= 1;
        self.forget_unless_needed(version);
    }

    pub(in crate::core) fn release_inputs(&mut self, id: CallId, arguments: &[Argument]) {
        for input in arguments.iter().flat_map(Argument::versions) {
            assert!(self.version_mut(*input).remove_reader(id), "it was a reader");
            self.forget_unless_needed(*input);
        }
    }

    /// Drops a version if it is not needed, and the calls that are not needed to recompute anything.
    pub(in crate::core) fn forget_unless_needed(&mut self, id: VersionId) {
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
            if self.journal.is_precious(id) && self.versions[&id].is_present() {
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
    pub(in crate::core) fn forget_call(&mut self, id: CallId) {
        for version in self.remove_call(id) {
            self.forget_unless_needed(version);
        }
    }

    fn remove_call(&mut self, id: CallId) -> Vec<VersionId> {
        let Some(call) = self.calls.remove(&id) else { return Vec::new() };
        let read: Vec<_> = call.reads().collect();
        for version in &read {
            self.version_mut(*version).dependants -= 1;
        }
        read
    }

    /// Forgets the data that was needed only to run a call again, if it never runs again.
    pub(in crate::core) fn cut_lineage(&mut self, id: CallId) {
        if !self.journal.is_permanent(id) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        let arguments = std::mem::replace(&mut call.arguments, Arc::new([]));
        for version in arguments.iter().flat_map(Argument::versions) {
            self.version_mut(*version).dependants -= 1;
            self.forget_unless_needed(*version);
        }
    }

    /// Takes a version from a member for a call that updates it in place, if it has no other reader. Returns
    /// whether it was taken.
    pub(in crate::core) fn take(&mut self, call: CallId, member: Member, id: VersionId) -> bool {
        // Data created by the program cannot be recomputed.
        let has_losses = self.has_losses;
        // A copy that the member has fetched would be mistaken for one that it keeps.
        let is_copied = self.copying.contains_key(&id) || self.is_for_all(id.call);
        let can_be_lost = !has_losses || (self.calls.contains_key(&id.call) && !self.is_durable(id.call));
        let version = self.version_mut(id);
        let is_last = version.handles == 0 && !version.is_wanted && version.readers == [call];
        if !is_last || !can_be_lost || (has_losses && version.is_to_be_kept()) || is_copied {
            return false;
        }
        version.remove_copy(member);
        true
    }

    /// Lets a member drop the data that a call would have updated in place, had it started. The member reports
    /// other inputs of the call when it receives them, and these may be in flight.
    pub(in crate::core) fn drop_taken(&mut self, id: CallId, member: Member) {
        let taken = self.calls.get_mut(&id).map(|call| std::mem::take(&mut call.taken));
        for version in taken.into_iter().flatten() {
            if !self.is_copied_to(version, member) && !self.versions[&version].is_with(member) {
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    pub(in crate::core) fn drop_spare_copies(&mut self, member: Member, copies: Vec<VersionId>) {
        for id in copies {
            let Some(version) = self.versions.get(&id) else { continue };
            // Calls that run elsewhere, or the waiting program, may be fetching it from here.
            let is_in_use = version.readers.iter().any(|reader| match self.calls[reader].state {
                CallState::Runs(on) => on == member || !version.is_with(on),
                _ => false,
            });
            let State::Present(copies) = &version.state else { continue };
            // Data created by the program, or by a task, cannot be recomputed.
            if (member == Member::HERE || id.call >= NESTED_BIT) && !self.calls.contains_key(&id.call) {
                continue;
            }
            let others = copies.members.iter().filter(|other| **other != member);
            let is_safe = others.into_iter().any(|other| !self.members.is_leaving(*other));
            if is_in_use
                || version.is_wanted
                || !is_safe
                || !version.is_with(member)
                || self.copying.contains_key(&id)
            {
                continue;
            }
            self.version_mut(id).remove_copy(member);
            self.actions.push(Action::Forget(member, id));
        }
    }

    /// Lets a member drop its output of a call that also ran elsewhere: it may differ.
    pub(in crate::core) fn discard_duplicate_output(&mut self, call: CallId, member: Member, writes: usize) {
        for slot in (0..).take(writes) {
            let version = VersionId { call, slot };
            if !self.versions.get(&version).is_some_and(|known| known.is_with(member)) {
                self.kept.on_gone(version, member);
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    pub(in crate::core) fn count_missing(&mut self, id: CallId) {
        let call = &self.calls[&id];
        if matches!(call.state, CallState::Inputs(_)) {
            let missing = call.reads().filter(|input| !self.versions[input].is_present()).count();
            self.calls.get_mut(&id).expect("it is known").state = CallState::Inputs(missing);
        }
    }

    /// Replaces one input of a call that has not started, or would run again.
    pub(in crate::core) fn replace_input(&mut self, id: CallId, at: usize, version: VersionId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let mut arguments = call.arguments.to_vec();
        // A call that never runs again no longer knows its inputs.
        let Some(Argument::Read(place) | Argument::Update(place)) = arguments.get_mut(at) else { return };
        let before = std::mem::replace(place, version);
        call.arguments = Arc::from(arguments);
        let reader = Some(id).filter(|_| call.state != CallState::Done);
        self.version_mut(before).remove_dependant(reader);
        self.version_mut(version).add_dependant(reader);
        self.count_missing(id);
    }

    /// Replaces the inputs of a call that has not started, or would run again. Returns the previous inputs.
    pub(in crate::core) fn replace_inputs(
        &mut self,
        id: CallId,
        arguments: &Arc<[Argument]>,
    ) -> Vec<VersionId> {
        let call = self.calls.get_mut(&id).expect("it is known");
        let reader = Some(id).filter(|_| call.state != CallState::Done);
        let before = std::mem::replace(&mut call.arguments, Arc::clone(arguments));
        for read in arguments.iter().flat_map(Argument::versions) {
            self.version_mut(*read).add_dependant(reader);
        }
        let before: Vec<_> = before.iter().flat_map(Argument::versions).copied().collect();
        for read in &before {
            self.version_mut(*read).remove_dependant(reader);
        }
        self.count_missing(id);
        before
    }
}
