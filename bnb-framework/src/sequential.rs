//! The plain sequential search: the reference that every parallel run is compared with. It uses no runtime,
//! no tasks and no atomics.

use std::time::Duration;

use taskwork::report::Figures;

use crate::{
    enumerate::Enumerate,
    frontier::{Below, Frontier, Searched, Visitor},
    incumbent::Best,
    mistake::{contradicts, may_compare, not_a_bound_of_all, not_a_number},
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
        let mut figures = Figures::default();
        figures.worked = self.states;
        Solved {
            bound: self.best.as_ref().map(|best| best.cost),
            best: self.best,
            proven: true,
            end: End::Proven,
            collected: Vec::new(),
            collected_all: true,
            states: self.states,
            pruned: self.pruned,
            figures,
            elapsed,
        }
    }
}

/// Searches the whole tree depth first, in the order in which [`Tree::branch`](crate::Tree::branch) returns
/// the children. `start` is a solution to start with.
///
/// # Panics
/// If the search contradicts the problem: see [`try_solve`].
pub fn solve<P: Problem>(
    problem: &P,
    pruning: bool,
    start: Option<Best<P::Cost, P::Solution>>,
) -> Sequential<P> {
    try_solve(problem, pruning, start).unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// Searches like [`solve`].
///
/// # Errors
/// If a solution is better than the bound of a state above it, or a cost is not a number: a mistake of the problem,
/// which is described.
pub fn try_solve<P: Problem>(
    problem: &P,
    pruning: bool,
    start: Option<Best<P::Cost, P::Solution>>,
) -> Result<Sequential<P>, String> {
    if pruning { search::<P, true>(problem, start) } else { search::<P, false>(problem, start) }
}

fn search<P: Problem, const PRUNING: bool>(
    problem: &P,
    start: Option<Best<P::Cost, P::Solution>>,
) -> Result<Sequential<P>, String> {
    let best = start.as_ref().map(|start| start.cost);
    let found = Sequential { best: start, states: 0, pruned: 0 };
    let mut alone = Alone::<P, PRUNING> { best, top: None, new: None, mistake: None, found };
    let mut frontier = Frontier::new(problem);
    let mut compared = 0;
    loop {
        let searched = frontier.search(problem, &mut alone);
        if let Some(cost) = alone.new.take()
            && may_compare(compared, alone.found.states)
        {
            let (mistake, bounds) = frontier.compare_with_path(problem, cost);
            (alone.mistake, compared) = (alone.mistake.or(mistake), compared + bounds);
        }
        alone.compare_with_top();
        match (alone.mistake.take(), searched) {
            (Some(mistake), _) => return Err(mistake),
            (None, Searched::Over) => return Ok(alone.found),
            (None, Searched::Paused) => {}
        }
    }
}

/// A visitor that nothing else waits for. It pauses only at a better solution, to compare it with the bounds above.
struct Alone<P: Problem, const PRUNING: bool> {
    best: Option<P::Cost>,
    /// The bound of the root, if it was branched.
    top: Option<P::Cost>,
    /// The cost of the solution at which it pauses.
    new: Option<P::Cost>,
    mistake: Option<String>,
    found: Sequential<P>,
}

impl<P: Problem, const PRUNING: bool> Alone<P, PRUNING> {
    #[cold]
    fn found(&mut self, problem: &P, leaf: &P::State, cost: P::Cost) {
        self.best = Some(cost);
        self.found.best = Some(Best::new(cost, problem.solution(leaf)));
        self.new = Some(cost).filter(|_| PRUNING);
    }

    #[cold]
    fn fail(&mut self, function: &str, state: &P::State) {
        self.mistake = Some(not_a_number::<P>(function, state));
    }

    fn compare_with_top(&mut self) {
        if let (Some(best), Some(top)) = (self.best, self.top)
            && contradicts::<P>(best, top)
        {
            self.mistake.get_or_insert_with(|| not_a_bound_of_all::<P>(best, top, "the root"));
        }
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
            Visit::Better(cost) => {
                self.found(problem, state, cost);
                return Below::NothingAndPause;
            }
            Visit::NanLeaf => {
                self.fail("leaf", state);
                return Below::NothingAndPause;
            }
            Visit::NanBound => {
                self.fail("bound", state);
                return Below::NothingAndPause;
            }
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

    fn visit_root(&mut self, problem: &P, state: &mut P::State) -> Below {
        let below = self.visit(problem, state);
        if PRUNING && below == Below::Open {
            // It was bounded just before.
            self.top = (P::HOOKS.quick_bound)(problem, &mut state.clone(), self.best);
        }
        below
    }

    #[inline]
    fn pauses(&mut self, _: bool) -> bool {
        false
    }
}

/// Visits the whole tree depth first, and returns the merged output of its states.
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
    fn search_without_pruning_visits_every_state() {
        let found = solve(&Paths { depth: 5, breadth: 3 }, false, None);
        assert_eq!((found.states, found.pruned), ((3_u64.pow(6) - 1) / 2, 0));
    }
}
