//! From which nodes a node's tasks came, for people.

use std::collections::BTreeMap;

use zk::figures::{self, GIVERS_MAX, StolenFrom};

use crate::id::NodeId;

/// The number of tasks that came from each node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Givers {
    tasks: BTreeMap<NodeId, u64>,
    /// Those that came from nodes that are not counted any more.
    rest: u64,
}

/// The maximum number of nodes that are counted apart.
const COUNTED_MAX: usize = 256;

impl Givers {
    /// Notes that tasks came from a node.
    pub(crate) fn note(&mut self, node: NodeId, tasks: u64) {
        if self.tasks.len() >= COUNTED_MAX && !self.tasks.contains_key(&node) {
            let least = self.tasks.iter().min_by_key(|(_, tasks)| **tasks).map(|(node, _)| *node);
            self.rest += least.and_then(|least| self.tasks.remove(&least)).unwrap_or(0);
        }
        *self.tasks.entry(node).or_default() += tasks;
    }

    /// Returns those that have given the most.
    pub(crate) fn most(&self) -> figures::Givers {
        let mut all: Vec<(NodeId, u64)> = self.tasks.iter().map(|(node, tasks)| (*node, *tasks)).collect();
        // The order of those that have given equally many is that of their names.
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
    fn those_that_have_given_most_are_named_and_no_task_is_lost() {
        let mut givers = Givers::default();
        for node in 0..1_000 {
            givers.note(NodeId(node), 1 + u64::from(node == 700));
        }
        givers.note(NodeId(3), 5);
        let told = givers.most();
        let named: Vec<(String, u64)> =
            told.most.iter().map(|from| (from.node.clone(), from.tasks)).collect();
        assert_eq!(named.len(), GIVERS_MAX);
        assert_eq!(named[..2], [(NodeId(3).to_string(), 5), (NodeId(700).to_string(), 2)]);
        assert_eq!(told.rest + named.iter().map(|(_, tasks)| tasks).sum::<u64>(), 1_006);
        assert!(givers.tasks.len() <= COUNTED_MAX);
    }
}
