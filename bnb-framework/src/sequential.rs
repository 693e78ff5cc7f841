//! The plain sequential search: the reference that every parallel run is compared with. No runtime, no task, no atomics.

use crate::{
    frontier::Frontier,
    incumbent::Best,
    problem::Problem,
    step::{Visit, visit},
};

/// What a sequential search has found.
#[derive(Debug, Clone)]
pub struct Sequential<P: Problem> {
    /// The best solution; `None` if there is none (or none better than the one it started from, which is then here).
    pub best: Option<Best<P::Cost, P::Solution>>,
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound.
    pub pruned: u64,
}

/// Searches the whole tree depth first, in the order in which [`Problem::branch`] gives the children. `start` is a
/// solution to begin with.
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
    let mut found = Sequential { best: start, states: 0, pruned: 0 };
    let mut best = found.best.as_ref().map(|best| best.cost);
    let mut frontier = Frontier::new(problem);
    while let Some(state) = frontier.next(problem) {
        found.states += 1;
        match visit::<P, PRUNING>(problem, state, best) {
            Visit::Open(state) => {
                let children = problem.branch(&state);
                frontier.open(state, children);
            }
            Visit::Better(leaf, cost) => {
                best = Some(cost);
                found.best = Some(Best { cost, solution: problem.solution(&leaf) });
            }
            Visit::Pruned => found.pruned += 1,
            Visit::Leaf => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Knapsack, Paths};

    #[test]
    fn without_pruning_every_state_is_visited() {
        let found = solve(&Paths { depth: 5, breadth: 3 }, false, None);
        assert_eq!((found.states, found.pruned), ((3_u64.pow(6) - 1) / 2, 0));
    }

    proptest! {
        #[test]
        fn the_optimum_is_that_of_brute_force(
            capacity in 0_u64..60,
            items in prop::collection::vec((1_u64..40, 1_u64..25), 0..11),
        ) {
            let problem = Knapsack::new(capacity, items);
            let optimum = problem.brute_force();
            let (pruned, whole) = (solve(&problem, true, None), solve(&problem, false, None));
            prop_assert_eq!(pruned.best.map(|best| best.cost), Some(optimum));
            prop_assert_eq!(whole.best.map(|best| best.cost), Some(optimum));
            prop_assert!(pruned.states <= whole.states);
        }
    }
}
