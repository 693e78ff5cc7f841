//! Assignment of ready calls to members.

use std::sync::Arc;

use super::{
    call::CallState,
    graph::{Action, Assignment, Graph},
    members::Member,
    ready::is_short,
    seen::Seen,
    version::{Source, State},
};
use crate::ids::{Argument, CallId, VersionId};

impl Graph {
    /// Returns the actions to perform now.
    pub(crate) fn actions(&mut self) -> Vec<Action> {
        self.decide_merges();
        self.decide_turns();
        while self.assign_one() {}
        self.let_go();
        std::mem::take(&mut self.actions)
    }

    /// Assigns one ready call, if there is a member for it. Returns whether a call was assigned.
    fn assign_one(&mut self) -> bool {
        let any_is_plain = self.ready.len() > 0 || self.nests.has_ready();
        let open = if any_is_plain { self.members.next() } else { None };
        let has_lanes = !self.lanes.is_empty();
        if open.is_none() && !has_lanes {
            return false;
        }
        if (self.ready.len() > 1 || has_lanes) && self.levels.are_stale() {
            self.reorder();
        }
        if has_lanes && let Some((id, member)) = self.next_of_lanes(open.is_some()) {
            self.assign(id, member);
            return true;
        }
        // The reservation of members may have changed since.
        let open = if any_is_plain { self.members.next() } else { None };
        open.map(|member| self.assign_next(member)).is_some()
    }

    /// Assigns the next call of a member, to this member or to one with more of its data.
    fn assign_next(&mut self, member: Member) {
        if let Some(id) = self.nests.pop(self.ready.priority()) {
            let near = self.calls.get(&id).map(|call| self.choose(&call.arguments, member));
            return self.assign(id, near.unwrap_or(member));
        }
        if !self.members.are_several() {
            let id = self.ready.pop().expect("some are ready");
            return self.assign(id, member);
        }
        let key = self.ready.next_for(member).expect("some are ready");
        let (urgency, id) = key;
        let member = self.calls.get(&id).map_or(member, |call| {
            if is_short(urgency) {
                let (_, with) = self.whereabouts(&call.arguments);
                self.members.choose_for_short(&with, member)
            } else {
                self.choose(&call.arguments, member)
            }
        });
        self.ready.take(key, member);
        self.assign(id, member);
    }

    fn assign(&mut self, id: CallId, member: Member) {
        // The call may have been cancelled since, or wait for a lost input.
        let Some(call) = self.calls.get(&id).filter(|call| call.state == CallState::Worker) else { return };
        let (task, mark, tries, arguments) =
            (call.task, call.mark, call.failures, Arc::clone(&call.arguments));
        let manner = self.manner(id, call);
        let has_one_run = manner.has_one_run() && call.failures == call.options.retry;
        let member = self.fit(id, member);
        self.occupy(id, member);
        let (mut in_place, mut taken) = (Vec::new(), Vec::new());
        let (mut elsewhere, mut moved_bytes) = (Vec::new(), 0);
        for argument in &*arguments {
            for read in argument.versions() {
                let version = &self.versions[read];
                let State::Present(copies) = &version.state else {
                    unreachable!("a call is ready when its inputs are there")
                };
                let is_named = elsewhere.iter().any(|source: &Source| source.version == *read);
                if !copies.members.contains(&member) && !is_named {
                    let members = copies.members.clone();
                    moved_bytes += copies.bytes;
                    elsewhere.push(Source { version: *read, mark: version.mark, members });
                }
            }
            if let Argument::Update(version) = argument {
                let is_taken = has_one_run && self.take(id, member, *version);
                in_place.push(is_taken);
                taken.extend(is_taken.then_some(*version));
            }
        }
        let call = self.calls.get_mut(&id).expect("it is unfinished");
        (call.state, call.is_earlier, call.taken) = (CallState::Runs(member), false, taken);
        self.observed.of(task).moved_bytes += moved_bytes;
        let reader = None;
        let assignment =
            Assignment { call: id, task, mark, tries, reader, arguments, in_place, manner, elsewhere };
        self.see(Seen::Assigns { call: id, to: member.0 });
        self.actions.push(Action::Assign(member, assignment));
    }

    /// Takes a version from a member for a call that updates it in place, if it has no other reader. Returns
    /// whether it was taken.
    fn take(&mut self, call: CallId, member: Member, id: VersionId) -> bool {
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
        let State::Present(copies) = &mut version.state else { unreachable!("it was there a moment ago") };
        copies.members.retain(|other| *other != member);
        if copies.members.is_empty() {
            version.state = State::Gone;
        }
        true
    }

    /// Chooses the member for a call with all inputs: this one, which has the least work, or another one.
    fn choose(&self, arguments: &[Argument], least: Member) -> Member {
        let (total, with) = self.whereabouts(arguments);
        self.members.choose(total, &with, least)
    }

    fn reorder(&mut self) {
        let first = self.calls.of_program().next().map_or(self.next(), |(first, _)| first);
        let calls = self.calls.of_program().rev().map(|(id, call)| {
            let versions = call.written(id).filter_map(|version| self.versions.get(&version));
            (id, call.task, versions.flat_map(|version| version.readers.iter().copied()))
        });
        self.levels.compute(first, self.next(), calls);
        self.ready.reorder(&self.levels);
        self.lanes.reorder(&self.levels);
    }
}
