//! Without pruning the number of visited states is known: every combination of nodes and workers visits each
//! once.

use bnb_framework::{Solver, sequential};
use taskwork_tests::data::is_long;
use tsp_example::{
    generate::{Kind, generate},
    path::{PathProblem, states_without_pruning},
};

fn counts_are_exact(cities: usize) {
    let problem = PathProblem::<16, 1>::new(generate(cities, 1, Kind::Euclidean));
    let reference = sequential::solve(&problem, false, None);
    assert_eq!(reference.states, states_without_pruning(cities as u64));
    let optimum = reference.best.map(|best| best.cost);
    for round in 0..if is_long() { 20 } else { 3 } {
        for nodes in 1..=4 {
            for workers in 1..=4 {
                let solver = Solver::new(problem.clone()).pruning(false).nodes(nodes).workers(workers);
                let solved = solver.run().unwrap();
                let on = format!("{cities} cities, {nodes} nodes of {workers} workers, round {round}");
                assert_eq!(solved.states, reference.states, "{on}");
                assert_eq!(solved.best.map(|best| best.cost), optimum, "{on}");
                assert_eq!(solved.pruned, 0, "{on}");
            }
        }
    }
}

#[test]
fn nine_cities() {
    counts_are_exact(9);
}

#[test]
fn ten_cities() {
    counts_are_exact(10);
}

#[test]
fn eleven_cities() {
    counts_are_exact(11);
}
