//! Bounds and searches compared with all solutions, with and without symmetry, and tests of the heuristics'
//! contracts.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small numbers in tests"
)]

use bnb_framework::{
    Best, Children, Collect, Problem, Solver, Tolerance, Tree,
    assignment::{Assignment, FORBIDDEN},
    check, sequential,
};
use proptest::prelude::*;

use super::{Placing, Qap, lap, symmetry::Symmetry};

/// Returns the least cost of all completions of some places.
fn least(qap: &Qap, places: &mut Vec<Option<u8>>) -> i64 {
    let Some(facility) = places.iter().position(Option::is_none) else {
        let places: Vec<usize> = places.iter().flatten().map(|&place| place.into()).collect();
        return qap.cost(&places);
    };
    let mut best = i64::MAX;
    for place in 0..qap.size as u8 {
        if !places.contains(&Some(place)) {
            places[facility] = Some(place);
            best = best.min(least(qap, places));
            places[facility] = None;
        }
    }
    best
}

/// Adds the costs of all solutions that start with these places.
fn each_cost(qap: &Qap, places: &mut Vec<usize>, costs: &mut Vec<i64>) {
    if places.len() == qap.size {
        costs.push(qap.cost(places));
    }
    for place in 0..qap.size {
        if !places.contains(&place) {
            places.push(place);
            each_cost(qap, places, costs);
            places.pop();
        }
    }
}

fn matrix(size: usize) -> impl Strategy<Value = Vec<i64>> {
    let any = prop::collection::vec(-5_i64..30, size * size);
    // Few values make symmetry likely.
    let few = prop::collection::vec(0_i64..2, size * size);
    let even = prop::collection::vec(0_i64..9, size * size).prop_map(move |half| {
        let at = |a: usize, b: usize| if a == b { 0 } else { half[a.min(b) * size + a.max(b)] };
        (0..size * size).map(|one| at(one / size, one % size)).collect()
    });
    let ring = (1_i64..5).prop_map(move |unit| {
        let apart = |a: usize, b: usize| a.abs_diff(b).min(size - a.abs_diff(b)) as i64;
        (0..size * size).map(|one| unit * apart(one / size, one % size)).collect()
    });
    prop_oneof![any, few, even, ring]
}

fn instances(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Qap> {
    let matrices = sizes.prop_flat_map(|size| (Just(size), matrix(size), matrix(size)));
    let qaps = matrices.prop_map(|(size, flows, distances)| Qap::new(size, flows, distances));
    // Without a scale the bound is that for large instances.
    (qaps, any::<bool>()).prop_map(|(qap, is_small)| if is_small { qap } else { Qap { scale: 0, ..qap } })
}

#[test]
fn limit_far_above_all_costs_has_no_effect() {
    let around = |a: usize, b: usize| a.abs_diff(b).min(6 - a.abs_diff(b)) as i64;
    let distances = (0..36).map(|one| around(one / 6, one % 6)).collect();
    let flows = (0..36_i64).map(|one| if one / 6 == one % 6 { 0 } else { one / 6 * (one % 6) % 5 });
    let qap = Qap::new(6, flows.collect(), distances);
    let below = |best: Option<i64>| {
        let mut root = qap.root();
        let bound = qap.bound(&mut root, best).unwrap();
        (bound, qap.branch(&mut root).count(&qap, &root))
    };
    assert!(below(None).1 > 0);
    for far in [i64::MAX, 100_000_000_000_000_000, 1 << 40] {
        assert_eq!(below(Some(far)), below(None), "{far}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn search_finds_optimal_placement(qap in instances(1..7), starts: bool, pruning: bool, symmetric: bool) {
        let optimum = least(&qap, &mut vec![None; qap.size]);
        let start = qap.searched(None, 1, &|| true).unwrap();
        let start = starts.then(|| Best::new(qap.cost(&start), start));
        let qap = if symmetric { qap } else { qap.without_symmetry() };
        let found = sequential::solve(&qap, pruning, start).best.unwrap();
        prop_assert_eq!(found.cost, optimum);
        prop_assert_eq!(qap.cost_of(&found.solution), Some(optimum));
        prop_assert_eq!(optimum % qap.unit, 0);
    }

    #[test]
    fn collected_optima_include_symmetric_ones(qap in instances(1..5)) {
        let mut costs = Vec::new();
        each_cost(&qap, &mut Vec::new(), &mut costs);
        let optimum = *costs.iter().min().unwrap();
        let collect = Collect { at_most: 1000, within: Some(Tolerance::NONE) };
        let solved = Solver::new(qap).collect(collect).workers(2).run().unwrap();
        prop_assert!(solved.collected.iter().all(|best| best.cost == optimum));
        prop_assert_eq!(solved.collected.len(), costs.iter().filter(|cost| **cost == optimum).count());
    }

    #[test]
    fn bound_holds_for_every_completion(
        qap in instances(2..7),
        steps in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        beside in prop::option::of(-3_i64..9),
    ) {
        let limit = beside.map(|beside| least(&qap, &mut vec![None; qap.size]) + beside);
        let mut state = qap.root();
        let holds = |bound: i64, state: &Placing| {
            let least = least(&qap, &mut state.places.clone());
            // Only solutions better than the limit need to be bounded.
            bound <= least || limit.is_some_and(|limit| limit <= least && bound <= limit)
        };
        for step in steps {
            let bound = qap.bound(&mut state, limit).unwrap();
            prop_assert!(holds(bound, &state), "{bound} {state:?}");
            if limit.is_some_and(|limit| bound >= limit) {
                break;
            }
            let mut next = qap.branch(&mut state);
            let mut children = Vec::new();
            while let Some(child) = Children::next(&mut next, &qap, &state) {
                prop_assert!(holds(child.low, &child), "{child:?}");
                children.push(child);
            }
            if children.is_empty() || children[0].placed == qap.size {
                break;
            }
            state = step.get(&children).clone();
        }
    }

    #[test]
    fn check_finds_no_mistake(qap in instances(2..6)) {
        let found = check(&qap);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    #[test]
    fn reduced_costs_prove_an_assignment(size in 1_usize..7, costs in prop::collection::vec(
        prop_oneof![5 => -20_i32..50, 1 => Just(lap::FORBIDDEN)], 36))
    {
        let costs = &costs[..size * size];
        let mut table = table_of(costs, size);
        let total = table.solve();
        let (reduced, beyond) = reduced(&table, size);
        let allowed = |one: usize| costs[one] < lap::FORBIDDEN;
        prop_assert_eq!(total, cheapest(costs, size, 0, 0));
        if total.is_some() {
            // Without negative costs, the cheapest assignment of the remaining costs is free.
            prop_assert!((0..size * size).all(|one| allowed(one) == (reduced[one] < lap::FORBIDDEN)));
            prop_assert!(reduced.iter().all(|&cost| cost >= 0));
            prop_assert_eq!(cheapest(&reduced, size, 0, 0), Some(0));
            prop_assert!(beyond.iter().all(|&cost| cost == lap::FORBIDDEN));
        }
    }

    /// All sizes, with the full range of costs.
    #[test]
    fn large_assignments_cost_what_another_algorithm_finds(
        size in 1_usize..=lap::SIZE_MAX,
        costs in prop::sample::select(vec![2, 50, 1 << 28, lap::FORBIDDEN - 1]).prop_flat_map(|most| {
            let cost = prop_oneof![7 => 0..=most, 1 => Just(lap::FORBIDDEN)];
            prop::collection::vec(cost, lap::SIZE_MAX * lap::SIZE_MAX)
        }),
    ) {
        let costs = &costs[..size * size];
        let mut table = table_of(costs, size);
        let total = table.solve();
        let least = |costs: &[i32]| {
            Assignment::new(size).solve(|row, column| match costs[row * size + column] {
                lap::FORBIDDEN => FORBIDDEN,
                cost => i64::from(cost),
            })
        };
        let expected = least(costs);
        // A sum as large as a forbidden cost may be treated as forbidden.
        if total.is_some() || expected.is_some_and(|cost| cost < i64::from(lap::FORBIDDEN)) {
            prop_assert_eq!(total, expected);
            let (reduced, _) = reduced(&table, size);
            prop_assert!(reduced.iter().all(|&cost| cost >= 0));
            prop_assert_eq!(least(&reduced), Some(0));
        }
    }

    #[test]
    fn heuristics_depend_on_the_seed_alone(qap in instances(1..9), seed: u64) {
        let stops = || {
            let calls = std::cell::Cell::new(0);
            move || {
                calls.set(calls.get() + 1);
                calls.get() > 60
            }
        };
        let places = qap.searched(None, seed, &stops()).unwrap();
        prop_assert_eq!(qap.searched(None, seed, &stops()), Some(places.clone()));
        let cost = qap.cost_of(&places).unwrap();
        let better = qap.searched(Some(&places), seed, &stops());
        prop_assert!(better.is_none_or(|better| qap.cost_of(&better).is_some_and(|it| it < cost)));
        for (a, b) in [(0, qap.size - 1), (qap.size / 2, 0)] {
            let mut swapped = places.clone();
            swapped.swap(a, b);
            let delta = if a == b { 0 } else { qap.swapped(&places, a, b) };
            prop_assert_eq!(qap.cost(&swapped), cost + delta);
        }
    }

    /// Incrementally updated changes equal recomputed ones.
    #[test]
    fn cost_changes_stay_exact_after_swaps(qap in instances(2..9), seed: u64, steps in 1_u32..40) {
        let calls = std::cell::Cell::new(0);
        let (cost, places) = qap.walked(seed, &|| { calls.set(calls.get() + 1); calls.get() > steps });
        prop_assert_eq!(qap.cost(&places), cost);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In instances of every size up to the largest for which the better bound is computed.
    #[test]
    fn solutions_below_limit_are_never_excluded(
        (qap, places) in (7_usize..=lap::SIZE_MAX).prop_flat_map(|size| {
            let qap = (matrix(size), matrix(size)).prop_map(move |(flows, distances)| {
                Qap::new(size, flows, distances).without_symmetry()
            });
            (qap, Just((0..size).collect::<Vec<usize>>()).prop_shuffle())
        }),
        improves: bool,
        beside in prop::option::of(1_i64..9),
    ) {
        let calls = std::cell::Cell::new(0);
        let stops = || calls.replace(calls.get() + 1) > 60;
        let better = if improves { qap.searched(Some(&places), 1, &stops) } else { None };
        let places = better.unwrap_or(places);
        let cost = qap.cost(&places);
        let limit = beside.map(|beside| cost + beside);
        let leads = |state: &Placing| state.placed().all(|(facility, place)| places[facility] == place);
        let mut state = qap.root();
        while state.placed < qap.size {
            let bound = qap.bound(&mut state, limit).unwrap();
            prop_assert!(bound <= cost, "{bound} above {cost}: {state:?}");
            let mut next = qap.branch(&mut state);
            let children = std::iter::from_fn(|| Children::next(&mut next, &qap, &state));
            let child = children.into_iter().find(leads);
            prop_assert!(child.is_some(), "nothing leads to {places:?}");
            state = child.unwrap();
            prop_assert!(state.low <= cost, "{} above {cost}: {state:?}", state.low);
        }
        prop_assert_eq!(qap.leaf(&state), Some(cost));
    }
}

/// Returns an assignment problem with these costs.
fn table_of(costs: &[i32], size: usize) -> lap::Table {
    let mut table = lap::Table::default();
    table.reset(size, lap::width(size));
    let width = lap::width(size) * lap::LANES;
    let lines = table.lines_mut::<1>().as_flattened_mut().as_flattened_mut().chunks_exact_mut(width);
    for (line, costs) in lines.zip(costs.chunks_exact(size)) {
        line[..size].copy_from_slice(costs);
    }
    table
}

/// Returns the costs in a table, and the padding of its rows.
fn reduced(table: &lap::Table, size: usize) -> (Vec<i32>, Vec<i32>) {
    let width = lap::width(size) * lap::LANES;
    let rows = table.lines::<1>().as_flattened().as_flattened().chunks_exact(width);
    let (costs, beyond): (Vec<&[i32]>, Vec<&[i32]>) = rows.map(|row| row.split_at(size)).unzip();
    (costs.concat(), beyond.concat())
}

fn cheapest(costs: &[i32], size: usize, row: usize, taken: u32) -> Option<i64> {
    if row == size {
        return Some(0);
    }
    let free = (0..size).filter(|&c| taken & (1 << c) == 0 && costs[row * size + c] < lap::FORBIDDEN);
    free.filter_map(|c| {
        Some(i64::from(costs[row * size + c]) + cheapest(costs, size, row + 1, taken | 1 << c)?)
    })
    .min()
}

#[test]
fn ring_places_can_be_rotated_and_mirrored() {
    let distances: Vec<i64> =
        (0..36_i64).map(|one| (one / 6 - one % 6).abs()).map(|apart| apart.min(6 - apart)).collect();
    let symmetry = Symmetry::of(6, &distances);
    assert_eq!(symmetry.orbits(6, |_| false), [0; 6]);
    assert_eq!(symmetry.orbits(6, |place| place == 0), [0, 1, 2, 3, 2, 1]);
    assert_eq!(symmetry.orbits(6, |place| place < 2), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn facilities_without_flows_can_be_exchanged() {
    let mut flows = vec![0; 25];
    (flows[1], flows[5]) = (3, 4);
    let symmetry = Symmetry::of(5, &flows);
    assert_eq!(symmetry.orbits(5, |_| false), [0, 1, 2, 2, 2]);
    assert_eq!(symmetry.orbits(5, |facility| facility == 3), [0, 1, 2, 3, 2]);
}

/// A search that tries one of each kind of place visits fewer states, and has the same result.
#[test]
fn symmetry_saves_states() {
    let apart = |a: i64, b: i64| (a / 3 - b / 3).abs() + (a % 3 - b % 3).abs();
    let distances = (0..81).map(|one| apart(one / 9, one % 9)).collect();
    let flows = (0..81_i64).map(|one| (one / 9 * 7 + one % 9 * 5) % 11).collect();
    let qap = Qap::new(9, flows, distances);
    let with = sequential::solve(&qap, true, None);
    let without = sequential::solve(&qap.clone().without_symmetry(), true, None);
    assert_eq!(with.best.map(|best| best.cost), without.best.map(|best| best.cost));
    assert!(with.states * 2 < without.states, "{} {}", with.states, without.states);
}
