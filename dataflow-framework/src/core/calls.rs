//! The known calls by number.
//!
//! Each call is looked up about twelve times during its life. Calls are numbered in order, and mostly removed
//! in order, so neighbours share a node of the tree, which keeps it small.

use std::{
    collections::BTreeMap,
    ops::{Index, Range},
};

use super::call::{Call, CallState};
use crate::ids::{CallId, NESTED_BIT};

/// The number of calls per group. A group has room for all of them.
const NEIGHBOURS: usize = 16;

/// The known calls by number.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The groups, by the number of their first call divided by the size of a group.
    groups: BTreeMap<u64, Box<[Option<Call>; NEIGHBOURS]>>,
    /// Calls made by tasks, whose numbers are far apart.
    nested: BTreeMap<CallId, Call>,
}

/// Returns the group of a call, and its place there.
fn place(id: CallId) -> (u64, usize) {
    let number = NEIGHBOURS as u64;
    (id / number, usize::try_from(id % number).expect("a group is small"))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the interface is that of other maps")]
impl Calls {
    pub(super) fn insert(&mut self, id: CallId, call: Call) {
        if id >= NESTED_BIT {
            self.nested.insert(id, call);
            return;
        }
        let (group, index) = place(id);
        self.groups.entry(group).or_default()[index] = Some(call);
    }

    pub(super) fn get(&self, id: &CallId) -> Option<&Call> {
        if *id >= NESTED_BIT {
            return self.nested.get(id);
        }
        let (group, index) = place(*id);
        self.groups.get(&group)?[index].as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &CallId) -> Option<&mut Call> {
        if *id >= NESTED_BIT {
            return self.nested.get_mut(id);
        }
        let (group, index) = place(*id);
        self.groups.get_mut(&group)?[index].as_mut()
    }

    pub(super) fn contains_key(&self, id: &CallId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn remove(&mut self, id: &CallId) -> Option<Call> {
        if *id >= NESTED_BIT {
            return self.nested.remove(id);
        }
        let (group, index) = place(*id);
        let neighbours = self.groups.get_mut(&group)?;
        let call = neighbours[index].take();
        if neighbours.iter().all(Option::is_none) {
            self.groups.remove(&group);
        }
        call
    }

    /// Returns all calls, those of the program first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (CallId, &Call)> {
        self.of_program().chain(self.nested.iter().map(|(id, call)| (*id, call)))
    }

    /// Returns whether any call of the program in this range is unfinished.
    pub(super) fn any_unfinished(&self, calls: Range<CallId>) -> bool {
        let number = NEIGHBOURS as u64;
        let around = self.groups.range(calls.start / number..calls.end.div_ceil(number));
        let unfinished =
            |call: &Option<Call>| call.as_ref().is_some_and(|call| call.state != CallState::Done);
        around.into_iter().any(|(group, neighbours)| {
            let ids = group * number..;
            ids.zip(&**neighbours).any(|(id, call)| calls.contains(&id) && unfinished(call))
        })
    }

    /// Returns the calls of the program, in order.
    pub(super) fn of_program(&self) -> impl DoubleEndedIterator<Item = (CallId, &Call)> {
        self.groups.iter().flat_map(|(group, neighbours)| {
            let first = group * NEIGHBOURS as u64;
            let calls = neighbours.iter().enumerate();
            calls.filter_map(move |(index, call)| Some((first + index as u64, call.as_ref()?)))
        })
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &Call> {
        self.iter().map(|(_, call)| call)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.nested.is_empty()
    }
}

impl Index<&CallId> for Calls {
    type Output = Call;

    fn index(&self, id: &CallId) -> &Call {
        self.get(id).expect("calls in use are known")
    }
}
