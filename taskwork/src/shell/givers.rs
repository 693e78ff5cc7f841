//! The nodes from which a node's tasks came, for display.

use std::collections::BTreeMap;

use zk::figures::{self, GIVERS_MAX, StolenFrom};

use crate::id::NodeId;

/// The number of tasks that came from each node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Givers {
    tasks: BTreeMap<NodeId, u64>,
    /// The tasks from nodes that are no longer counted individually.
    rest: u64,
}

/// The maximum number of nodes counted individually.
const COUNTED_MAX: usize = 256;

impl Givers {
    /// Counts tasks that came from a node.
    pub(crate) fn note(&mut self, node: NodeId, tasks: u64) {
        if self.tasks.len() >= COUNTED_MAX && !self.tasks.contains_key(&node) {
            let least = self.tasks.iter().min_by_key(|(_, tasks)| **tasks).map(|(node, _)| *node);
            self.rest += least.and_then(|least| self.tasks.remove(&least)).unwrap_or(0);
        }
        *self.tasks.entry(node).or_default() += tasks;
    }

    /// Returns the nodes that have given the most tasks.
    pub(crate) fn most(&self) -> figures::Givers {
        let mut all: Vec<(NodeId, u64)> = self.tasks.iter().map(|(node, tasks)| (*node, *tasks)).collect();
        // Nodes with equal numbers are sorted by name.
        all.sort_by_key(|(_, tasks)| std::cmp::Reverse(*tasks));
        let others: u64 = all.iter().skip(GIVERS_MAX).map(|(_, tasks)| tasks).sum();
        all.truncate(GIVERS_MAX);
        let most = all.into_iter().map(|(node, tasks)| StolenFrom { node: node.to_string(), tasks });
        figures::Givers { most: most.collect(), rest: self.rest + others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_givers_are_named_and_all_tasks_are_counted() {
        let mut givers = Givers::default();
        for node in 0..1_000 {
            givers.note(NodeId(node), 1 + u64::from(node == 700));
        }
        givers.note(NodeId(3), 5);
        let counted = givers.most();
        let named: Vec<(String, u64)> =
            counted.most.iter().map(|from| (from.node.clone(), from.tasks)).collect();
        assert_eq!(named.len(), GIVERS_MAX);
        assert_eq!(named[..2], [(NodeId(3).to_string(), 5), (NodeId(700).to_string(), 2)]);
        assert_eq!(counted.rest + named.iter().map(|(_, tasks)| tasks).sum::<u64>(), 1_006);
        assert!(givers.tasks.len() <= COUNTED_MAX);
    }
}
