//! Compares solutions with the bounds that are known where they are found: see [`mistake`](crate::mistake).

use super::Worker;
use crate::{
    frontier::Frontier,
    mistake::{contradicts, not_a_bound_of_all, not_a_number},
    problem::Problem,
};

impl<P: Problem, const KIND: u8> Worker<'_, '_, P, KIND> {
    /// Starts with the root of the tree, or with a state below it, with a known or unknown bound.
    pub(crate) fn begin_below(&mut self, top: Option<P::Cost>, is_at_top: bool) {
        (self.top, self.is_at_top) = (top, is_at_top);
    }

    pub(crate) fn top(&self) -> Option<P::Cost> {
        self.top
    }

    /// Compares new solutions with the bounds above them. Returns the detected mistake of the problem, if
    /// any.
    pub(crate) fn look_for_mistakes(&mut self, problem: &P, path: Option<&Frontier<P>>) -> Option<String> {
        if let (Some(cost), Some(path)) = (self.new.take(), path) {
            let (mistake, bounds) = path.compare_with_path(problem, cost);
            self.compared += bounds;
            self.mistake = self.mistake.take().or(mistake);
        }
        // It may also have come from a heuristic, or a user.
        if let (Some(best), Some(top)) = (self.best, self.top)
            && contradicts::<P>(best, top)
        {
            self.mistake.get_or_insert_with(|| not_a_bound_of_all::<P>(best, top, "the root"));
        }
        self.mistake.take()
    }

    /// Ends the search because of a cost that is not a number.
    #[cold]
    pub(super) fn found_nan(&mut self, function: &str, state: &P::State) {
        self.mistake = Some(not_a_number::<P>(function, state));
        (self.report_at, self.stock_is_due) = (0, true);
    }

    /// Compares the solution that has pruned the root with the bound of the root. With a solution known, a problem need
    /// not sharpen its bound, so at a contradiction the bound is computed without.
    #[cold]
    pub(super) fn compare_start(&mut self, problem: &P, root: &P::State) {
        let Some(best) = self.best else { return };
        let seems_wrong = (P::HOOKS.quick_bound)(problem, &mut root.clone(), Some(best));
        if seems_wrong.is_some_and(|bound| contradicts::<P>(best, bound))
            && let Some(bound) = problem.bound(&mut problem.root(), None)
            && contradicts::<P>(best, bound)
        {
            self.mistake = Some(not_a_bound_of_all::<P>(best, bound, "the root"));
        }
    }

    /// Records the bound of a state with which the search starts.
    pub(super) fn begin_at(&mut self, bound: P::Cost) {
        self.above = Some(bound);
        if std::mem::take(&mut self.is_at_top) {
            self.top = Some(bound);
        }
    }
}
