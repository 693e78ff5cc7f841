//! The step for a visited state in a search for the best solution, common to the parallel search and the
//! sequential reference (paper, figure 4).

use crate::{cost::Cost as _, problem::Problem};

#[derive(Debug)]
pub(crate) enum Visit<P: Problem> {
    /// A solution with this cost, better than the limit.
    Better(P::Cost),
    /// A solution, but not a better one.
    Leaf,
    /// Nothing below it can be better than the limit.
    Pruned,
    NanLeaf,
    NanBound,
    /// To be branched.
    Open,
}

/// Visits a state. `limit` is the cost to prune by, usually that of the best solution known: only better
/// solutions are of interest. `PRUNING` is a constant, so that a search without pruning does not pay for it.
#[expect(clippy::inline_always, reason = "the innermost step of the search")]
#[inline(always)]
pub(crate) fn visit<P: Problem, const PRUNING: bool>(
    problem: &P,
    state: &mut P::State,
    limit: Option<P::Cost>,
) -> Visit<P> {
    if let Some(cost) = problem.leaf(state) {
        if cost.is_nan() {
            return Visit::NanLeaf;
        }
        let better = limit.is_none_or(|limit| P::GOAL.better(&cost, &limit));
        return if better { Visit::Better(cost) } else { Visit::Leaf };
    }
    if PRUNING {
        let hopeful = match (problem.bound(state, limit), limit) {
            (None, _) => false,
            (Some(bound), _) if bound.is_nan() => return Visit::NanBound,
            (Some(_), None) => true,
            (Some(bound), Some(limit)) => P::GOAL.better(&bound, &limit),
        };
        if !hopeful {
            return Visit::Pruned;
        }
    }
    Visit::Open
}
