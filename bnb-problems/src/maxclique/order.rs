//! The order in which the search numbers the vertices.

use super::Graph;

/// Returns the vertices in an order in which each has as few neighbours as possible among those before it,
/// the degeneracy order; of equal ones, those whose neighbours have few neighbours are last (E. Tomita and
/// others, MCS, 2010).
pub fn order(graph: &Graph) -> Vec<usize> {
    let mut left: Vec<usize> = (0..graph.vertices()).collect();
    let mut degree: Vec<usize> = left.iter().map(|&vertex| graph.degree(vertex)).collect();
    let around = |&vertex: &usize| graph.neighbours(vertex).map(|other| degree[other]).sum();
    let around: Vec<usize> = left.iter().map(around).collect();
    let mut order = Vec::with_capacity(left.len());
    let key = |vertex: usize, degree: &[usize]| (degree[vertex], around[vertex], vertex);
    while let Some(place) = (0..left.len()).min_by_key(|&place| key(left[place], &degree)) {
        let vertex = left.swap_remove(place);
        for other in graph.neighbours(vertex) {
            // What was removed before does not count any more, so its degree may become anything.
            degree[other] = degree[other].wrapping_sub(1);
        }
        order.push(vertex);
    }
    order.reverse();
    order
}
