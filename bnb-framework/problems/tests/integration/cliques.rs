//! Cliques against brute force: the search, its bounds at every state, and the heuristics.

use std::cell::Cell;

use bnb_framework::{Best, Children, Collect, JobError, Problem, Replicable, Solver, check, sequential};
use bnb_problems::maxclique::{Graph, MaxClique, parse};
use proptest::prelude::*;

/// A small graph, as the file that describes it: edges in pairs of vertices, and weights.
fn graph_of(weights: &[u32], is_edge: &[bool]) -> Graph {
    let pairs = (1..=weights.len()).flat_map(|b| (1..b).map(move |a| (a, b)));
    let edges: Vec<String> = pairs
        .zip(is_edge)
        .filter(|(_, is_edge)| **is_edge)
        .map(|((a, b), _)| format!("e {a} {b}\n"))
        .collect();
    let nodes: Vec<String> =
        weights.iter().enumerate().map(|(i, weight)| format!("n {} {weight}\n", i + 1)).collect();
    let text = format!("p edge {} {}\n{}{}", weights.len(), edges.len(), nodes.concat(), edges.concat());
    parse("f", &text).unwrap()
}

/// Graphs of all densities, from empty to complete, with weights among which are zeros and equal ones.
fn graphs(vertices_max: usize) -> impl Strategy<Value = Graph> {
    let weight = prop_oneof![Just(0_u32), 1_u32..4, 1_u32..100];
    (prop::collection::vec(weight, 0..=vertices_max), 0_u8..=10).prop_flat_map(|(weights, tenths)| {
        let pairs = weights.len() * weights.len().saturating_sub(1) / 2;
        let is_edge = prop::collection::vec((0_u8..10).prop_map(move |drawn| drawn < tenths), pairs);
        is_edge.prop_map(move |is_edge| graph_of(&weights, &is_edge))
    })
}

/// Returns the weight of the heaviest clique, and the size of the largest.
fn brute_force(graph: &Graph) -> (u32, usize) {
    let sets = (0..1_u32 << graph.vertices())
        .map(|set| (0..graph.vertices()).filter(|vertex| set & (1 << vertex) != 0).collect::<Vec<usize>>());
    sets.filter(|set| graph.is_clique(set)).fold((0, 0), |(weight, size), set| {
        (weight.max(set.iter().map(|&vertex| graph.weight(vertex)).sum()), size.max(set.len()))
    })
}

/// Returns the best cost below a state: without a best one known, every vertex is branched on.
fn best_below<P: Problem<Cost = u32>>(problem: &P, state: &P::State) -> u32 {
    if let Some(cost) = problem.leaf(state) {
        return cost;
    }
    let mut state = state.clone();
    problem.bound(&mut state, None);
    let mut children = problem.branch(&mut state);
    let below = std::iter::from_fn(|| children.next(problem, &state));
    below.map(|child| best_below(problem, &child)).max().unwrap_or(0)
}

/// Checks the states on a random path: no bound is below the best value, none is above that of the previous child,
/// and cliques better than the best known are below some child.
fn check_way_down<P: Problem<Cost = u32>>(problem: &P, turns: &[prop::sample::Index], beside: u32) {
    let mut state = problem.root();
    for turn in turns {
        if problem.leaf(&state).is_some() {
            return;
        }
        let there_is = best_below(problem, &state);
        let bound = problem.bound(&mut state, None).unwrap();
        assert!(bound >= there_is, "{bound} is no bound on {there_is}");
        let known = there_is.checked_sub(beside);
        problem.bound(&mut state, known);
        let mut children = problem.branch(&mut state);
        let children: Vec<P::State> = std::iter::from_fn(|| children.next(problem, &state)).collect();
        let bounds: Vec<u32> =
            children.iter().map(|child| problem.bound(&mut child.clone(), None).unwrap()).collect();
        assert!(bounds.is_sorted_by(|a, b| a >= b), "{bounds:?} do not fall");
        let found: Vec<u32> = children.iter().map(|child| best_below(problem, child)).collect();
        for (bound, found) in bounds.iter().zip(&found) {
            assert!(bound >= found, "{bound} is no bound on {found}");
        }
        if known.is_none_or(|known| known < there_is) {
            assert_eq!(found.iter().max(), Some(&there_is), "nothing better than {known:?} is listed");
        }
        if children.is_empty() {
            return;
        }
        state = turn.get(&children).clone();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn heaviest_and_largest_cliques_are_found(graph in graphs(12)) {
        let (weight, size) = brute_force(&graph);
        let heaviest = sequential::solve(&MaxClique::<1, true>::new(graph.clone()).unwrap(), true, None);
        let largest = sequential::solve(&MaxClique::<1, false>::new(graph.clone()).unwrap(), true, None);
        let (heaviest, largest) = (heaviest.best.unwrap(), largest.best.unwrap());
        prop_assert_eq!((heaviest.cost, largest.cost as usize), (weight, size));
        prop_assert!(graph.is_clique(&heaviest.solution) && graph.is_clique(&largest.solution));
    }

    #[test]
    fn bounds_hold_at_every_state(
        graph in graphs(10),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        beside in 0_u32..60,
    ) {
        check_way_down(&MaxClique::<1, true>::new(graph.clone()).unwrap(), &turns, beside);
        check_way_down(&MaxClique::<1, false>::new(graph).unwrap(), &turns, beside % 4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn check_finds_no_mistake(graph in graphs(10)) {
        let found = check(&MaxClique::<1, true>::new(graph.clone()).unwrap());
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
        let found = check(&MaxClique::<1, false>::new(graph).unwrap());
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }
}

/// An initial clique affects pruning, but not the result.
#[test]
fn start_is_a_clique_no_heavier_than_the_heaviest() {
    let graph = planted(14);
    let (weight, size) = brute_force(&graph);
    let problem = MaxClique::<1, true>::new(graph.clone()).unwrap();
    let (cost, clique) = problem.start().unwrap();
    assert_eq!((problem.cost_of(&clique), cost), (Some(cost), weight));
    let found = sequential::solve(&problem, true, Some(Best::new(cost, clique))).best.unwrap();
    assert_eq!(found.cost, weight);
    let problem = MaxClique::<1, false>::new(graph).unwrap();
    let (cost, clique) = problem.start().unwrap();
    assert_eq!((problem.cost_of(&clique), cost as usize), (Some(cost), size));
}

#[test]
fn collection_of_cliques_is_refused() {
    let problem = MaxClique::<1, false>::new(planted(14)).unwrap();
    let refused = Solver::new(problem).collect(Collect { at_most: 2, within: None }).run().unwrap_err();
    assert!(matches!(refused, JobError::Setting { .. }), "{refused}");
}

/// A graph with a random quarter of the vertices as a clique.
fn planted(vertices: usize) -> Graph {
    let weights: Vec<u32> = (0_u32..).take(vertices).map(|vertex| 1 + (vertex * 7) % 50).collect();
    let in_clique = |vertex: usize| (vertex * 7 + 3).is_multiple_of(4);
    let pairs = (0..vertices).flat_map(|b| (0..b).map(move |a| (a, b)));
    let is_edge: Vec<bool> =
        pairs.map(|(a, b)| in_clique(a) && in_clique(b) || (a * 31 + b * 17) % 97 < 50).collect();
    graph_of(&weights, &is_edge)
}

#[test]
fn heuristics_depend_on_seed_alone() {
    let problem = MaxClique::<2, true>::new(planted(100)).unwrap();
    let never = || false;
    let built: Vec<_> = (0..8).map(|seed| problem.construct(seed, &never)).collect();
    for (seed, clique) in (0..).zip(&built) {
        assert!(problem.cost_of(clique).is_some());
        assert_eq!(problem.construct(seed, &never), *clique);
        assert_eq!(problem.improve(clique, seed, &never), problem.improve(clique, seed, &never));
    }
    assert!(built.iter().any(|clique| *clique != built[0]), "every seed gives the same clique");
}

#[test]
fn local_search_improves_on_greedy_starts() {
    let problem = MaxClique::<2, true>::new(planted(100)).unwrap();
    let optimum = sequential::solve(&problem, true, None).best.unwrap();
    let from_one = problem.improve(&vec![0], 1, &|| false).unwrap();
    assert_eq!(problem.cost_of(&from_one), Some(optimum.cost));
    assert_eq!(problem.improve(&optimum.solution, 1, &|| false), None);
    assert_eq!(problem.improve(&vec![0, 0], 1, &|| false), None, "that is no clique");
}

#[test]
fn heuristics_poll_often_and_stop_on_request() {
    let problem = MaxClique::<2, false>::new(planted(100)).unwrap();
    for allowed in [0, 3, 10] {
        let asked = Cell::new(0);
        let stops = || {
            asked.set(asked.get() + 1);
            asked.get() > allowed
        };
        let clique = problem.construct(1, &stops);
        assert!(problem.cost_of(&clique).is_some());
        assert!(asked.get() <= allowed + 3, "asked {} times", asked.get());
        asked.set(0);
        let better = problem.improve(&vec![0], 1, &stops);
        assert_eq!(asked.get(), allowed + 1);
        assert!(better.is_none_or(|clique| problem.cost_of(&clique).is_some()));
    }
}

#[test]
fn graph_without_vertices_has_empty_clique() {
    let problem = MaxClique::<1, true>::new(Graph::new(0)).unwrap();
    assert_eq!(problem.start(), Some((0, vec![])));
    assert_eq!(sequential::solve(&problem, true, None).best.unwrap().cost, 0);
}

#[test]
fn useless_start_does_not_change_replicable_search() {
    const VERTICES: usize = 64;
    let mut graph = Graph::new(VERTICES);
    // Three of four edges, without an order that a bound could use.
    let is_edge = |a: usize, b: usize| !((a * a + 7 * a * b + b * b * b) % 97).is_multiple_of(4);
    for b in 0..VERTICES {
        (0..b).filter(|&a| is_edge(a, b)).for_each(|a| graph.connect(a, b));
    }
    let problem = MaxClique::<1, false>::new(graph).unwrap();
    let largest = sequential::solve(&problem, true, None).best.unwrap().cost;
    let states = |start: Option<(u32, Vec<usize>)>| {
        let replicable = Replicable { first_states: 0, parts: 1, batch: 1 };
        let solver = Solver::new(problem.clone()).replicable(replicable).cutoff(largest - 1);
        let solver = if let Some((cost, clique)) = start { solver.start(cost, clique) } else { solver };
        let solved = solver.run().unwrap();
        assert_eq!(solved.best.map(|best| best.cost), Some(largest));
        solved.states
    };
    assert_eq!(states(Some((1, vec![0]))), states(None));
}
