//! A plain recursion over the operations of a problem: the cost of a search without any runtime.

use bnb_framework::{InPlace, Problem};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<C> {
    /// The cost of the best solution, if there is any.
    pub(crate) best: Option<C>,
    pub(crate) states: u64,
}

/// Searches the tree of a problem depth first, with pruning, in place.
pub(crate) fn in_place<P: Problem<Children: InPlace<P>>>(problem: &P) -> Found<P::Cost> {
    let mut search = Search { problem, found: Found { best: None, states: 0 } };
    search.visit(&mut problem.root());
    search.found
}

/// Whether the later siblings of a state are still relevant.
#[derive(PartialEq, Eq)]
enum Siblings {
    Open,
    Pruned,
}

struct Search<'a, P: Problem> {
    problem: &'a P,
    found: Found<P::Cost>,
}

impl<P: Problem<Children: InPlace<P>>> Search<'_, P> {
    fn visit(&mut self, state: &mut P::State) -> Siblings {
        self.found.states += 1;
        let best = self.found.best;
        let is_better = |cost: &P::Cost| best.is_none_or(|best| P::GOAL.better(cost, &best));
        if let Some(cost) = self.problem.leaf(state) {
            if is_better(&cost) {
                self.found.best = Some(cost);
                std::hint::black_box(self.problem.solution(state));
            }
            return Siblings::Open;
        }
        if !self.problem.bound(state, best).is_some_and(|bound| is_better(&bound)) {
            return if P::WORST_LAST { Siblings::Pruned } else { Siblings::Open };
        }
        let mut children = self.problem.branch(state);
        while children.descend(self.problem, state) {
            let siblings = self.visit(state);
            children.ascend(self.problem, state);
            if siblings == Siblings::Pruned {
                break;
            }
        }
        Siblings::Open
    }
}
