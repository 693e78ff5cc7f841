//! Knapsacks against brute force and dynamic programming: the search, its tree and bounds, and the heuristics.

use std::cell::Cell;

use bnb_framework::{Problem, Tree, check, cli::ParseProblem, sequential};
use bnb_problems::knapsack::{Knapsack, Packing};
use proptest::prelude::*;

/// The dependence of values on weights.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Uncorrelated,
    Weakly,
    Strongly,
    InverseStrongly,
    SubsetSum,
}

/// An item of a kind, from two random numbers below 100.
fn item(kind: Kind, a: u64, b: u64) -> (u64, u64) {
    match kind {
        Kind::Uncorrelated => (b, a),
        Kind::Weakly => ((a + b / 5).saturating_sub(10), a),
        Kind::Strongly => (a + 10, a),
        Kind::InverseStrongly => (a, a + 10),
        Kind::SubsetSum => (a, a),
    }
}

/// A capacity and items: with zeros, items that are too heavy, and equal ones.
fn instances(items_max: usize) -> impl Strategy<Value = (u64, Vec<(u64, u64)>)> {
    let kind = prop_oneof![
        Just(Kind::Uncorrelated),
        Just(Kind::Weakly),
        Just(Kind::Strongly),
        Just(Kind::InverseStrongly),
        Just(Kind::SubsetSum),
    ];
    let range = prop_oneof![Just(100_u64), Just(5)];
    (kind, range, 0_u64..=120).prop_flat_map(move |(kind, range, percents)| {
        let items = prop::collection::vec((0..range, 0..range), 0..=items_max);
        items.prop_map(move |drawn| {
            let items: Vec<(u64, u64)> = drawn.into_iter().map(|(a, b)| item(kind, a, b)).collect();
            let weight: u64 = items.iter().map(|item| item.1).sum();
            (weight * percents / 100, items)
        })
    })
}

/// Returns the best value by dynamic programming over capacities.
fn best_value(capacity: u64, items: &[(u64, u64)]) -> u64 {
    let room = usize::try_from(capacity).unwrap();
    let mut best = vec![0; room + 1];
    for &(value, weight) in items {
        let weight = usize::try_from(weight).unwrap();
        for room in (weight..=room).rev() {
            best[room] = best[room].max(best[room - weight] + value);
        }
    }
    best[room]
}

/// Adds the leaves below a state, when everything is visited.
fn leaves(knapsack: &Knapsack, state: &Packing, found: &mut Vec<(u64, Vec<usize>)>) {
    if let Some(value) = knapsack.leaf(state) {
        found.push((value, knapsack.solution(state)));
        return;
    }
    // Nothing is known that could prune.
    let mut state = state.clone();
    knapsack.bound(&mut state, None);
    for child in knapsack.branch(&mut state) {
        leaves(knapsack, &child, found);
    }
}

fn best_below(knapsack: &Knapsack, state: &Packing) -> Option<u64> {
    let mut found = Vec::new();
    leaves(knapsack, state, &mut found);
    found.into_iter().map(|(value, _)| value).max()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn most_valuable_packing_is_found((capacity, items) in instances(30)) {
        let knapsack = Knapsack::new(capacity, &items, 0);
        let best = best_value(capacity, &items);
        let found = sequential::solve(&knapsack, true, None).best.unwrap();
        prop_assert_eq!(found.cost, best);
        prop_assert_eq!(knapsack.cost_of(&found.solution), Some(best));
        let built = knapsack.construct(1, &|| false);
        prop_assert!(knapsack.cost_of(&built).is_some_and(|value| value <= best));
    }

    #[test]
    fn every_packing_is_at_one_leaf((capacity, items) in instances(8)) {
        let knapsack = Knapsack::new(capacity, &items, 0);
        let mut found = Vec::new();
        leaves(&knapsack, &knapsack.root(), &mut found);
        found.sort_by(|a, b| a.1.cmp(&b.1));
        let sets = (0..1_u32 << items.len())
            .map(|set| (0..items.len()).filter(|item| set & (1 << item) != 0).collect::<Vec<usize>>());
        let sum = |set: &[usize], of: fn(&(u64, u64)) -> u64| -> u64 {
            set.iter().map(|&item| of(&items[item])).sum()
        };
        let fitting = sets.filter(|set| sum(set, |item| item.1) <= capacity);
        let mut all: Vec<_> = fitting.map(|set| (sum(&set, |item| item.0), set)).collect();
        all.sort_by(|a, b| a.1.cmp(&b.1));
        prop_assert_eq!(found, all);
    }

    /// No bound is below the best value, and packings better than the best known are below some child.
    #[test]
    fn bounds_hold_at_every_state(
        (capacity, items) in instances(9),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        beside in 0_u64..40,
    ) {
        let knapsack = Knapsack::new(capacity, &items, 0);
        let mut state = knapsack.root();
        for turn in turns {
            let there_is = best_below(&knapsack, &state);
            let bound = knapsack.bound(&mut state, None);
            prop_assert!(bound >= there_is, "{bound:?} is no bound on {there_is:?}");
            if knapsack.leaf(&state).is_some() {
                break;
            }
            let known = there_is.and_then(|value| value.checked_sub(beside));
            knapsack.bound(&mut state, known);
            let children = knapsack.branch(&mut state);
            let found = children.iter().filter_map(|child| best_below(&knapsack, child)).max();
            if there_is.is_some() && (known.is_none() || known < there_is) {
                prop_assert_eq!(found, there_is);
            }
            if children.is_empty() {
                break;
            }
            state = children[turn.index(children.len())].clone();
        }
    }

    #[test]
    fn serialized_knapsack_is_unchanged((capacity, items) in instances(30)) {
        let knapsack = Knapsack::new(capacity, &items, 2);
        let sent = serde_json::to_string(&knapsack).unwrap();
        prop_assert_eq!(serde_json::from_str::<Knapsack>(&sent).unwrap(), knapsack);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn check_finds_no_mistake((capacity, items) in instances(9)) {
        let found = check(&Knapsack::new(capacity, &items, 0));
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }
}

/// A thousand items with values that exceed their weights by a constant.
fn strongly_correlated(count: u64) -> Knapsack {
    let weights: Vec<u64> = (0..count).map(|item| 1 + (item * 7919 + item * item / 3) % 1000).collect();
    let items: Vec<(u64, u64)> = weights.iter().map(|weight| (weight + 100, *weight)).collect();
    Knapsack::new(weights.iter().sum::<u64>() / 2, &items, 0)
}

#[test]
fn item_count_bounds_strongly_correlated_values() {
    let knapsack = strongly_correlated(1000);
    let (value, packing) = knapsack.start().unwrap();
    assert_eq!(knapsack.bound(&mut knapsack.root(), None), Some(value));
    assert_eq!(knapsack.cost_of(&packing), Some(value));
}

#[test]
fn sums_near_two_to_the_63_are_exact() {
    let large = (1_u64 << 61) - 1;
    let items = [(large, large), (large - 1, large), (large - 3, large - 2), (5, 3)];
    let knapsack = Knapsack::new(2 * large + 1, &items, 0);
    let found = sequential::solve(&knapsack, true, None).best.unwrap();
    assert_eq!((found.cost, found.solution), (2 * large + 2, vec![0, 2, 3]));
    assert_eq!(Knapsack::new(u64::MAX, &items, 0).start().unwrap().1, vec![0, 1, 2, 3]);
}

#[test]
fn heuristics_depend_on_seed_alone() {
    let items: Vec<(u64, u64)> =
        (0..200_u64).map(|item| (1 + item * item * 31 % 997, 1 + item * 7919 % 1009)).collect();
    let knapsack = Knapsack::new(40_000, &items, 0);
    let never = || false;
    let built: Vec<_> = (0..8).map(|seed| knapsack.construct(seed, &never)).collect();
    for (seed, packing) in (0..).zip(&built) {
        let value = knapsack.cost_of(packing).unwrap();
        assert_eq!(knapsack.construct(seed, &never), *packing);
        let better = knapsack.improve(packing, seed, &never);
        assert_eq!(knapsack.improve(packing, seed, &never), better);
        assert!(better.is_none_or(|better| knapsack.cost_of(&better).unwrap() > value));
    }
    assert!(built.iter().any(|packing| *packing != built[0]), "every seed gives the same packing");
    let optimum = sequential::solve(&knapsack, true, None).best.unwrap();
    assert!(knapsack.improve(&[], 1, &never).is_some());
    assert_eq!(knapsack.improve(&optimum.solution, 1, &never), None);
    assert_eq!(knapsack.improve(&[0, 0], 1, &never), None, "that is no packing");
}

#[test]
fn heuristics_stop_on_request() {
    let knapsack = strongly_correlated(30_000);
    for allowed in [0, 3] {
        let asked = Cell::new(0);
        let stops = || {
            asked.set(asked.get() + 1);
            asked.get() > allowed
        };
        let packing = knapsack.construct(1, &stops);
        assert!(knapsack.cost_of(&packing).is_some());
        assert!(asked.get() <= allowed + 4, "asked {} times", asked.get());
        asked.set(0);
        let better = knapsack.improve(&[], 1, &stops);
        assert!(asked.get() <= allowed + 2, "asked {} times", asked.get());
        assert!(better.is_none_or(|packing| knapsack.cost_of(&packing).is_some()));
    }
}
