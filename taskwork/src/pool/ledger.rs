//! Completed tasks that are not committed yet, in batches, and the output of all completed tasks.
//!
//! Every task id is toggled twice: by its own completion and by its parent's. An id whose two halves fall
//! into the same batch cancels out and never reaches `ZooKeeper`.
//!
//! A batch is committed by one transaction, whose size is limited. While `ZooKeeper` accepts no writes,
//! completions accumulate; so a batch that is large enough is closed and the next one begun. A completion is
//! never divided: all its toggles are in one batch.

use std::collections::{BTreeSet, VecDeque};

use super::Batch;
use crate::{
    id::TaskId,
    output::Output,
    wire::codec::{self, EncodeError},
};

/// The ledger of one node in one attempt.
#[derive(Debug)]
pub(super) struct Ledger<O> {
    /// The number of ids from which a batch is closed.
    ids_max: usize,
    /// The closed batches, oldest first.
    closed: VecDeque<Closed>,
    /// The number of ids in the closed batches.
    closed_ids: usize,
    /// The batch for new completions.
    open: BTreeSet<TaskId>,
    /// The merged output of every task completed here in this attempt, committed or not. Each commit writes
    /// all of it, so that a repeated commit adds nothing twice.
    total: O,
}

/// A closed batch.
#[derive(Debug)]
struct Closed {
    toggled: BTreeSet<TaskId>,
    /// The output up to then, encoded. `None` means that the output of the next batch is used, to avoid
    /// keeping several large ones. It contains more than this batch, but only completed tasks, and no output
    /// counts before the list is empty.
    output: Option<Vec<u8>>,
}

/// The maximum size of an output to be kept for more than one batch, in bytes.
const WAITING_BYTES_MAX: usize = 64 << 10;

impl<O: Output> Ledger<O> {
    /// Creates an empty ledger. A batch has at most `ids_max` ids, unless it consists of a single completion.
    pub(super) fn new(ids_max: usize) -> Self {
        Self { ids_max, closed: VecDeque::new(), closed_ids: 0, open: BTreeSet::new(), total: O::default() }
    }

    /// Records a completed task: its own half, its children's halves, and its output.
    pub(super) fn complete(&mut self, id: TaskId, children: &[TaskId], output: O) {
        if !self.open.is_empty() && self.open.len() + 1 + children.len() > self.ids_max {
            self.close();
        }
        self.toggle(id);
        for &child in children {
            self.toggle(child);
        }
        self.total.merge(output);
    }

    fn toggle(&mut self, id: TaskId) {
        if !self.open.remove(&id) {
            self.open.insert(id);
        }
    }

    /// Closes the open batch and begins the next one.
    fn close(&mut self) {
        // An output that cannot be encoded now cannot be later either: `take` will return the error.
        let output = codec::encode(&self.total).ok();
        if let Some(last) = self.closed.back_mut()
            && output.as_ref().is_none_or(|output| output.len() > WAITING_BYTES_MAX)
        {
            last.output = None;
        }
        let toggled = std::mem::take(&mut self.open);
        self.closed_ids += toggled.len();
        self.closed.push_back(Closed { toggled, output });
    }

    /// Returns the number of ids to be committed.
    pub(super) fn ids(&self) -> usize {
        self.closed_ids + self.open.len()
    }

    /// Returns the number of batches to be committed.
    pub(super) fn batches(&self) -> usize {
        self.closed.len() + usize::from(!self.open.is_empty())
    }

    /// Hands out the oldest batch, with at least the output of everything handed out so far, this batch
    /// included.
    pub(super) fn take(&mut self) -> Result<Batch, EncodeError> {
        let encode = |total: &O| codec::encode(total);
        let Some(Closed { toggled, output }) = self.closed.pop_front() else {
            let toggles = std::mem::take(&mut self.open).into_iter().collect();
            return Ok(Batch { toggles, output: encode(&self.total)? });
        };
        self.closed_ids -= toggled.len();
        let later = || self.closed.iter().find_map(|closed| closed.output.clone());
        let output = match output.or_else(later) {
            Some(output) => output,
            None => encode(&self.total)?,
        };
        Ok(Batch { toggles: toggled.into_iter().collect(), output })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::id::NodeId;

    /// An output that grows.
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Lines(Vec<u8>);

    impl Output for Lines {
        fn merge(&mut self, mut other: Self) {
            self.0.append(&mut other.0);
        }
    }

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    #[test]
    fn a_family_that_completes_here_leaves_only_its_eldest() {
        let mut ledger = Ledger::<u64>::new(1_000);
        ledger.complete(task(2), &[], 1);
        ledger.complete(task(1), &[task(2)], 2);
        ledger.complete(task(0), &[task(1)], 4);
        let batch = ledger.take().unwrap();
        assert_eq!(batch.toggles, [task(0)]);
        assert_eq!(batch.output, codec::encode(&7_u64).unwrap());
    }

    #[test]
    fn the_output_of_a_later_batch_contains_the_earlier_one() {
        let mut ledger = Ledger::<u64>::new(1_000);
        ledger.complete(task(0), &[], 1);
        ledger.take().unwrap();
        ledger.complete(task(1), &[], 2);
        let batch = ledger.take().unwrap();
        assert_eq!((batch.toggles, batch.output), (vec![task(1)], codec::encode(&3_u64).unwrap()));
    }

    #[test]
    fn however_much_is_completed_before_a_commit_no_batch_grows_beyond_its_limit() {
        let mut ledger = Ledger::<u64>::new(1_000);
        for number in 0..10_000 {
            // The child of each is completed elsewhere.
            ledger.complete(task(2 * number), &[task(2 * number + 1)], 1);
        }
        assert_eq!((ledger.ids(), ledger.batches()), (20_000, 20));
        let mut ids = BTreeSet::new();
        for batch in 1..=20_u64 {
            let taken = ledger.take().unwrap();
            assert_eq!(taken.toggles.len(), 1_000);
            // No completion is divided, and the output is that of the batches so far.
            assert!(taken.toggles.chunks(2).all(|pair| pair[1].number == pair[0].number + 1));
            assert_eq!(taken.output, codec::encode(&(500 * batch)).unwrap());
            ids.extend(taken.toggles);
        }
        assert_eq!((ids.len(), ledger.ids(), ledger.batches()), (20_000, 0, 0));
    }

    #[test]
    fn of_large_outputs_one_waits() {
        let mut ledger = Ledger::<Lines>::new(1);
        for number in 0..100 {
            ledger.complete(task(number), &[], Lines(vec![7; 10_000]));
        }
        let waiting: usize =
            ledger.closed.iter().filter_map(|closed| closed.output.as_ref().map(Vec::len)).sum();
        assert!(waiting < 2_000_000, "{waiting} bytes wait");
        let mut last = Lines::default();
        for _ in 0..100 {
            let now = codec::decode::<Lines>(&ledger.take().unwrap().output).unwrap();
            assert!(now.0.len() >= last.0.len());
            last = now;
        }
        assert_eq!(last.0.len(), 1_000_000);
    }

    #[test]
    fn one_completion_is_never_cut() {
        let mut ledger = Ledger::<u64>::new(2);
        let children: Vec<TaskId> = (1..9).map(task).collect();
        ledger.complete(task(100), &[], 1);
        ledger.complete(task(0), &children, 1);
        assert_eq!(ledger.take().unwrap().toggles, [task(100)]);
        assert_eq!(ledger.take().unwrap().toggles.len(), 9);
    }

    proptest! {
        /// However a family tree is grouped into batches, the symmetric difference of the batches is the root
        /// alone.
        #[test]
        fn grouping_does_not_matter(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..60), cuts: Vec<bool>, ids_max in 1_usize..20,
        ) {
            let mut children = vec![Vec::new(); parents.len() + 1];
            for (child, parent) in parents.iter().enumerate() {
                children[parent.index(child + 1)].push(task(child as u64 + 1));
            }
            let mut ledger = Ledger::<u64>::new(ids_max);
            let mut list = BTreeSet::new();
            for (number, children) in children.iter().enumerate() {
                ledger.complete(task(number as u64), children, 1);
                if cuts.get(number).copied().unwrap_or(false) || number == parents.len() {
                    while ledger.ids() > 0 {
                        for id in ledger.take().unwrap().toggles {
                            if !list.remove(&id) { list.insert(id); }
                        }
                        prop_assert!(!list.is_empty(), "the root's parent half is still missing");
                    }
                }
            }
            prop_assert_eq!(list.into_iter().collect::<Vec<_>>(), vec![task(0)]);
        }
    }
}
