//! The travelling salesman by one-trees (M. Held and R. M. Karp, *The traveling-salesman problem and minimum
//! spanning trees*, 1970 and 1971; branching after T. Volgenant and R. Jonker, 1982).
//!
//! A **one-tree** is a spanning tree of all cities but one, and two edges of that one. Every tour is a
//! one-tree, so the cheapest one-tree is no longer than the shortest tour. A **multiplier** for each city,
//! added to all its edges, changes every tour by the same amount but not every one-tree; raising those of
//! cities with too many edges in the tree, and lowering those with too few, raises the bound.
//!
//! **Exchanges** determine the cost of each edge: an edge is forbidden if every one-tree with it is too long,
//! and forced if every one-tree without it is. Few edges remain after that, and one-trees are built from lists
//! of them.
//!
//! **Directions** are no obstacle: a city with an entrance and an exit is two cities without directions.
//!
//! **Everything is exact.** Distances and multipliers are whole numbers, `SCALE` times as large as the
//! file's, so bounds are whole numbers too, without rounding errors that could prune wrongly. Floating point
//! only determines how far a multiplier moves, and any multipliers produce a valid bound.

mod ascent;
mod decide;
mod doubled;
mod edges;
mod graph;
mod links;
mod marginal;
mod phase;
mod problem;
mod tree;
mod work;

pub use self::problem::{OneTreeProblem, OneTreeState};

/// The number of parts into which a unit of distance is divided for the multipliers.
pub(crate) const SCALE: i64 = 1 << 10;
