//! What has been completed here and is not committed yet: the batch, and what tasks have produced.
//!
//! Every task id is toggled twice: by its own completion and by its parent's. An id whose two halves fall into the
//! same batch vanishes from it and never reaches `ZooKeeper`.

use std::collections::BTreeSet;

use super::Batch;
use crate::{
    id::TaskId,
    task::Output,
    wire::codec::{self, EncodeError},
};

/// The ledger of one node in one attempt.
#[derive(Debug, Default)]
pub(super) struct Ledger<O> {
    toggled: BTreeSet<TaskId>,
    /// The merged output of every task completed here in this attempt, committed or not. A commit writes the whole
    /// of it, so that a commit that is repeated adds nothing twice.
    total: O,
}

impl<O: Output> Ledger<O> {
    /// Notes a completed task: its own half, its children's halves, and its output, as one.
    pub(super) fn complete(&mut self, id: TaskId, children: &[TaskId], output: O) {
        self.toggle(id);
        for &child in children {
            self.toggle(child);
        }
        self.total.merge(output);
    }

    fn toggle(&mut self, id: TaskId) {
        if !self.toggled.remove(&id) {
            self.toggled.insert(id);
        }
    }

    pub(super) fn ids(&self) -> usize {
        self.toggled.len()
    }

    /// Hands out the batch and begins a new one. The output is that of all batches so far.
    pub(super) fn take(&mut self) -> Result<Batch, EncodeError> {
        let output = codec::encode(&self.total)?;
        Ok(Batch { toggles: std::mem::take(&mut self.toggled).into_iter().collect(), output })
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
        let mut ledger = Ledger::<u64>::default();
        ledger.complete(task(2), &[], 1);
        ledger.complete(task(1), &[task(2)], 2);
        ledger.complete(task(0), &[task(1)], 4);
        let batch = ledger.take().unwrap();
        assert_eq!(batch.toggles, [task(0)]);
        assert_eq!(batch.output, codec::encode(&7_u64).unwrap());
    }

    #[test]
    fn the_output_of_a_later_batch_contains_the_earlier_one() {
        let mut ledger = Ledger::<u64>::default();
        ledger.complete(task(0), &[], 1);
        ledger.take().unwrap();
        ledger.complete(task(1), &[], 2);
        let batch = ledger.take().unwrap();
        assert_eq!((batch.toggles, batch.output), (vec![task(1)], codec::encode(&3_u64).unwrap()));
    }

    proptest! {
        /// However a family tree is grouped into batches, the symmetric difference of the batches is the root alone.
        #[test]
        fn grouping_does_not_matter(parents in prop::collection::vec(any::<prop::sample::Index>(), 1..60), cuts: Vec<bool>) {
            let mut children = vec![Vec::new(); parents.len() + 1];
            for (child, parent) in parents.iter().enumerate() {
                children[parent.index(child + 1)].push(task(child as u64 + 1));
            }
            let mut ledger = Ledger::<u64>::default();
            let mut list = BTreeSet::new();
            for (number, children) in children.iter().enumerate() {
                ledger.complete(task(number as u64), children, 1);
                if cuts.get(number).copied().unwrap_or(number + 1 == parents.len() + 1) || number == parents.len() {
                    for id in ledger.take().unwrap().toggles {
                        if !list.remove(&id) { list.insert(id); }
                    }
                    prop_assert!(!list.is_empty(), "the root's parent half is still missing");
                }
            }
            prop_assert_eq!(list.into_iter().collect::<Vec<_>>(), vec![task(0)]);
        }
    }
}
