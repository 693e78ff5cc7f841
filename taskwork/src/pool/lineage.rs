//! What a task has come from on its node: if it panics before it was written, it is lost with one of these, which
//! stands in the ledger with all that came from it since.

use std::{collections::VecDeque, sync::Arc};

use crate::id::TaskId;

/// The maximum number of tasks that are remembered.
const REMEMBERED_MAX: usize = 32;

/// The tasks that a task was split off or spawned from, and its own ids of before, back to the one that came to this
/// node. A pointer, because it is moved with its task, and most tasks have come alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lineage(Option<Arc<Line>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Line {
    /// The nearest first.
    from: VecDeque<TaskId>,
    /// Whether there were more.
    is_cut_short: bool,
}

impl Lineage {
    /// Returns the lineage of a task that comes from this one, which has this id.
    pub(crate) fn of_child(&self, id: TaskId) -> Self {
        let mut child = self.clone();
        child.add(id);
        child
    }

    /// Notes that the task has another id from now on.
    pub(crate) fn add(&mut self, before: TaskId) {
        let line = Arc::make_mut(self.0.get_or_insert_default());
        line.is_cut_short |= line.from.len() >= REMEMBERED_MAX;
        line.from.truncate(REMEMBERED_MAX - 1);
        line.from.push_front(before);
    }

    /// Returns the tasks that are remembered, the nearest first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.0.iter().flat_map(|line| line.from.iter().copied())
    }

    /// Returns whether the first one is the one that came to this node.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.as_ref().is_none_or(|line| !line.is_cut_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;

    fn id(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    #[test]
    fn the_nearest_are_remembered() {
        let mut lineage = Lineage::default();
        for number in 0..REMEMBERED_MAX as u64 {
            lineage = lineage.of_child(id(number));
        }
        assert!(lineage.is_complete());
        assert_eq!((lineage.tasks().next(), lineage.tasks().last()), (Some(id(31)), Some(id(0))));
        lineage.add(id(32));
        assert!(!lineage.is_complete());
        assert_eq!((lineage.tasks().next(), lineage.tasks().last()), (Some(id(32)), Some(id(1))));
    }
}
