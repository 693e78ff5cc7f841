//! Ids that are to be toggled in the global task list.
//!
//! Every id is toggled twice: when its parent completes, which makes it known, and when its own task
//! completes. If both halves are here, they cancel out and never reach `ZooKeeper`.
//!
//! A set that is too large for one transaction is divided, the parents' halves first. So as long as an own
//! half is still to be toggled, every child of that task is in the list or complete, and as long as a parent's
//! half is, the parent's own half is: the list is not empty before everything is complete.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;

/// Ids to be toggled, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Toggles {
    /// The parents' halves: children of completed tasks.
    children: BTreeSet<TaskId>,
    /// The own halves: completed tasks.
    completed: BTreeSet<TaskId>,
}

impl Toggles {
    /// Adds a completed task with the tasks that were split off from it.
    pub(crate) fn complete(&mut self, id: TaskId, children: &[TaskId]) {
        self.add_completed(id);
        for &child in children {
            self.add_child(child);
        }
    }

    fn add_completed(&mut self, id: TaskId) {
        if !self.children.remove(&id) {
            let is_new = self.completed.insert(id);
            debug_assert!(is_new, "{id} is completed twice");
        }
    }

    fn add_child(&mut self, id: TaskId) {
        if !self.completed.remove(&id) {
            self.children.insert(id);
        }
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        other.completed.into_iter().for_each(|id| self.add_completed(id));
        other.children.into_iter().for_each(|id| self.add_child(id));
    }

    /// Returns the number of ids.
    pub(crate) fn len(&self) -> usize {
        self.children.len() + self.completed.len()
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the first ids to be toggled, at most `max`, and returns them.
    pub(crate) fn take(&mut self, max: usize) -> Vec<TaskId> {
        let mut taken: Vec<TaskId> = Vec::with_capacity(self.len().min(max));
        for half in [&mut self.children, &mut self.completed] {
            while taken.len() < max
                && let Some(id) = half.pop_first()
            {
                taken.push(id);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::NodeId;

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    #[test]
    fn a_family_that_completes_here_leaves_only_its_eldest() {
        let mut toggles = Toggles::default();
        toggles.complete(task(2), &[]);
        toggles.complete(task(1), &[task(2)]);
        toggles.complete(task(0), &[task(1)]);
        assert_eq!(toggles.take(9), [task(0)]);
    }

    #[test]
    fn the_halves_of_the_parents_go_first() {
        let mut toggles = Toggles::default();
        toggles.complete(task(1), &[task(7), task(8)]);
        assert_eq!((toggles.take(1), toggles.take(2)), (vec![task(7)], vec![task(8), task(1)]));
        assert!(toggles.is_empty());
    }

    proptest! {
        /// A random tree of tasks is completed in a random order on a few nodes, each of which toggles a few
        /// ids at a time.
        #[test]
        fn the_list_is_empty_at_the_end_and_not_before(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
            nodes in 1_usize..4,
            max in 1_usize..4,
        ) {
            let mut children = vec![Vec::new(); parents.len() + 1];
            for (child, parent) in parents.iter().enumerate() {
                children[parent.index(child + 1)].push(task(child as u64 + 1));
            }
            let mut list = BTreeSet::from([task(0)]);
            let mut owed = vec![Toggles::default(); nodes];
            let mut left: Vec<usize> = (0..children.len()).collect();
            let mut order = order.into_iter().cycle();
            while !left.is_empty() || owed.iter().any(|owed| !owed.is_empty()) {
                prop_assert!(!list.is_empty(), "{} tasks are left, {:?} is owed", left.len(), owed);
                let node = order.next().unwrap().index(nodes);
                let what = order.next().unwrap();
                if !left.is_empty() && what.index(3) > 0 {
                    let done = left.swap_remove(what.index(left.len()));
                    owed[node].complete(task(done as u64), &children[done]);
                } else {
                    for id in owed[node].take(max) {
                        if !list.remove(&id) {
                            list.insert(id);
                        }
                    }
                }
            }
            prop_assert!(list.is_empty());
        }
    }
}
