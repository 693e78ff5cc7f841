//! The plain sequential search: the reference that every parallel run is compared with. It uses no runtime,
//! no tasks and no atomics.

use std::time::Duration;

use taskwork::Figures;

use crate::{
    enumerate::Enumerate,
    frontier::{Below, Frontier, Searched, Visitor},
    incumbent::Best,
    problem::Problem,
    solver::{End, Solved},
    step::{Visit, visit},
};

/// The result of a sequential search.
#[derive(Debug, Clone)]
pub struct Sequential<P: Problem> {
    /// The best solution; the one to start with if there is none better, or `None` if there is none at all.
    pub best: Option<Best<P::Cost, P::Solution>>,
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound.
    pub pruned: u64,
}

impl<P: Problem> Sequential<P> {
    /// Converts this into the result of a search that took the given time.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the command line alone asks for it"))]
    pub(crate) fn solved(self, elapsed: Duration) -> Solved<P> {
        Solved {
            bound: self.best.as_ref().map(|best| best.cost),
            best: self.best,
            proven: true,
            end: End::Proven,
            collected: Vec::new(),
            collected_all: true,
            states: self.states,
            pruned: self.pruned,
            figures: Figures::default(),
            elapsed,
        }
    }
}

/// Searches the whole tree depth first, in the order in which [`Tree::branch`](crate::Tree::branch) returns
/// the children. `start` is a solution to start with.
pub fn solve<P: Problem>(
    problem: &P,
    pruning: bool,
    start: Option<Best<P::Cost, P::Solution>>,
) -> Sequential<P> {
    if pruning { search::<P, true>(problem, start) } else { search::<P, false>(problem, start) }
}

fn search<P: Problem, const PRUNING: bool>(
    problem: &P,
    start: Option<Best<P::Cost, P::Solution>>,
) -> Sequential<P> {
    let best = start.as_ref().map(|start| start.cost);
    let mut alone = Alone::<P, PRUNING> { best, found: Sequential { best: start, states: 0, pruned: 0 } };
    let searched = Frontier::new(problem).search(problem, &mut alone);
    debug_assert_eq!(searched, Searched::Over, "it never pauses");
    alone.found
}

/// A visitor that nothing else waits for, so it never pauses.
struct Alone<P: Problem, const PRUNING: bool> {
    best: Option<P::Cost>,
    found: Sequential<P>,
}

impl<P: Problem, const PRUNING: bool> Alone<P, PRUNING> {
    #[cold]
    fn found(&mut self, problem: &P, leaf: &P::State, cost: P::Cost) {
        self.best = Some(cost);
        self.found.best = Some(Best::new(cost, problem.solution(leaf)));
    }
}

impl<P: Problem, const PRUNING: bool> Visitor<P> for Alone<P, PRUNING> {
    #[expect(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn visit(&mut self, problem: &P, state: &mut P::State) -> Below {
        let found = &mut self.found;
        found.states += 1;
        match visit::<P, PRUNING>(problem, state, self.best) {
            Visit::Open => return Below::Open,
            Visit::Better(cost) => self.found(problem, state, cost),
            Visit::Leaf => {}
            Visit::Pruned => {
                found.pruned += 1;
                if P::WORST_LAST {
                    return Below::NothingNorAfter;
                }
            }
        }
        Below::Nothing
    }

    #[inline]
    fn pauses(&mut self, _: bool) -> bool {
        false
    }
}

/// Visits the whole tree depth first, and returns what was gathered at its states.
pub fn enumerate<E: Enumerate>(tree: &E) -> E::Output {
    struct Alone<O>(O);
    impl<E: Enumerate> Visitor<E> for Alone<E::Output> {
        #[inline]
        fn visit(&mut self, _: &E, _: &mut E::State) -> Below {
            Below::Open
        }

        #[inline]
        fn branch(&mut self, tree: &E, state: &mut E::State) -> E::Children {
            let children = tree.branch(state);
            tree.visit(state, &mut self.0);
            children
        }

        #[inline]
        fn pauses(&mut self, _: bool) -> bool {
            false
        }
    }
    let mut alone = Alone(E::Output::default());
    let searched = Frontier::new(tree).search(tree, &mut alone);
    debug_assert_eq!(searched, Searched::Over, "it never pauses");
    alone.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Paths;

    #[test]
    fn without_pruning_every_state_is_visited() {
        let found = solve(&Paths { depth: 5, breadth: 3 }, false, None);
        assert_eq!((found.states, found.pruned), ((3_u64.pow(6) - 1) / 2, 0));
    }
}
