//! Distances that depend on the direction, without directions: each city becomes two, an entrance and an
//! exit, which must be next to each other; a tour of the doubled cities has a direction (R. Jonker and T. Volgenant,
//! *Transforming asymmetric into symmetric traveling salesman problems*, 1983).

use std::convert::Infallible;

use super::edges::Edges;
use crate::instance::{City, Instance};

/// Returns an instance in which city `i` is entered at `2i` and is left from `2i + 1`.
pub(super) fn instance(directed: &Instance) -> Instance {
    let distance = |i: City, j: City| {
        let (exit, entrance) = if i % 2 == 1 { (i / 2, j / 2) } else { (j / 2, i / 2) };
        let joins = i % 2 != j % 2 && exit != entrance;
        Ok::<_, Infallible>(if joins { directed.distance(exit, entrance) } else { 0 })
    };
    let Ok(instance) = Instance::new(directed.name.clone(), 2 * directed.len(), distance);
    instance
}

/// Returns the edges between the exits and the entrances of this many in all, those within a city forced.
pub(super) fn edges(ends: usize) -> Edges {
    let mut edges = Edges::all(ends);
    let possible = "at least four cities leave a choice at each";
    for i in 0..ends {
        for j in (i + 2..ends).step_by(2) {
            edges.forbid(i, j).expect(possible);
        }
    }
    for i in (0..ends).step_by(2) {
        edges.force(i, i + 1).expect(possible);
    }
    edges
}

/// Returns the tour of the cities that a tour of their entrances and exits stands for. It starts from the
/// first entrance.
pub(super) fn directed(tour: &[City]) -> Vec<City> {
    let whole = |end: &City| end / 2;
    if tour.get(1) == Some(&1) {
        tour.iter().step_by(2).map(whole).collect()
    } else {
        // It goes the wrong way, from entrances to exits.
        tour.iter().rev().step_by(2).map(whole).collect()
    }
}
