//! The travelling salesman whose distances depend on the direction: branch and bound by assignments.
//!
//! Each city gets a city to follow it, at the least cost in all: an assignment problem, and a bound, since a
//! tour is such an assignment. Mostly its cheapest solution is a set of subtours. What it costs at least to
//! connect these is a second bound on what the first has left (M. Fischetti and P. Toth, An additive bounding
//! procedure for the asymmetric travelling salesman problem, 1992). The search branches on the arcs of a
//! short subtour: in any tour one of them is missing (G. Carpaneto, M. Dell'Amico and P. Toth, Exact solution
//! of large-scale, asymmetric traveling salesman problems, 1995).

mod arborescence;
mod patch;
mod problem;

pub use self::problem::{DirectedProblem, DirectedState};
