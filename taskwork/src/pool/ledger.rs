//! Completed tasks that are not committed yet, and the output of all completed tasks.
//!
//! The next [cut](super::cut) contains a completion, or the one after it if the worker has already passed its point.
//! The ledger keeps a completion on a tentative basis separately until the basis is firm, and drops it if the basis
//! is void.

use std::collections::BTreeMap;

use super::{cut::Standing, queue::Judgement};
use crate::{
    holdings::Basis,
    output::Output,
    scope::Completed,
    toggles::Toggles,
    wire::codec::{self, EncodeError},
};

/// The ledger of one node in one attempt.
#[derive(Debug, Default)]
pub(super) struct Ledger<O> {
    /// The ids to toggle for completions since the last cut.
    toggles: Toggles,
    /// The merged output of the tasks completed here in this attempt, committed or not, without those in `after` and
    /// `parts`. Each commit writes the whole output, so a repeated commit adds nothing twice.
    total: O,
    /// Completions by workers that have passed their point of the current cut; the next cut contains them.
    after: Option<Part<O>>,
    /// Completions on bases that were tentative at the time.
    parts: BTreeMap<Basis, Part<O>>,
    /// The number of the last finished cut.
    finished: u64,
}

/// Completions that are kept separately.
#[derive(Debug, Default)]
struct Part<O> {
    toggles: Toggles,
    output: O,
}

impl<O: Output> Part<O> {
    fn complete(&mut self, completed: &Completed<'_>, output: O) {
        // This runs the program's own code: if it panics, the task is not complete.
        self.output.merge(output);
        self.toggles.add(completed);
    }
}

impl<O: Output> Ledger<O> {
    /// Records a completed task: the toggle of its id, the toggles of the ids that it names, and its output. Drops a
    /// void completion.
    pub(super) fn complete(&mut self, standing: Standing, completed: &Completed<'_>, output: O) {
        match standing {
            Standing::Void => {}
            Standing::Tentative(basis) => {
                self.parts.entry(basis).or_default().complete(completed, output);
            }
            Standing::After(cut) if cut > self.finished => {
                self.after.get_or_insert_default().complete(completed, output);
            }
            Standing::Before | Standing::After(_) => {
                self.total.merge(output);
                self.toggles.add(completed);
            }
        }
    }

    /// Returns the number of ids to commit.
    pub(super) fn ids(&self) -> usize {
        self.toggles.len() + self.after.as_ref().map_or(0, |after| after.toggles.len())
    }

    /// Returns whether outputs must be merged to finish a cut.
    pub(super) fn merges(&self, judge: impl Fn(Basis) -> Judgement) -> bool {
        self.after.is_some() || self.parts.keys().any(|&basis| judge(basis) == Judgement::Firm)
    }

    /// Finishes a cut. Returns the ids to toggle since the previous cut, and the merged output of all completions up
    /// to this cut.
    pub(super) fn finish(
        &mut self,
        cut: u64,
        judge: impl Fn(Basis) -> Judgement,
    ) -> Result<(Toggles, Vec<u8>), EncodeError> {
        for (basis, part) in std::mem::take(&mut self.parts) {
            match judge(basis) {
                Judgement::Void => {}
                Judgement::Firm => self.add(part),
                Judgement::Tentative => {
                    self.parts.insert(basis, part);
                }
            }
        }
        let output = codec::encode(&self.total)?;
        let toggles = std::mem::take(&mut self.toggles);
        self.finished = cut;
        if let Some(after) = self.after.take() {
            self.add(after);
        }
        Ok((toggles, output))
    }

    fn add(&mut self, part: Part<O>) {
        self.toggles.merge(part.toggles);
        self.total.merge(part.output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, TaskId};

    const BASIS: Basis = Basis(7);

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    fn finish(ledger: &mut Ledger<u64>, cut: u64, judgement: Judgement) -> (Vec<TaskId>, u64) {
        let (mut toggles, output) = ledger.finish(cut, |_| judgement).unwrap();
        let ids = toggles.take(99).into_iter().map(|mark| mark.task).collect();
        (ids, codec::decode(&output).unwrap())
    }

    #[test]
    fn completion_after_the_cut_is_in_the_next_one() {
        let mut ledger = Ledger::<u64>::default();
        ledger.complete(Standing::Before, &Completed::plain(task(0), &[]), 1);
        ledger.complete(Standing::After(1), &Completed::plain(task(1), &[]), 2);
        assert_eq!(ledger.ids(), 2);
        assert_eq!(finish(&mut ledger, 1, Judgement::Firm), (vec![task(0)], 1));
        // Its worker read the standing before the cut was finished, and completes the task afterwards.
        ledger.complete(Standing::After(1), &Completed::plain(task(2), &[]), 4);
        assert_eq!(finish(&mut ledger, 2, Judgement::Firm), (vec![task(1), task(2)], 7));
        assert_eq!(ledger.ids(), 0);
    }

    #[test]
    fn tentative_completion_counts_with_its_basis() {
        let mut ledger = Ledger::<u64>::default();
        ledger.complete(Standing::Tentative(BASIS), &Completed::plain(task(0), &[]), 1);
        assert_eq!(finish(&mut ledger, 1, Judgement::Tentative), (vec![], 0));
        assert_eq!(finish(&mut ledger, 2, Judgement::Firm), (vec![task(0)], 1));
        ledger.complete(Standing::Tentative(BASIS), &Completed::plain(task(1), &[]), 2);
        ledger.complete(Standing::Void, &Completed::plain(task(2), &[]), 4);
        assert_eq!(finish(&mut ledger, 3, Judgement::Void), (vec![], 1));
        assert_eq!(finish(&mut ledger, 4, Judgement::Firm), (vec![], 1), "it is dropped for good");
    }
}
