//! The optimum of every available instance, on one worker, on two, and on four nodes.

use bnb_framework::{Problem, Solved, Solver, sequential};
use taskwork_tests::data::{self, Known};
use tsp_example::{
    instance::{City, Instance},
    one_tree::OneTreeProblem,
    path::PathProblem,
    read::read_instance,
    start,
};

/// The numbers of nodes and of workers of each.
const SHAPES: [(usize, usize); 3] = [(1, 1), (1, 2), (4, 1)];

fn all_instances() -> Vec<Known> {
    let mut instances = data::own_instances().unwrap();
    if let Some(folder) = data::folder() {
        instances.extend(data::tsp_instances(&folder, 58).unwrap());
    }
    instances
}

#[track_caller]
fn check<P: Problem<Cost = u64, Solution = Vec<City>>>(
    solved: &Solved<P>,
    instance: &Instance,
    optimum: u64,
    on: &str,
) {
    let best = solved.best.as_ref().expect("there is always a tour");
    assert!(solved.proven, "{} {on}", instance.name);
    assert_eq!(best.cost, optimum, "{} {on}", instance.name);
    assert_eq!(instance.tour_length(&best.solution), optimum, "{} {on}", instance.name);
    let mut visited = best.solution.clone();
    visited.sort_unstable();
    assert_eq!(visited, (0..instance.len()).collect::<Vec<_>>(), "{} {on}", instance.name);
}

#[test]
fn one_trees_find_the_optimum_of_every_instance() {
    for known in all_instances() {
        let instance = read_instance(&known.file).unwrap();
        let (length, tour) = start::tour(&instance);
        for (nodes, workers) in SHAPES {
            let solver = Solver::new(OneTreeProblem::new(instance.clone())).nodes(nodes).workers(workers);
            let solved = solver.start(length, tour.clone()).run().unwrap();
            check(&solved, &instance, known.optimum, &format!("on {nodes} nodes of {workers}"));
        }
    }
}

#[test]
fn one_trees_find_the_optimum_without_initial_tour() {
    for known in all_instances() {
        let instance = read_instance(&known.file).unwrap();
        if instance.len() <= 42 {
            let solved = Solver::new(OneTreeProblem::new(instance.clone())).workers(2).run().unwrap();
            check(&solved, &instance, known.optimum, "without a start");
        }
    }
}

/// A search for tours shorter than the optimum plus one forbids and forces as much as it can: the optimal
/// tour must remain.
#[test]
fn conclusions_keep_the_optimal_tour() {
    for known in all_instances() {
        let instance = read_instance(&known.file).unwrap();
        let solver = Solver::new(OneTreeProblem::new(instance.clone())).workers(2);
        let solved = solver.cutoff(known.optimum + 1).run().unwrap();
        check(&solved, &instance, known.optimum, "among those no longer");
        let solver = Solver::new(OneTreeProblem::new(instance)).workers(2);
        let solved = solver.cutoff(known.optimum).run().unwrap();
        assert!(solved.best.is_none() && solved.proven, "{}: one is shorter", known.file.display());
    }
}

#[test]
fn bound_of_paper_finds_optimum_of_small_instances_without_start() {
    for known in all_instances() {
        let instance = read_instance(&known.file).unwrap();
        if instance.len() <= 15 {
            for (nodes, workers) in SHAPES {
                let solver =
                    Solver::new(PathProblem::<16, 1>::new(instance.clone())).nodes(nodes).workers(workers);
                check(
                    &solver.run().unwrap(),
                    &instance,
                    known.optimum,
                    &format!("by the paper's bound, {nodes} nodes"),
                );
            }
        }
    }
}

#[test]
fn single_worker_visits_same_states_as_sequential_reference() {
    for known in all_instances() {
        let instance = read_instance(&known.file).unwrap();
        let reference = sequential::solve(&OneTreeProblem::new(instance.clone()), true, None);
        // The reference has no heuristics.
        let solved = Solver::new(OneTreeProblem::new(instance)).heuristics(0.0).workers(1).run().unwrap();
        let best = |cost: Option<u64>| cost.expect("there is always a tour");
        assert_eq!(
            (solved.states, solved.pruned),
            (reference.states, reference.pruned),
            "{}",
            known.file.display()
        );
        assert_eq!(best(solved.best.map(|b| b.cost)), best(reference.best.map(|b| b.cost)));
        assert_eq!(solved.figures.splits, 0, "no worker was hungry");
    }
}
