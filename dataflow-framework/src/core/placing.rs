//! Placement of calls that cannot run on every member (they need several workers, memory, a larger store or a
//! label), and of spread calls.
//!
//! They wait in *lanes*, one for each demand and for spread or not, so that a call without a place does not delay
//! others. A call that takes several workers never waits at its member: it is assigned only when enough workers
//! are free there, so that it starts immediately. A member that always receives other calls would never have
//! enough free workers or memory. So one is *reserved* for the demand: the one with the fewest used workers. Until
//! the call is assigned, it receives no calls from lanes with another demand, and no plain calls if the call takes
//! several workers.
//!
//! Calls that no member can run wait for one that can, and delay no other call.

use std::{cmp::Reverse, sync::Arc};

use super::{
    call::CallState,
    demand::{Capacity, Demand, Lack},
    graph::Graph,
    members::{Claim, Member},
    ready::{Key, Urgency, urgency},
    state::lanes::LaneKind,
};
use crate::{ids::CallId, task::TaskDef};

/// The base level of nested calls, to which their depth is added: running calls wait for them.
const NESTED_LEVEL: u32 = 1 << 31;

impl Graph {
    /// Adds a call to those that wait for a worker.
    pub(super) fn queue_for_worker(&mut self, id: CallId) {
        let call = &self.calls[&id];
        let (options, demand, within) = (call.options, call.demand(), self.within(id));
        let is_plain = demand == Demand::NONE && !options.spread;
        if let Some(within) = within.filter(|_| is_plain) {
            return self.nests.push_ready(id, options.priority, within);
        }
        let level = within.map_or_else(|| self.levels.of(id), |within| NESTED_LEVEL + within.depth);
        let urgency: Urgency = urgency(options.priority, level);
        if is_plain {
            let nearness = self.nearness(id, &Arc::clone(&call.arguments));
            self.ready.push((urgency, id), nearness);
        } else {
            self.lanes.push((demand, options.spread), (urgency, id));
        }
    }

    /// Records that a call was assigned to a member.
    pub(super) fn occupy(&mut self, id: CallId, member: Member) {
        let is_spread = self.calls[&id].options.spread;
        self.members.on_assigned(member, self.claim_of(id), is_spread);
    }

    /// Records that a known call is no longer on a member.
    pub(super) fn free(&mut self, id: CallId, member: Member) {
        self.members.ended(member, self.claim_of(id));
    }

    /// Returns the claim of a known call on its member.
    pub(super) fn claim_of(&self, id: CallId) -> Claim {
        let call = &self.calls[&id];
        Claim::of(call.demand(), call.task)
    }

    /// Removes and returns the most urgent call of the lanes that has a place, with its member. If `open`, which
    /// means that a plain call can be assigned now, a lane is skipped if its first call is less urgent than a waiting
    /// plain or nested call, unless a member is reserved for it.
    pub(super) fn next_of_lanes(&mut self, open: bool) -> Option<(CallId, Member)> {
        let (plain, nested) = (self.ready.first(), self.nests.priority());
        for (key, kind) in self.first_of_lanes() {
            let (demand, _) = kind;
            let ((Reverse(priority), _), _) = key;
            let is_urgent =
                plain.is_none_or(|plain| key < plain) && nested.is_none_or(|other| other <= priority);
            let (_, id) = key;
            // If no other member can run the call, it may run again on a shunned one; if it cannot run there
            // either, it fails.
            let shunned = self.troubles.shunned(id);
            let shunned = if self.members.any_other_than(shunned, demand) { shunned } else { &[] };
            let is_reserved = self.members.is_reserved(demand, shunned);
            if open && !is_urgent && !is_reserved {
                continue;
            }
            let (bytes, with) = self.whereabouts(&self.calls[&id].arguments);
            let Some(member) = self.members.place(kind, bytes, &with, shunned) else {
                self.on_no_place(kind, id, is_urgent);
                continue;
            };
            if is_reserved {
                self.members.unreserve(demand);
            }
            let lane = self.lanes.by_kind.get_mut(&kind).expect("it has this call");
            lane.is_told = false;
            lane.calls.remove(&key);
            return Some((id, member));
        }
        None
    }

    /// Returns the first call of each lane, the most urgent one first. Removes calls that no longer wait.
    fn first_of_lanes(&mut self) -> Vec<(Key, LaneKind)> {
        let (calls, members) = (&self.calls, &mut self.members);
        let waits = |id: &CallId| calls.get(id).is_some_and(|call| call.state == CallState::Worker);
        let mut firsts = Vec::new();
        self.lanes.by_kind.retain(|kind, lane| {
            while lane.calls.first().is_some_and(|(_, id)| !waits(id)) {
                lane.calls.pop_first();
            }
            firsts.extend(lane.calls.first().map(|key| (*key, *kind)));
            if lane.calls.is_empty() {
                members.unreserve(kind.0);
            }
            !lane.calls.is_empty()
        });
        firsts.sort_unstable();
        firsts
    }

    /// Makes a place for a call if possible, and reports it if no member can run it.
    fn on_no_place(&mut self, kind: LaneKind, id: CallId, is_urgent: bool) {
        let (demand, _) = kind;
        let lack = self.lacks(id);
        let lane = self.lanes.by_kind.get_mut(&kind).expect("it has this call");
        let Some(lack) = lack else {
            lane.is_told = false;
            // A call that only needs a label gets a place whenever another call ends.
            if is_urgent && (demand.cores > 1 || demand.memory > 0) {
                self.members.reserve(demand, self.troubles.shunned(id));
            }
            return;
        };
        if !std::mem::replace(&mut lane.is_told, true) {
            let TaskDef { name, .. } = self.calls[&id].task;
            tracing::warn!(
                task = name,
                call = id,
                "a call waits for a node: it needs {lack}; start one that has it"
            );
        }
    }

    /// Returns the requirement of a waiting call that no member satisfies.
    pub(crate) fn lacks(&self, id: CallId) -> Option<Lack> {
        let call = self.calls.get(&id).filter(|call| call.state == CallState::Worker)?;
        Lack::of(call.demand(), self.members.staying())
    }

    /// Handles a new member that runs calls, with its capacity.
    pub(crate) fn joined(&mut self, member: Member, capacity: Capacity) {
        self.members.add(member, capacity);
        self.copy_everything_for_all_to(member);
        self.copy_kept_to(member);
    }
}
