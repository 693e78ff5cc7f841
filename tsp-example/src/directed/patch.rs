//! A start tour from the subtours of an assignment (R. Karp, A patching algorithm for the nonsymmetric
//! traveling-salesman problem, 1979).

use crate::instance::{City, Instance};

/// Returns the subtours of an assignment, each starting from its smallest city.
pub(super) fn subtours(next: &[City]) -> Vec<Vec<City>> {
    let mut seen = vec![false; next.len()];
    let mut subtours = Vec::new();
    for first in 0..next.len() {
        let mut subtour = Vec::new();
        let mut at = first;
        while !std::mem::replace(&mut seen[at], true) {
            subtour.push(at);
            at = next[at];
        }
        if !subtour.is_empty() {
            subtours.push(subtour);
        }
    }
    subtours
}

/// Joins the subtours to a tour: always the largest two, by the two arcs that add the least cost.
pub(super) fn patch(instance: &Instance, next: &[City]) -> Vec<City> {
    let mut next = next.to_vec();
    loop {
        let mut subtours = subtours(&next);
        subtours.sort_by_key(|subtour| std::cmp::Reverse(subtour.len()));
        let [first, second, ..] = subtours.as_slice() else {
            return subtours.into_iter().next().unwrap_or_default();
        };
        let d = |a: City, b: City| i64::from(instance.distance(a, b));
        let pairs = first.iter().flat_map(|&a| second.iter().map(move |&b| (a, b)));
        let more = |&(a, b): &(City, City)| d(a, next[b]) + d(b, next[a]) - d(a, next[a]) - d(b, next[b]);
        if let Some((a, b)) = pairs.min_by_key(more) {
            next.swap(a, b);
        }
    }
}
