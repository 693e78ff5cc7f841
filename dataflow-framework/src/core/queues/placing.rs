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

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    super::{
        call::CallState,
        data::Data,
        demand::LaneKind,
        members::Member,
        ready::{Key, urgency},
    },
    Queues,
};
use crate::ids::{CallId, NESTED_BIT};

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) calls: BTreeSet<Key>,
    /// Whether it was reported that no member can run them.
    pub(super) is_told: bool,
}

impl Queues {
    /// Sorts the calls of all lanes again.
    pub(super) fn reorder_lanes(&mut self) {
        let Self { lanes, levels, .. } = self;
        for lane in lanes.values_mut() {
            let level = |level, call| if call < NESTED_BIT { levels.of(call) } else { level };
            let again = |((priority, before), call): Key| (urgency(priority.0, level(before.0, call)), call);
            lane.calls = std::mem::take(&mut lane.calls).into_iter().map(again).collect();
        }
    }

    /// Removes and returns the most urgent call of the lanes that has a place, with its member. If `open`, which
    /// means that a plain call can be assigned now, a lane is skipped if its first call is less urgent than a waiting
    /// plain or nested call, unless a member is reserved for it.
    pub(super) fn next_of_lanes(&mut self, data: &mut Data, open: bool) -> Option<(CallId, Member)> {
        let (plain, nested) = (self.ready.first(), self.nested.priority());
        for (key, kind) in self.first_of_lanes(data) {
            let (demand, _) = kind;
            let ((Reverse(priority), _), _) = key;
            let is_urgent =
                plain.is_none_or(|plain| key < plain) && nested.is_none_or(|other| other <= priority);
            let (_, id) = key;
            // If no other member can run the call, it may run again on a shunned one; if it cannot run there
            // either, it fails.
            let shunned = self.shunned(id);
            let shunned = if data.members.any_other_than(shunned, demand) { shunned } else { &[] };
            let is_reserved = data.members.is_reserved(demand, shunned);
            if open && !is_urgent && !is_reserved {
                continue;
            }
            let (bytes, with) = data.whereabouts(&data.calls[&id].arguments);
            let Some(member) = data.members.place(kind, bytes, &with, shunned) else {
                self.on_no_place(data, kind, id, is_urgent);
                continue;
            };
            if is_reserved {
                data.members.unreserve(demand);
            }
            let lane = self.lanes.get_mut(&kind).expect("it has this call");
            lane.is_told = false;
            lane.calls.remove(&key);
            return Some((id, member));
        }
        None
    }

    /// Returns the first call of each lane, the most urgent one first. Removes calls that no longer wait.
    fn first_of_lanes(&mut self, data: &mut Data) -> Vec<(Key, LaneKind)> {
        let (calls, members) = (&data.calls, &mut data.members);
        let waits = |id: &CallId| calls.get(id).is_some_and(|call| call.state == CallState::Worker);
        let mut firsts = Vec::new();
        self.lanes.retain(|kind, lane| {
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
    fn on_no_place(&mut self, data: &mut Data, kind: LaneKind, id: CallId, is_urgent: bool) {
        let (demand, _) = kind;
        let lack = data.lacks(id);
        let lane = self.lanes.get_mut(&kind).expect("it has this call");
        let Some(lack) = lack else {
            lane.is_told = false;
            // A call that only needs a label gets a place whenever another call ends.
            if is_urgent && (demand.cores > 1 || demand.memory > 0) {
                data.members.reserve(demand, self.shunned(id));
            }
            return;
        };
        if !std::mem::replace(&mut lane.is_told, true) {
            let task = data.calls[&id].work.name();
            tracing::warn!(
                task,
                call = id,
                "a call waits for a node: it needs {lack}; start one that has it"
            );
        }
    }
}
