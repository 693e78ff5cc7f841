//! The ancestors of a task on its node: if it panics before it was written, one of these is lost with it, and
//! is written in the ledger with all its descendants.

use std::{collections::VecDeque, sync::Arc};

use crate::id::TaskId;

/// The maximum number of tasks that are remembered.
const REMEMBERED_MAX: usize = 32;

/// The tasks from which a task was split off or spawned, and its own former ids, back to the task that was received by
/// this node. A pointer, because it moves with its task, and is empty for most tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lineage(Option<Arc<Line>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Line {
    /// Nearest first.
    from: VecDeque<TaskId>,
    /// Whether there were more.
    is_cut_short: bool,
}

impl Lineage {
    /// Returns the lineage of a child of this task, which has this id.
    pub(crate) fn of_child(&self, id: TaskId) -> Self {
        let mut child = self.clone();
        child.add(id);
        child
    }

    /// Records that the task has another id from now on.
    pub(crate) fn add(&mut self, before: TaskId) {
        let line = Arc::make_mut(self.0.get_or_insert_default());
        line.is_cut_short |= line.from.len() >= REMEMBERED_MAX;
        line.from.truncate(REMEMBERED_MAX - 1);
        line.from.push_front(before);
    }

    /// Returns the remembered tasks, nearest first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.0.iter().flat_map(|line| line.from.iter().copied())
    }

    /// Returns whether the last one is the task that was received by this node.
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
    fn lineage_keeps_the_nearest_ancestors() {
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
