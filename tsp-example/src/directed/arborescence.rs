//! The cheapest set of arcs by which every city can be reached from a root (J. Edmonds, Optimum branchings,
//! 1967).

use bnb_framework::assignment::FORBIDDEN;

/// Returns the cost of the cheapest arborescence from a root, by contracting cycles. `costs` is a matrix, row
/// by row, from city to city; a [`FORBIDDEN`] entry is not an arc. Returns `None` if a city cannot be
/// reached.
pub(super) fn cheapest(mut costs: Vec<i64>, mut cities: usize, mut root: usize) -> Option<i64> {
    let mut total = 0;
    loop {
        let arrivals = (0..cities).map(|to| {
            let from = (0..cities).filter(|&from| from != to).min_by_key(|&from| costs[from * cities + to]);
            from.map(|from| (from, costs[from * cities + to]))
        });
        let arrivals: Vec<Option<(usize, i64)>> = arrivals.collect();
        // The number of the cycle, or of the city, that each city becomes.
        let mut becomes = vec![usize::MAX; cities];
        let mut seen = vec![usize::MAX; cities];
        let mut groups = 0;
        for city in (0..cities).filter(|&city| city != root) {
            let (_, cost) = arrivals[city].filter(|&(_, cost)| cost < FORBIDDEN)?;
            total += cost;
            let mut at = city;
            while seen[at] == usize::MAX && at != root {
                seen[at] = city;
                at = arrivals[at]?.0;
            }
            if at != root && seen[at] == city && becomes[at] == usize::MAX {
                let first = at;
                loop {
                    becomes[at] = groups;
                    at = arrivals[at]?.0;
                    if at == first {
                        break;
                    }
                }
                groups += 1;
            }
        }
        if groups == 0 {
            return Some(total);
        }
        for group in becomes.iter_mut().filter(|group| **group == usize::MAX) {
            *group = groups;
            groups += 1;
        }
        let mut contracted = vec![FORBIDDEN; groups * groups];
        for from in 0..cities {
            for to in (0..cities).filter(|&to| becomes[to] != becomes[from] && to != root) {
                let cost = costs[from * cities + to];
                if cost < FORBIDDEN {
                    let left = cost - arrivals[to].map_or(0, |(_, cost)| cost);
                    let entry = &mut contracted[becomes[from] * groups + becomes[to]];
                    *entry = left.min(*entry);
                }
            }
        }
        (costs, cities, root) = (contracted, groups, becomes[root]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every choice of an arc into each city but the root that reaches all cities.
    fn by_hand(costs: &[i64], cities: usize, root: usize) -> Option<i64> {
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
        let cost = |from: Vec<usize>| {
            let arcs = (0..cities).filter(|&city| city != root).map(|city| costs[from[city] * cities + city]);
            arcs.clone().all(|cost| cost < FORBIDDEN).then(|| arcs.sum())
        };
        choices.filter(reaches).filter_map(cost).min()
    }

    proptest! {
        #[test]
        fn nothing_is_cheaper(
            cities in 1_usize..6,
            costs in prop::collection::vec(prop_oneof![3 => 0_i64..20, 1 => Just(FORBIDDEN)], 25),
            root: prop::sample::Index,
        ) {
            let (costs, root) = (costs[..cities * cities].to_vec(), root.index(cities));
            let expected = by_hand(&costs, cities, root);
            prop_assert_eq!(cheapest(costs, cities, root), expected);
        }
    }
}
