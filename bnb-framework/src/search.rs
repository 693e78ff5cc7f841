//! The search loop of the paper's figure 4, as a task of the runtime.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use taskwork::{Context, Outcome, Output, Task, Variables};

use crate::{
    frontier::{Below, Frontier, Searched, Visitor},
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
/// Among how many states without children others are asked at least once.
const ASK_STATES: u64 = 64;

impl<P: Problem> SearchTask<P> {
    /// The whole tree.
    pub fn root(problem: &P) -> Self {
        Self { frontier: Frontier::new(problem), problem: PhantomData }
    }

    fn run<const PRUNING: bool>(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let problem = &cx.shared().problem;
        let mut worker = Worker::<P, PRUNING> { best: best_known(cx), states: 0, pruned: 0, cx };
        let outcome = loop {
            if self.frontier.search(problem, &mut worker) == Searched::Over {
                break Outcome::Complete;
            }
            if worker.cx.migrate() {
                break Outcome::Migrate;
            }
            worker.best = best_known(worker.cx);
            worker.cx.potential_split(self);
        };
        worker.report();
        outcome
    }
}

/// Who visits the states of a task, and listens to what others want.
struct Worker<'a, 'b, P: Problem, const PRUNING: bool> {
    cx: &'a mut Context<'b, SearchTask<P>>,
    best: Option<P::Cost>,
    /// Since the last report.
    states: u64,
    pruned: u64,
}

impl<P: Problem, const PRUNING: bool> Visitor<P> for Worker<'_, '_, P, PRUNING> {
    #[allow(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn visit(&mut self, problem: &P, state: &mut P::State) -> Below<P::Children> {
        self.states += 1;
        match visit::<P, PRUNING>(problem, state, self.best) {
            Visit::Open(children) => return Below::Open(children),
            Visit::Better(cost) => self.found(problem, state, cost),
            Visit::Leaf => {}
            Visit::Pruned => {
                self.pruned += 1;
                if P::WORST_LAST {
                    return Below::NothingNorAfter;
                }
            }
        }
        Below::Nothing
    }

    /// What others want is asked after each branched state, and now and then where there are none: leaves are many
    /// and cheap, but a level may have nothing else.
    #[inline]
    fn pauses(&mut self, opened: bool) -> bool {
        if !opened && !self.states.is_multiple_of(ASK_STATES) {
            return false;
        }
        if self.states >= REPORT_STATES {
            self.report();
        }
        self.cx.is_asked()
    }
}

impl<P: Problem, const PRUNING: bool> Worker<'_, '_, P, PRUNING> {
    #[cold]
    fn found(&mut self, problem: &P, leaf: &P::State, cost: P::Cost) {
        self.cx.set_var::<Incumbent<P>>(Best { cost, solution: problem.solution(leaf) });
        self.best = best_known(self.cx);
    }

    /// Adds what was counted to the task's output, and starts counting anew.
    #[cold]
    fn report(&mut self) {
        self.cx.worked(self.states);
        let (states, pruned) = (std::mem::take(&mut self.states), std::mem::take(&mut self.pruned));
        self.cx.output().merge(Tally { states, pruned });
    }
}

fn best_known<P: Problem>(cx: &mut Context<'_, SearchTask<P>>) -> Option<P::Cost> {
    cx.get_var::<Incumbent<P>>().map(|best| best.cost)
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

#[cfg(test)]
mod tests {
    use std::{ops::Range, sync::mpsc, thread, time::Duration};

    use super::*;
    use crate::{
        solver::Solver,
        tree::{Children, Tree},
    };

    /// A root with more children than can ever be visited, all of them leaves, or all of them to be pruned.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Comb {
        leaves: bool,
    }

    #[derive(Serialize, Deserialize)]
    struct Teeth(Range<u64>);

    impl Children<Comb> for Teeth {
        fn next(&mut self, _: &Comb, _: &u64) -> Option<u64> {
            self.0.next()
        }

        fn split(&mut self, _: &Comb, _: &u64) -> Option<Self> {
            let Range { start, end } = self.0;
            let middle = u64::midpoint(start, end);
            self.0.end = middle;
            (middle < end).then_some(Self(middle..end))
        }
    }

    impl Tree for Comb {
        type State = u64;
        type Children = Teeth;

        fn root(&self) -> u64 {
            0
        }

        fn branch(&self, _: &mut u64) -> Teeth {
            Teeth(1..u64::MAX)
        }
    }

    impl Problem for Comb {
        type Cost = u64;
        type Solution = u64;

        fn leaf(&self, tooth: &u64) -> Option<u64> {
            (self.leaves && *tooth > 0).then_some(1)
        }

        fn bound(&self, tooth: &mut u64, _: Option<u64>) -> Option<u64> {
            (*tooth == 0).then_some(0)
        }

        fn solution(&self, tooth: &u64) -> u64 {
            *tooth
        }
    }

    #[test]
    fn a_level_without_a_branch_is_split_and_reported_and_can_be_left() {
        for leaves in [true, false] {
            let (done, ended) = mpsc::channel();
            thread::spawn(move || {
                let solver = Solver::new(Comb { leaves }).nodes(2).workers(1);
                let stopper = solver.stopper();
                let solver = solver.on_progress(Duration::from_millis(5), move |progress| {
                    if progress.states > 0 && progress.figures.stolen_tasks > 0 {
                        stopper.stop();
                    }
                });
                let _ = done.send(solver.run());
            });
            let solved = ended.recv_timeout(Duration::from_secs(60)).expect("it is stopped in time").unwrap();
            assert!(!solved.proven && solved.states > 0);
        }
    }
}
