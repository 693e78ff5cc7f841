//! The order in which the search numbers the vertices.

use super::Graph;

/// Returns the vertices in degeneracy order: each has as few neighbours as possible among those before it.
/// Ties are broken by the degrees of neighbours, the lowest last (E. Tomita and
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
            // The degree of a removed vertex no longer matters, so it may wrap.
            degree[other] = degree[other].wrapping_sub(1);
        }
        order.push(vertex);
    }
    order.reverse();
    order
}
