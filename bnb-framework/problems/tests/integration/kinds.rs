//! Every kind of search compared with brute force, for all options and numbers of nodes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bnb_framework::{
    Collect, End, Goal, NotNan, Problem, Replicable, Solved, Solver, Split, Strategy as Order, Tolerance,
    Tree,
    lowlevel::{Incumbent, SearchTask},
    sequential,
};
use bnb_problems::knapsack::{Knapsack, Packing};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use taskwork::Report;

/// A problem with all its feasible packings.
#[derive(Debug, Clone)]
struct Packings {
    knapsack: Knapsack,
    /// Values and items, the best first; of equal value in the order in which they are collected.
    all: Vec<(u64, Vec<usize>)>,
}

impl Packings {
    fn new(capacity: u64, items: &[(u64, u64)]) -> Self {
        let packing = |set: u32| {
            let taken: Vec<usize> = (0..items.len()).filter(|item| set & (1 << item) != 0).collect();
            let sum =
                |of: fn(&(u64, u64)) -> u64| -> u64 { taken.iter().map(|&item| of(&items[item])).sum() };
            let (value, weight) = (sum(|item| item.0), sum(|item| item.1));
            (weight <= capacity).then_some((value, taken))
        };
        let mut all: Vec<_> = (0..1_u32 << items.len()).filter_map(packing).collect();
        // Solutions are ordered by their encoding, which starts with the number of items.
        all.sort_by(|(a, with), (b, other)| {
            b.cmp(a).then(with.len().cmp(&other.len())).then(with.cmp(other))
        });
        Self { knapsack: Knapsack::new(capacity, items, 0), all }
    }
}

fn packings() -> impl Strategy<Value = Packings> {
    let items = prop::collection::vec((1_u64..40, 1_u64..25), 0..11);
    (0_u64..60, items).prop_map(|(capacity, items)| Packings::new(capacity, &items))
}

/// The same knapsack with values that are no whole numbers: half as much each.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Halves(Knapsack);

impl Tree for Halves {
    type State = Packing;
    type Children = VecDeque<Packing>;

    fn root(&self) -> Packing {
        self.0.root()
    }

    fn branch(&self, state: &mut Packing) -> VecDeque<Packing> {
        self.0.branch(state)
    }
}

fn half(value: u64) -> NotNan<f64> {
    NotNan::new(value as f64 / 2.0).expect("it is a number")
}

impl Problem for Halves {
    type Cost = NotNan<f64>;
    type Solution = Vec<usize>;
    const GOAL: Goal = Goal::Maximise;

    fn leaf(&self, state: &Packing) -> Option<NotNan<f64>> {
        self.0.leaf(state).map(half)
    }

    fn bound(&self, state: &mut Packing, _: Option<NotNan<f64>>) -> Option<NotNan<f64>> {
        self.0.bound(state, None).map(half)
    }

    fn solution(&self, leaf: &Packing) -> Vec<usize> {
        self.0.solution(leaf)
    }
}

fn orders() -> impl Strategy<Value = Order> {
    let bounded = (0_usize..20).prop_flat_map(|open_max| {
        prop_oneof![Just(Order::BestFirst { open_max }), Just(Order::BestChildFirst { open_max })]
    });
    prop_oneof![Just(Order::DepthFirst), bounded]
}

fn splits() -> impl Strategy<Value = Split> {
    prop_oneof![
        Just(Split::InOrder),
        Just(Split::Half),
        Just(Split::Next),
        Just(Split::Alternating),
        Just(Split::Discrepancy),
    ]
}

fn collected(solved: &Solved<Knapsack>) -> Vec<(u64, Vec<usize>)> {
    solved.collected.iter().map(|one| (one.cost, one.solution.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sequential_reference_finds_optimum(Packings { knapsack, all } in packings()) {
        let pruned = sequential::solve(&knapsack, true, None);
        let whole = sequential::solve(&knapsack, false, None);
        prop_assert_eq!(pruned.best.map(|best| best.cost), Some(all[0].0));
        prop_assert_eq!(whole.best.map(|best| best.cost), Some(all[0].0));
        prop_assert!(pruned.states <= whole.states);
    }

    #[test]
    fn every_order_finds_the_optimum(
        Packings { knapsack, all } in packings(),
        order in orders(),
        split in splits(),
        nodes in 1_usize..3,
        workers in 1_usize..3,
    ) {
        let best = all[0].0;
        let solver = Solver::new(knapsack).strategy(order).split(split).nodes(nodes).workers(workers);
        let solved = solver.run().unwrap();
        prop_assert_eq!(solved.best.as_ref().map(|best| best.cost), Some(best));
        prop_assert!(solved.proven && solved.bound == Some(best) && solved.gap() == Some(0.0));
    }

    #[test]
    fn target_is_met_or_proven_unreachable(
        Packings { knapsack, all } in packings(),
        order in orders(),
        nodes in 1_usize..3,
        beside in -3_i64..3,
    ) {
        let best = all[0].0;
        let target = best.saturating_add_signed(beside);
        let solved = Solver::new(knapsack).target(target).strategy(order).nodes(nodes).run().unwrap();
        if target <= best {
            prop_assert_eq!(solved.end, End::Target);
            prop_assert!(solved.best.unwrap().cost >= target);
        } else {
            prop_assert!(solved.best.is_none());
            prop_assert_eq!(solved.end, End::Proven);
        }
    }

    #[test]
    fn solutions_beyond_cutoff_are_not_found(Packings { knapsack, all } in packings(), beside in -3_i64..3) {
        let best = all[0].0;
        let cutoff = best.saturating_add_signed(beside);
        let solved = Solver::new(knapsack).cutoff(cutoff).run().unwrap();
        prop_assert_eq!(solved.best.map(|best| best.cost), (cutoff < best).then_some(best));
        prop_assert!(solved.proven);
    }

    #[test]
    fn start_outside_target_or_cutoff_is_no_answer(
        Packings { knapsack, all } in packings(),
        start: prop::sample::Index,
        beside in -3_i64..3,
        by_target: bool,
        replicable: bool,
        tolerance in 0_u32..5,
    ) {
        let (best, (cost, solution)) = (all[0].0, start.get(&all).clone());
        let limit = best.saturating_add_signed(beside);
        let solver = Solver::new(knapsack).start(cost, solution);
        let solver = if by_target { solver.target(limit) } else { solver.cutoff(limit) };
        let parts = Replicable { first_states: 20, parts: 5, batch: 2 };
        let solver = if replicable { solver.replicable(parts) } else { solver };
        let solver = solver.tolerance(Tolerance { absolute: f64::from(tolerance), relative: 0.0 });
        let solved = solver.run().unwrap();
        let there_is = if by_target { limit <= best } else { limit < best };
        prop_assert_eq!(solved.best.is_some(), there_is, "{:?}", solved);
        prop_assert_eq!(solved.end, if by_target && there_is { End::Target } else { End::Proven });
        if let Some(found) = solved.best {
            prop_assert!(found.cost > limit || by_target && found.cost == limit);
            prop_assert!(solved.bound.is_none_or(|bound| bound >= best && bound - found.cost <= u64::from(tolerance)));
        } else {
            prop_assert_eq!(solved.bound, Some(limit));
        }
    }

    #[test]
    fn replicable_pruning_is_independent_of_nodes_and_workers(
        Packings { knapsack, all } in packings(),
        first_states in 0_u64..10,
        parts in 0_usize..20,
        batch in 4_usize..20,
    ) {
        let replicable = Replicable { first_states, parts, batch };
        let run = |nodes: usize, workers: usize| {
            let solver = Solver::new(knapsack.clone()).replicable(replicable).nodes(nodes).workers(workers);
            let solved = solver.run().unwrap();
            (solved.states, solved.pruned, solved.best.map(|best| (best.cost, best.solution)))
        };
        let alone = run(1, 1);
        prop_assert_eq!(alone.2.as_ref().map(|best| best.0), Some(all[0].0));
        for (nodes, workers) in [(1, 3), (2, 1)] {
            prop_assert_eq!(&run(nodes, workers), &alone);
        }
    }

    #[test]
    fn replicable_search_revisits_same_states_after_restart(
        Packings { knapsack, .. } in packings(),
        first_states in 0_u64..4,
        parts in 4_usize..30,
        batch in 1_usize..4,
    ) {
        let solver = || Solver::new(knapsack.clone()).replicable(Replicable { first_states, parts, batch });
        let first = solver().job().unwrap().run().unwrap();
        let best = first.var::<Incumbent<Knapsack>>().unwrap();
        // Variables outlive an attempt, including solutions found late in it.
        let again = solver().job().unwrap().start_value::<Incumbent<Knapsack>>(&best).run().unwrap();
        let seen = |report: &Report<SearchTask<Knapsack>>| {
            let best = report.var::<Incumbent<Knapsack>>().map(|best| (best.cost, best.solution.clone()));
            (report.output.states, report.output.pruned, best)
        };
        prop_assert_eq!(seen(&first), seen(&again));
    }

    #[test]
    fn target_beyond_cutoff_does_not_stop_search(
        Packings { knapsack, all } in packings(),
        worse in 1_usize..9,
        nodes in 1_usize..3,
    ) {
        if let Some((cost, items)) = all.get(worse).filter(|start| start.0 < all[0].0) {
            let solver = Solver::new(knapsack).start(*cost, items.clone()).target(cost - cost.min(&1));
            let solved = solver.cutoff(*cost).nodes(nodes).run().unwrap();
            prop_assert_eq!(solved.end, End::Target);
            prop_assert!(solved.best.unwrap().cost > *cost);
        }
    }

    #[test]
    fn result_is_within_tolerance(
        Packings { knapsack, all } in packings(),
        order in orders(),
        absolute in 0_u32..30,
        percents in 0_u32..30,
        nodes in 1_usize..3,
    ) {
        let best = all[0].0;
        let (absolute, relative) = (f64::from(absolute), f64::from(percents) / 100.0);
        let tolerance = Tolerance { absolute, relative };
        let solved = Solver::new(knapsack).tolerance(tolerance).strategy(order).nodes(nodes).run().unwrap();
        let (found, bound) = (solved.best.unwrap().cost, solved.bound.unwrap());
        prop_assert!(found <= best && best <= bound, "{found} <= {best} <= {bound}");
        prop_assert!((bound - found) as f64 <= absolute.max(relative * found as f64) + 1e-9);
    }

    #[test]
    fn best_solutions_are_collected(
        Packings { knapsack, all } in packings(),
        at_most in 1_usize..9,
        order in orders(),
        nodes in 1_usize..4,
    ) {
        let collect = Collect { at_most, within: None };
        let solved = Solver::new(knapsack).collect(collect).strategy(order).nodes(nodes).run().unwrap();
        prop_assert_eq!(collected(&solved), &all[..at_most.min(all.len())]);
        prop_assert!(solved.collected_all);
    }

    #[test]
    fn solutions_near_optimum_are_collected(
        Packings { knapsack, all } in packings(),
        at_most in 1_usize..30,
        absolute in 0_u32..12,
        order in orders(),
        nodes in 1_usize..4,
    ) {
        let worst = all[0].0.saturating_sub(u64::from(absolute));
        let near: Vec<_> = all.into_iter().take_while(|(value, _)| *value >= worst).collect();
        let within = Some(Tolerance { absolute: f64::from(absolute), relative: 0.0 });
        let solver = Solver::new(knapsack).collect(Collect { at_most, within }).strategy(order).nodes(nodes);
        let solved = solver.run().unwrap();
        prop_assert_eq!(collected(&solved), &near[..at_most.min(near.len())]);
        prop_assert_eq!(solved.collected_all, near.len() <= at_most);
    }

    #[test]
    fn bound_at_limit_is_exact_for_open_states(
        Packings { knapsack, all } in packings(),
        order in orders(),
        states in 1_u64..60,
        nodes in 1_usize..3,
    ) {
        let best = all[0].0;
        let root = knapsack.bound(&mut knapsack.root(), None).unwrap();
        let solved = Solver::new(knapsack).state_limit(states).strategy(order).nodes(nodes).run().unwrap();
        let found = solved.best.as_ref().map_or(0, |best| best.cost);
        let bound = solved.bound.unwrap();
        prop_assert!(found <= best && best <= bound && bound <= root, "{found} <= {best} <= {bound} <= {root}");
        prop_assert!(solved.end == End::StateLimit || found == best && bound == best);
    }

    /// Between two floats there is always another, so limits include equally good solutions.
    #[test]
    fn costs_may_be_floats(
        Packings { knapsack, all } in packings(),
        order in orders(),
        nodes in 1_usize..3,
        beside in -3_i64..3,
        absolute in 0_u32..12,
        at_most in 1_usize..20,
    ) {
        let solver = || Solver::new(Halves(knapsack.clone())).strategy(order).nodes(nodes);
        let best = solver().run().unwrap();
        prop_assert_eq!((best.best.map(|best| best.cost), best.bound), (Some(half(all[0].0)), Some(half(all[0].0))));
        let target = all[0].0.saturating_add_signed(beside);
        let met = solver().target(half(target)).run().unwrap();
        prop_assert_eq!(met.best.is_some(), target <= all[0].0);
        let within = Some(Tolerance { absolute: f64::from(absolute), relative: 0.0 });
        let solved = solver().collect(Collect { at_most, within }).run().unwrap();
        let near = all.iter().take_while(|(value, _)| half(*value).into_inner() >= half(all[0].0).into_inner() - f64::from(absolute));
        let near: Vec<_> = near.map(|(value, taken)| (half(*value), taken.clone())).collect();
        let collected: Vec<_> = solved.collected.iter().map(|one| (one.cost, one.solution.clone())).collect();
        prop_assert_eq!(collected, &near[..at_most.min(near.len())]);
    }

}

#[test]
fn optimal_start_is_answer_of_replicable_search() {
    let knapsack = Knapsack::new(50, &[(60, 10), (100, 20), (120, 30)], 0);
    let solver = Solver::new(knapsack.clone()).replicable(Replicable::default());
    let solved = solver.start(220, vec![1, 2]).run().unwrap();
    assert_eq!(solved.best.unwrap().cost, 220);
    let best = Solver::new(knapsack).replicable(Replicable::default()).run().unwrap().best.unwrap();
    assert_eq!((best.cost, best.solution), (220, vec![1, 2]));
}

/// Items of even weights, each worth as much as it weighs, and an odd capacity: no bound is ever low enough, so
/// a complete search is not feasible.
fn hard() -> (Knapsack, u64) {
    let weights = (1..=40_u64).map(|item| 2 * (1_000 + item * item * 7 % 911 + 3 * item));
    let items: Vec<(u64, u64)> = weights.map(|weight| (weight, weight)).collect();
    let room = (items.iter().map(|item| item.1).sum::<u64>() / 2) | 1;
    (Knapsack::new(room, &items, 0), room)
}

#[test]
fn time_limit_stops_all_workers_and_bound_holds() {
    for (nodes, pruning) in [(1, true), (3, true), (2, false)] {
        let (knapsack, room) = hard();
        let solver = Solver::new(knapsack).pruning(pruning).nodes(nodes);
        let solved = solver.time_limit(Duration::from_millis(300)).run().unwrap();
        assert_eq!(solved.end, End::TimeLimit);
        assert!(!solved.proven && solved.states > 0);
        // Without pruning nothing was bounded.
        assert_eq!(solved.bound, pruning.then_some(room));
    }
}

#[test]
fn reported_bound_holds_during_search() {
    let (_, room) = hard();
    for (nodes, order) in
        [(1, Order::DepthFirst), (3, Order::DepthFirst), (2, Order::BestFirst { open_max: 50 })]
    {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let solver = Solver::new(hard().0).nodes(nodes).strategy(order);
        let solver = solver.on_progress(Duration::from_millis(20), move |progress| {
            hears.lock().unwrap().push((progress.best, progress.bound, progress.gap, progress.share));
        });
        // Long enough for bounds to be known, and no longer.
        let solved = solver.time_limit(Duration::from_secs(2)).run().unwrap();
        let told = told.lock().unwrap();
        let best = solved.best.unwrap().cost;
        assert!(best < room);
        for (found, bound, gap, share) in told.iter() {
            assert!(found.is_none_or(|found| found <= best));
            assert!(bound.is_none_or(|bound| bound >= best as f64), "{bound:?} is no bound on {best}");
            assert!(
                gap.is_none_or(|gap| gap >= 0.0) && share.is_none_or(|share| (0.0..=1.0).contains(&share))
            );
        }
        assert!(told.iter().any(|(_, bound, ..)| bound.is_some()), "nothing was told on {nodes} nodes");
    }
}
