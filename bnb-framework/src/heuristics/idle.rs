//! Rounds on workers that have no task, as often as they pay.

use std::time::{Duration, Instant};

use taskwork::lowlevel::Idle;

use super::{ROUND, round};
use crate::{
    incumbent::{Best, Incumbent},
    problem::Problem,
    search::SearchTask,
};

/// Makes a round on a worker without a task. Returns after how long to make the next one; `None` if the search is to
/// have none.
pub(crate) fn make_round<P: Problem>(idle: &Idle<'_, SearchTask<P>>) -> Option<Duration> {
    let instance = idle.shared();
    if instance.options.share_of_heuristics() == 0.0 {
        return None;
    }
    let began = Instant::now();
    let best = idle.get_var::<Incumbent<P>>();
    let best = best.as_deref().map(|best| &best.solution);
    let stops = || idle.stops() || began.elapsed() > ROUND;
    let made = round(&instance.problem, best, idle.node(), instance.rounds.number(), &stops);
    let better = made.is_some_and(|(cost, solution)| {
        let better = idle.set_var::<Incumbent<P>>(Best::new(cost, solution));
        if better {
            tracing::debug!(?cost, "a better solution, by a heuristic on an idle worker");
        }
        better
    });
    Some(instance.rounds.end_idle(began.elapsed(), better, idle.stops()))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
    };

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{hooks::Hooks, solver::Solver, tree::Tree};

    /// A problem with a root that waits for the start of a heuristic.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Slow;

    static BEGUN: AtomicBool = AtomicBool::new(false);
    /// The cost of the only leaf.
    const COST: u64 = 2;

    impl Tree for Slow {
        type State = u8;
        type Children = VecDeque<u8>;

        fn root(&self) -> u8 {
            0
        }

        fn branch(&self, _: &mut u8) -> VecDeque<u8> {
            [1].into()
        }
    }

    impl Problem for Slow {
        type Cost = u64;
        type Solution = u64;
        const HOOKS: Hooks<Self> =
            Hooks::<Self>::new().construct(|_, _, _| Some(COST + 1)).improve(|_, _, _, _| {
                BEGUN.store(true, Relaxed);
                Some(COST)
            });

        fn leaf(&self, state: &u8) -> Option<u64> {
            (*state > 0).then_some(COST)
        }

        fn bound(&self, _: &mut u8, _: Option<u64>) -> Option<u64> {
            let until = Instant::now() + Duration::from_secs(60);
            while !BEGUN.load(Relaxed) {
                assert!(Instant::now() < until, "the worker without a task does nothing");
                thread::yield_now();
            }
            Some(0)
        }

        fn solution(&self, _: &u8) -> u64 {
            COST
        }

        fn cost_of(&self, solution: &u64) -> Option<u64> {
            Some(*solution)
        }
    }

    #[test]
    fn idle_worker_improves_solutions_during_visit_of_root() {
        let solved = Solver::new(Slow).workers(2).run().unwrap();
        assert!(BEGUN.load(Relaxed) && solved.proven);
        assert_eq!(solved.best.map(|best| best.cost), Some(COST));
    }
}
