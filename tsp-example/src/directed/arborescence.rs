//! The cheapest set of arcs by which every city can be reached from a root (J. Edmonds, Optimum branchings,
//! 1967).

use bnb_framework::assignment::FORBIDDEN;

/// Returns the cost of the cheapest arborescence from a root, by contracting cycles. `costs` is a matrix, row
/// by row, from city to city; a [`FORBIDDEN`] entry is not an arc. Returns `None` if a city cannot be
/// reached.
///
/// Subtracts the prices of all contracted sets from `costs`: any arborescence costs at least as much as the
/// cheapest plus the remaining costs of its arcs.
pub(super) fn cheapest(costs: &mut [i64], cities: usize, root: usize) -> Option<i64> {
    let mut group_of: Vec<usize> = (0..cities).collect();
    let mut groups = cities;
    let mut total = 0;
    loop {
        // The cheapest arc into each group, with the group that it comes from.
        let mut arrivals = vec![(FORBIDDEN, usize::MAX); groups];
        for from in 0..cities {
            let row = &costs[from * cities..(from + 1) * cities];
            for (&cost, &group) in row.iter().zip(&group_of) {
                if cost < arrivals[group].0 && group != group_of[from] {
                    arrivals[group] = (cost, group_of[from]);
                }
            }
        }
        let root_group = group_of[root];
        arrivals[root_group] = (0, root_group);
        if arrivals.iter().any(|&(cost, _)| cost >= FORBIDDEN) {
            return None;
        }
        total += arrivals.iter().map(|&(cost, _)| cost).sum::<i64>();
        for from in 0..cities {
            let row = &mut costs[from * cities..(from + 1) * cities];
            for (cost, &group) in row.iter_mut().zip(&group_of) {
                if *cost < FORBIDDEN && group != group_of[from] {
                    *cost -= arrivals[group].0;
                }
            }
        }
        let (becomes, fewer) = contract(&arrivals, root_group);
        if fewer == groups {
            return Some(total);
        }
        groups = fewer;
        for group in &mut group_of {
            *group = becomes[*group];
        }
    }
}

/// Returns the number of the cycle, or of the group itself, that each group becomes, and how many there are.
fn contract(arrivals: &[(i64, usize)], root: usize) -> (Vec<usize>, usize) {
    let mut becomes = vec![usize::MAX; arrivals.len()];
    let mut seen = vec![usize::MAX; arrivals.len()];
    let mut groups = 0;
    for first in 0..arrivals.len() {
        let mut at = first;
        while seen[at] == usize::MAX && at != root {
            seen[at] = first;
            at = arrivals[at].1;
        }
        if at != root && seen[at] == first && becomes[at] == usize::MAX {
            while becomes[at] == usize::MAX {
                becomes[at] = groups;
                at = arrivals[at].1;
            }
            groups += 1;
        }
    }
    for group in becomes.iter_mut().filter(|group| **group == usize::MAX) {
        *group = groups;
        groups += 1;
    }
    (becomes, groups)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every choice of an arc into each city but the root that reaches all cities.
    fn by_hand(costs: &[i64], cities: usize, root: usize, left: &[i64]) -> Option<(i64, i64)> {
        let choices = (0..cities.pow(u32::try_from(cities).unwrap())).map(|mut number| {
            let mut from = Vec::new();
            for _ in 0..cities {
                from.push(number % cities);
                number /= cities;
            }
            from
        });
        let reaches = |from: &Vec<usize>| {
            (0..cities).all(|city| {
                let mut at = city;
                for _ in 0..cities {
                    at = if at == root { root } else { from[at] };
                }
                at == root
            })
        };
        let sum = |from: &Vec<usize>, of: &[i64]| -> Option<i64> {
            let arcs = (0..cities).filter(|&city| city != root).map(|city| of[from[city] * cities + city]);
            arcs.clone().all(|cost| cost < FORBIDDEN).then(|| arcs.sum())
        };
        let both = |from: Vec<usize>| Some((sum(&from, costs)?, sum(&from, costs)? - sum(&from, left)?));
        let all: Vec<(i64, i64)> = choices.filter(reaches).filter_map(both).collect();
        Some((all.iter().map(|&(cost, _)| cost).min()?, all.iter().map(|&(_, paid)| paid).min()?))
    }

    proptest! {
        #[test]
        fn arborescence_any_choice_of_arcs_costs_no_less(
            cities in 1_usize..6,
            costs in prop::collection::vec(prop_oneof![3 => 0_i64..20, 1 => Just(FORBIDDEN)], 25),
            root: prop::sample::Index,
        ) {
            let (costs, root) = (costs[..cities * cities].to_vec(), root.index(cities));
            let mut left = costs.clone();
            let found = cheapest(&mut left, cities, root);
            let expected = by_hand(&costs, cities, root, &left);
            prop_assert_eq!(found, expected.map(|(cost, _)| cost));
            if let Some((cost, paid)) = expected {
                prop_assert!(paid >= cost, "an arborescence costs {paid} and what its arcs have left");
                prop_assert!(left.iter().all(|&left| left >= 0), "{left:?}");
            }
        }
    }
}
