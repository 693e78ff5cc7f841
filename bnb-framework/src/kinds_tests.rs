//! Every kind of search on trees of known size, on various numbers of nodes. `bnb-problems` compares searches
//! with brute force.

use proptest::prelude::*;
use taskwork::JobError;

use crate::{
    enumerate::Enumerator,
    options::{Collect, Replicable},
    solver::{End, Solver},
    testing::{Paths, Steps},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replicable_search_is_independent_of_nodes_and_workers(
        depth in 1_u8..7,
        breadth in 1_u8..5,
        first_states in 0_u64..40,
        parts in 0_usize..40,
        batch in 10_usize..40,
    ) {
        let replicable = Replicable { first_states, parts, batch };
        let run = |nodes: usize, workers: usize| {
            let paths = Paths { depth, breadth };
            let solved = Solver::new(paths).replicable(replicable).nodes(nodes).workers(workers).run().unwrap();
            (solved.states, solved.pruned, solved.best.map(|best| (best.cost, best.solution)))
        };
        let alone = run(1, 1);
        for (nodes, workers) in [(1, 2), (2, 1), (3, 2)] {
            prop_assert_eq!(&run(nodes, workers), &alone);
        }
    }
}

#[test]
fn contradictory_options_are_refused() {
    let collect = Collect { at_most: 3, within: None };
    let paths = || Solver::new(Paths { depth: 3, breadth: 2 });
    for solver in [
        paths().heuristics(1.5),
        paths().pruning(false).target(3),
        paths().pruning(false).collect(collect),
        paths().pruning(false).replicable(Replicable::default()),
        paths().replicable(Replicable::default()).collect(collect),
    ] {
        assert!(matches!(solver.run(), Err(JobError::Setting { .. })));
    }
}

#[test]
fn state_limit_stops_every_node() {
    for nodes in [1, 4] {
        let solver = Solver::new(Paths { depth: 60, breadth: 4 }).pruning(false).nodes(nodes).workers(2);
        let solved = solver.state_limit(10_000_000).run().unwrap();
        assert_eq!(solved.end, End::StateLimit);
        // Without communication each node would visit that many states.
        let passed = 10_000_000..35_000_000;
        assert!(passed.contains(&solved.states), "{} states on {nodes} nodes", solved.states);
    }
}

#[test]
fn estimated_share_is_one_at_the_end() {
    for nodes in [1, 3] {
        let solved = Solver::new(Paths { depth: 9, breadth: 4 }).pruning(false).nodes(nodes).run().unwrap();
        let share = solved.figures.share().unwrap();
        assert!((share - 1.0).abs() < 1e-6, "{share} on {nodes} nodes");
        let steps = Steps(Paths { depth: 9, breadth: 4 });
        let share = Enumerator::new(steps).nodes(nodes).run().unwrap().figures.share();
        assert!((share.unwrap() - 1.0).abs() < 1e-6, "{share:?} on {nodes} nodes, in place");
    }
}
