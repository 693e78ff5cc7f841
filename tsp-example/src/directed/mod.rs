//! The travelling salesman with distances that depend on the direction: branch and bound by assignments.
//!
//! Each city is assigned a successor, at the least total cost. The cost of this assignment problem is a
//! bound, since every tour is such an assignment. Usually its cheapest solution is a set of subtours. The
//! minimum cost of connecting these, in terms of the reduced costs, is added to the bound, in both directions
//! (M. Fischetti and P. Toth, An additive bounding procedure for the asymmetric travelling salesman problem,
//! 1992). Arcs whose reduced costs are too high are forbidden; where no other arc is left that is low enough,
//! the arc of the assignment is forced. The search branches on the arcs of a short subtour: every tour lacks
//! one of them (G. Carpaneto, M. Dell'Amico and P. Toth, Exact solution of large-scale, asymmetric traveling
//! salesman problems, 1995).

mod arborescence;
mod patch;
mod problem;
mod state;

pub use self::{problem::DirectedProblem, state::DirectedState};

#[cfg(test)]
mod tests;
