//! Node-local faults (disk full, store full, missing or corrupt data): the call is retried on other nodes
//! before it fails, and damaged data is fetched from another node or recomputed.

use super::{
    call::{CallState, Cause, Unfit},
    demand::Demand,
    graph::{Action, Graph},
    members::Member,
    version::State,
};
use crate::{
    failure::Failure,
    ids::{CallId, NESTED_BIT, VersionId},
};

/// The number of attempts that a call may lose to a damaged or missing input; the next one fails the call.
const DAMAGES_MAX: u32 = 4;

impl Graph {
    /// Handles a call that could not run on its member.
    pub(super) fn on_unfit(&mut self, id: CallId, member: Member, unfit: Unfit) {
        let Unfit { reason, unchanged, cause } = unfit;
        let damaged = if let Cause::Damaged(version) = cause { Some(version) } else { None };
        for (version, bytes) in unchanged {
            if Some(version) != damaged {
                self.on_present(version, member, bytes);
            }
        }
        self.drop_taken(id, member);
        if let Some(version) = damaged {
            self.on_damaged(version, member, &reason);
        }
        let troubled = self.troubles.0.entry(id).or_default();
        let call = self.calls.get_mut(&id).expect("it was assigned");
        let is_hopeless = match cause {
            Cause::Damaged(_) => {
                troubled.damages += 1;
                troubled.damages > DAMAGES_MAX
            }
            Cause::Member => {
                troubled.shunned.push(member);
                !self.members.any_other_than(&troubled.shunned, call.demand())
            }
            // It waits for a member with a larger store.
            Cause::Store(bytes) => {
                call.store = bytes;
                self.members.on_store_exceeded(member, bytes);
                self.has_fixed_members && !self.members.any_other_than(&[], call.demand())
            }
        };
        if is_hopeless {
            self.troubles.remove(id);
            let failure = Failure::new(self.calls[&id].task.name, id, reason);
            return self.failed(id, &failure);
        }
        let task = self.calls[&id].task.name;
        tracing::warn!(task, call = id, reason, "a call cannot run on a node, and is tried again");
        self.requeue(id);
    }

    /// Returns the member for a call for which this one was chosen: another one if the call could not run
    /// there. Calls of lanes keep theirs: it satisfies their demand, and was chosen with regard to such members.
    pub(super) fn fit(&self, id: CallId, chosen: Member) -> Member {
        let (call, shunned) = (&self.calls[&id], self.troubles.shunned(id));
        let is_of_a_lane = call.demand() != Demand::NONE || call.options.spread;
        if is_of_a_lane || !shunned.contains(&chosen) {
            return chosen;
        }
        self.members.other_than(shunned).unwrap_or(chosen)
    }

    /// Handles a version that is no longer readable on a member.
    pub(crate) fn on_damaged(&mut self, id: VersionId, member: Member, reason: &str) {
        self.kept.on_gone(id, member);
        self.on_early_damage(id, member);
        let can_be_made = self.calls.contains_key(&id.call);
        let known = self.versions.get_mut(&id).filter(|version| version.is_present());
        let Some(version) = known else { return self.on_unrecorded_output_corrupt(id, member) };
        let State::Present(copies) = &mut version.state else { return };
        copies.members.retain(|other| *other != member);
        if !copies.members.is_empty() {
            // The program may be about to read the version that was here.
            if version.is_wanted {
                self.want_again(id);
            }
            // The remaining members may be leaving.
            return self.rescue(id);
        }
        if can_be_made {
            let readers = version.readers.clone();
            version.state = State::Gone;
            for reader in readers {
                self.recheck_inputs_unless_running(reader);
            }
            if self.versions.get(&id).is_some_and(|version| version.is_wanted) {
                self.want_again(id);
            }
            return;
        }
        self.on_lost_for_good(id, reason);
    }

    /// Handles the loss of data that the program or a task created with `Data::new`: no call can recompute it.
    pub(super) fn on_lost_for_good(&mut self, id: VersionId, reason: &str) {
        let failure = match self.task_with_handle(id) {
            Some(parent) => {
                let failure = self
                    .failure_of(parent, format!("data that it created with `Data::new` is lost: {reason}"));
                self.nest(parent).fails.get_or_insert(failure.clone());
                failure
            }
            None => Failure::new("Data::new", id.call, reason),
        };
        let Some(version) = self.versions.get_mut(&id) else { return };
        version.state = State::Failed(failure.clone());
        let readers = version.readers.clone();
        if id.call < NESTED_BIT {
            self.failures.push(failure.clone());
        }
        // Running readers have received it, or will report that they have not.
        for reader in readers {
            self.cancel(reader, &failure);
        }
    }

    /// Handles the report that the store of a member is nearly full: lets it drop those copies that a member that
    /// stays also has, and that no running call or waiting program needs.
    pub(crate) fn drop_spare_copies(&mut self, member: Member, copies: Vec<VersionId>) {
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
            let version = self.version_mut(id);
            if let State::Present(copies) = &mut version.state {
                copies.members.retain(|other| *other != member);
            }
            self.actions.push(Action::Forget(member, id));
        }
    }
}
