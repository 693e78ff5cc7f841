//! Bounds and searches compared with all orders, and tests of the heuristics' contracts.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "small numbers in tests")]

use bnb_framework::{Best, Problem, Tree, check, sequential};
use proptest::{collection::vec, prelude::*};

use super::{
    Bounds, FlowShop, Order,
    bound::{Ends, Tables},
    pairs::{Pairs, Spans},
    time::Time,
};

/// Calls a function with all orders of some jobs.
fn each_order(jobs: &mut Vec<u16>, from: usize, look: &mut dyn FnMut(&[u16])) {
    if from == jobs.len() {
        look(jobs);
    }
    for next in from..jobs.len() {
        jobs.swap(from, next);
        each_order(jobs, from + 1, look);
        jobs.swap(from, next);
    }
}

/// Returns the least makespan with this front and back, the back from the last job on.
fn least(shop: &FlowShop, front: &[u16], back: &[u16]) -> u32 {
    let is_left = |job: &u16| !front.contains(job) && !back.contains(job);
    let mut left: Vec<u16> = (0..shop.jobs as u16).filter(is_left).collect();
    let mut least = u32::MAX;
    let back: Vec<u16> = back.iter().rev().copied().collect();
    each_order(&mut left, 0, &mut |middle| {
        least = least.min(shop.makespan(&[front, middle, &back].concat()));
    });
    least
}

fn shops(jobs: std::ops::Range<usize>) -> impl Strategy<Value = FlowShop> {
    (jobs, 1_usize..6).prop_flat_map(|(jobs, machines)| {
        let times = vec(0_u32..20, jobs * machines);
        times.prop_map(move |times| FlowShop::new(jobs, machines, times))
    })
}

fn started(shop: &FlowShop, front: &[u16], back: &[u16]) -> Order {
    let mut order = shop.root();
    for (jobs, at_front) in [(front, true), (back, false)] {
        for &job in jobs {
            order.put(shop, job, at_front);
        }
    }
    order
}

/// Returns the remaining jobs of an order, and their bounds at both ends: each machine alone, and with pairs.
fn bounds_of<T: Time>(shop: &FlowShop, order: &Order) -> (Vec<u16>, [Vec<u32>; 2], [Vec<u32>; 2]) {
    let tables = Tables::<T>::new(shop.machines, &shop.times);
    let mut ends = Ends::default();
    let lows = |ends: &Ends<T>| {
        [true, false].map(|at_front| ends.lows(at_front).iter().map(|low| low.to_u32()).collect())
    };
    ends.look(shop, &tables, order);
    let alone = lows(&ends);
    ends.each_pair(&tables.pairs, u32::MAX - 1);
    (ends.jobs.clone(), alone, lows(&ends))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn search_finds_best_order(shop in shops(1..7), starts: bool, pruning: bool) {
        let order = shop.inserted(1, &|| false);
        let start = starts.then(|| Best::new(shop.makespan(&order), order));
        let found = sequential::solve(&shop, pruning, start).best.unwrap();
        prop_assert_eq!(found.cost, least(&shop, &[], &[]));
        prop_assert_eq!(shop.cost_of(&found.solution), Some(found.cost));
    }

    /// Up to the longest times for which narrow numbers suffice, and beyond.
    #[test]
    fn longer_times_make_longer_makespans(shop in shops(1..7)) {
        let least = least(&shop, &[], &[]);
        let longest = *shop.times.iter().max().unwrap();
        let most = i16::MAX as u32 / (shop.jobs + 3 * shop.machines) as u32 / longest.max(1);
        for (factor, is_narrow) in [(most, true), (most + 1, longest == 0), (40_000, longest == 0)] {
            let times = shop.times.iter().map(|time| time * factor).collect();
            let longer = FlowShop::by_job(shop.machines, times);
            prop_assert_eq!(matches!(longer.bounds, Bounds::Narrow(_)), is_narrow);
            let found = sequential::solve(&longer, true, None).best.unwrap();
            prop_assert_eq!(found.cost, least * factor);
        }
    }

    /// The same with room that was used for more jobs, and pairs of machines.
    #[test]
    fn longest_narrow_times_do_not_overflow(jobs in 9_usize..18, machines in 1_usize..5, less in vec(0_u32..40, 80)) {
        let most = i16::MAX as u32 / (jobs + 3 * machines) as u32;
        let times: Vec<u32> = less.iter().cycle().take(jobs * machines).map(|less| most - less).collect();
        let shop = FlowShop::by_job(machines, times);
        let Bounds::Narrow(tables) = &shop.bounds else { panic!("they are narrow") };
        let (mut ends, mut order) = (Ends::default(), shop.root());
        for job in 0..jobs as u16 {
            ends.look(&shop, tables, &order);
            ends.each_pair(&tables.pairs, i16::MAX as u32);
            let lows = |at_front| ends.lows(at_front).iter().map(|low| low.to_u32()).collect::<Vec<u32>>();
            prop_assert_eq!([lows(true), lows(false)], bounds_of::<u32>(&shop, &order).2);
            order.put(&shop, job, job % 3 > 0);
        }
    }

    /// Large enough for pairs of machines to count.
    #[test]
    fn pairs_of_machines_prune_no_optimum(shop in shops(9..11)) {
        let with = sequential::solve(&shop, true, None);
        let Bounds::Narrow(tables) = shop.bounds.clone() else { panic!("short times are narrow") };
        let bounds = Bounds::Narrow(Tables { pairs: Pairs::default(), ..tables });
        let without = sequential::solve(&FlowShop { bounds, ..shop }, true, None);
        prop_assert_eq!(with.best.map(|best| best.cost), without.best.map(|best| best.cost));
    }

    #[test]
    fn bound_holds_for_every_child(
        (shop, jobs) in shops(2..7).prop_flat_map(|shop| {
            let jobs: Vec<u16> = (0..shop.jobs as u16).collect();
            (Just(shop), Just(jobs).prop_shuffle())
        }),
        front: prop::sample::Index,
        back: prop::sample::Index,
    ) {
        let front = &jobs[..front.index(jobs.len())];
        let back = &jobs[front.len()..][..back.index(jobs.len() - front.len())];
        let order = started(&shop, front, back);
        let (jobs, alone, pairs) = bounds_of::<i16>(&shop, &order);
        prop_assert_eq!(bounds_of::<u32>(&shop, &order), (jobs.clone(), alone.clone(), pairs.clone()));
        for (column, &job) in jobs.iter().enumerate() {
            let at_front = least(&shop, &[front, &[job]].concat(), back);
            let at_back = least(&shop, front, &[back, &[job]].concat());
            for (end, least) in [at_front, at_back].into_iter().enumerate() {
                prop_assert!(alone[end][column] <= pairs[end][column]);
                prop_assert!(pairs[end][column] <= least, "{} {}", pairs[end][column], least);
            }
        }
    }

    #[test]
    fn check_finds_no_mistake(shop in shops(2..7)) {
        let found = check(&shop);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    /// The span equals the time of the best order of two machines with time lags.
    #[test]
    fn spans_are_those_of_the_best_order(shop in shops(2..6)) {
        let all: Vec<u16> = (0..shop.jobs as u16).collect();
        let pairs = Pairs::<u32>::new(shop.machines, &shop.times);
        let mut spans = Spans::default();
        spans.of(shop.jobs, &all);
        for b in 1..shop.machines {
            for a in 0..b {
                pairs.spans(a, b, &mut spans);
                for &gone in &all {
                    let mut others: Vec<u16> = all.iter().copied().filter(|&job| job != gone).collect();
                    let mut least = u32::MAX;
                    each_order(&mut others, 0, &mut |order| {
                        let (mut first, mut second) = (0, 0);
                        for &job in order {
                            let times = shop.job(job);
                            first += times[a];
                            second = second.max(first + times[a + 1..b].iter().sum::<u32>()) + times[b];
                        }
                        least = least.min(second);
                    });
                    prop_assert_eq!(spans.without.as_flattened()[usize::from(gone)], least);
                }
            }
        }
    }

    #[test]
    fn heuristics_depend_on_the_seed_alone(shop in shops(1..15), seed: u64) {
        let order = shop.inserted(seed, &|| false);
        let makespan = shop.cost_of(&order).unwrap();
        prop_assert_eq!(shop.inserted(seed, &|| false), order.clone());
        // A heuristic that is stopped at once still returns a solution.
        prop_assert!(shop.cost_of(&shop.inserted(seed, &|| true)).is_some());
        prop_assert_eq!(shop.bettered(&order, seed, &|| true), None);
        prop_assert!(makespan >= least_possible(&shop));
    }
}

fn least_possible(shop: &FlowShop) -> u32 {
    *shop.makespans().start()
}

#[test]
fn round_improves_poor_order_reproducibly() {
    let shop = FlowShop::generate(20, 5, 873_654_221);
    let poor: Vec<u16> = (0..20).collect();
    let better = shop.bettered(&poor, 7, &|| false).unwrap();
    assert_eq!(shop.bettered(&poor, 7, &|| false), Some(better.clone()));
    let makespan = shop.cost_of(&better).unwrap();
    assert!((1278..=1300).contains(&makespan), "{makespan}");
}

#[test]
fn large_instances_have_start_solution() {
    for (jobs, machines) in [(1, 1), (2, 256), (120, 20)] {
        let shop = FlowShop::generate(jobs, machines, 5);
        let (makespan, order) = shop.start_order();
        assert_eq!(shop.cost_of(&order), Some(makespan));
        assert!(makespan <= shop.makespan(&shop.inserted(0, &|| false)));
    }
}
