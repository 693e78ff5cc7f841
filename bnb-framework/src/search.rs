//! The search loop of the paper's figure 4, as a task of the runtime.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use taskwork::{Context, Outcome, Output, Task, Variables};

use crate::{
    frontier::Frontier,
    incumbent::{Best, Incumbent},
    problem::Problem,
    step::{Visit, visit},
};

/// What all tasks of a search share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Instance<P: Problem> {
    /// The problem.
    pub problem: P,
    /// Whether states are pruned by their bounds; without, everything is visited.
    pub pruning: bool,
}

/// A part of the tree, to be searched.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct SearchTask<P: Problem> {
    frontier: Frontier<P>,
    problem: PhantomData<fn() -> P>,
}

/// How many states tasks have visited: each counts once, however often its task has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound.
    pub pruned: u64,
}

impl Output for Tally {
    fn merge(&mut self, other: Self) {
        self.states += other.states;
        self.pruned += other.pruned;
    }
}

/// After how many states progress is reported.
const REPORT_STATES: u64 = 4096;

impl<P: Problem> SearchTask<P> {
    /// The whole tree.
    pub fn root(problem: &P) -> Self {
        Self { frontier: Frontier::new(problem), problem: PhantomData }
    }

    fn run<const PRUNING: bool>(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let problem = &cx.shared().problem;
        let mut tally = Tally::default();
        let mut best = best_known(cx);
        let outcome = loop {
            let Some(state) = self.frontier.next(problem) else { break Outcome::Complete };
            tally.states += 1;
            match visit::<P, PRUNING>(problem, state, best) {
                Visit::Open(state) => {
                    let children = problem.branch(&state);
                    self.frontier.open(state, children);
                    // What others want is asked once a branched state, not once a leaf: there are far fewer.
                    if cx.variables_changed() {
                        best = best_known(cx);
                    }
                    if tally.states >= REPORT_STATES {
                        report(cx, &mut tally);
                    }
                    if cx.migrate() {
                        break Outcome::Migrate;
                    }
                    cx.potential_split(self);
                }
                Visit::Better(leaf, cost) => {
                    cx.set_var::<Incumbent<P>>(Best { cost, solution: problem.solution(&leaf) });
                    best = best_known(cx);
                }
                Visit::Pruned => tally.pruned += 1,
                Visit::Leaf => {}
            }
        };
        report(cx, &mut tally);
        outcome
    }
}

fn best_known<P: Problem>(cx: &mut Context<'_, SearchTask<P>>) -> Option<P::Cost> {
    cx.get_var::<Incumbent<P>>().map(|best| best.cost)
}

/// Adds what was counted to the task's output, and starts counting anew.
#[cold]
fn report<P: Problem>(cx: &mut Context<'_, SearchTask<P>>, tally: &mut Tally) {
    cx.worked(tally.states);
    cx.output().merge(std::mem::take(tally));
}

impl<P: Problem> Task for SearchTask<P> {
    type Shared = Instance<P>;
    type Output = Tally;

    fn variables(declare: &mut Variables) {
        declare.declare::<Incumbent<P>>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if cx.shared().pruning { self.run::<true>(cx) } else { self.run::<false>(cx) }
    }

    fn split(&mut self, shared: &Instance<P>) -> Option<Self> {
        let frontier = self.frontier.split(&shared.problem)?;
        Some(Self { frontier, problem: PhantomData })
    }
}
