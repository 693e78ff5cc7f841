//! Branch and bound on the `taskwork` runtime.
//!
//! You describe a problem as a tree of partial solutions: its [`root`](Tree::root), how a state
//! [branches](Tree::branch), a [bound](Problem::bound) on everything below a state, and the value of a
//! [leaf](Problem::leaf). The framework searches the tree on all cores, keeps the incumbent, prunes, splits
//! the open states when workers are hungry, and proves the optimum.
//!
//! # A problem
//!
//! The 0/1 knapsack: which items are worth the most and still fit?
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use bnb_framework::{Goal, Problem, Solver, Tree};
//! use serde::{Deserialize, Serialize};
//!
//! /// Items as (value, weight), those with the most value for their weight first.
//! #[derive(Serialize, Deserialize)]
//! struct Knapsack {
//!     items: Vec<(u64, u64)>,
//!     capacity: u64,
//! }
//!
//! /// The first items are decided.
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Packing {
//!     taken: Vec<bool>,
//!     value: u64,
//!     room: u64,
//! }
//!
//! impl Tree for Knapsack {
//!     type State = Packing;
//!     type Children = VecDeque<Packing>;
//!
//!     fn root(&self) -> Packing {
//!         Packing { taken: vec![], value: 0, room: self.capacity }
//!     }
//!
//!     /// The next item is taken, if it fits, or left.
//!     fn branch(&self, state: &mut Packing) -> VecDeque<Packing> {
//!         let (value, weight) = self.items[state.taken.len()];
//!         let child = |take: bool| {
//!             let mut taken = state.taken.clone();
//!             taken.push(take);
//!             let (gain, load) = if take { (value, weight) } else { (0, 0) };
//!             Packing { taken, value: state.value + gain, room: state.room - load }
//!         };
//!         let take = (weight <= state.room).then(|| child(true));
//!         take.into_iter().chain([child(false)]).collect()
//!     }
//! }
//!
//! impl Problem for Knapsack {
//!     type Cost = u64;
//!     type Solution = Vec<bool>;
//!     const GOAL: Goal = Goal::Maximise;
//!
//!     /// An upper bound: fill the room with the best remaining items, and with a part of the next one.
//!     fn bound(&self, state: &mut Packing, _best: Option<u64>) -> Option<u64> {
//!         let (mut value, mut room) = (state.value, state.room);
//!         for &(v, w) in &self.items[state.taken.len()..] {
//!             if w > room {
//!                 return Some(value + v * room / w);
//!             }
//!             (value, room) = (value + v, room - w);
//!         }
//!         Some(value)
//!     }
//!
//!     fn leaf(&self, state: &Packing) -> Option<u64> {
//!         (state.taken.len() == self.items.len()).then_some(state.value)
//!     }
//!
//!     fn solution(&self, leaf: &Packing) -> Vec<bool> {
//!         leaf.taken.clone()
//!     }
//! }
//!
//! let knapsack = Knapsack { items: vec![(60, 10), (100, 20), (120, 30)], capacity: 50 };
//! let solved = Solver::new(knapsack).run()?;
//! let best = solved.best.expect("the empty packing is one");
//! assert!(solved.proven);
//! assert_eq!((best.cost, best.solution), (220, vec![false, true, true]));
//! # Ok::<(), bnb_framework::JobError>(())
//! ```
//!
//! [`Solver`] runs on all cores; `.nodes(4)` starts four nodes within the process. [`sequential::solve`] is the plain
//! reference implementation: it does not use the runtime. Without pruning, both searches visit the same number of
//! states. [`cli::ParseProblem`] turns a problem into a program with the commands `solve`, `node` and `submit`.
//!
//! # Results of a search
//!
//! | option of [`Solver`] | result |
//! |---|---|
//! | none | the optimum, proven |
//! | [`target`](Solver::target) | the first solution found that is at least as good, or a proof that there is none |
//! | [`collect`](Solver::collect) | the best solutions, or all that are near the optimum: the same set on any number of nodes |
//! | [`tolerance`](Solver::tolerance), [`time_limit`](Solver::time_limit), [`state_limit`](Solver::state_limit) | a solution, a proven [bound](Solved::bound), and the [gap](Solved::gap) |
//! | [`replicable`](Solver::replicable) | the same solution from the same states, however many nodes there are |
//!
//! [`strategy`](Solver::strategy) chooses which state is visited next and [`split`](Solver::split) which states
//! are given away; [`start`](Solver::start) supplies a known solution, [`cutoff`](Solver::cutoff) a known cost;
//! [`on_progress`](Solver::on_progress) reports progress. Costs may be of any ordered type: see [`Cost`]. Heuristics and
//! other optional functions of a problem are [`Hooks`].
//!
//! If there is nothing to optimise and every state counts, implement [`Enumerate`] instead of [`Problem`], and visit
//! the tree with an [`Enumerator`].
//! The crate `bnb-problems` contains short examples: `uts`, `nqueens` and `numerical_semigroups` count;
//! `golomb`, `maxclique`, `knapsack`, `qap` and `flowshop` optimise. `maxclique` and `flowshop` change their
//! state [in place](InPlace).
//!
#![doc = include_str!("../docs/problems.md")]
//! # A search with a custom loop
//!
//! Write it directly on [`taskwork::Task`], with the two operations of the TASKWORK paper (Kehrer and Blochinger,
//! 2019): `search` does the work and polls the runtime regularly, `split` gives a part of it away. The front page of
//! [`taskwork`] has such a program; [`lowlevel`] has a stack of open states for it.

mod tree;
mod cost;
mod problem;
mod hooks;
mod options;
mod enumerate;
mod incumbent;
mod collected;
mod limits;
mod frontier;
mod grain;
mod agenda;
mod parts;
mod step;
mod mistake;
mod check;
mod instance;
mod heuristics;
mod tally;
mod worker;
mod search;
mod solver;
mod submitted;
pub mod sequential;
pub mod lowlevel;
#[cfg(feature = "cli")]
pub mod cli;
pub mod parse;
pub mod picture;
pub mod assignment;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(test)]
mod testing;
#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod state_tests;

pub use ordered_float::{NotNan, OrderedFloat};
pub use taskwork;
pub use taskwork::{JobError, Output, Release, State, Stopper, report::Figures};

pub use crate::{
    check::{Mistake, check, check_tree},
    cost::{Cost, Goal},
    enumerate::{Enumerate, Enumerator},
    hooks::Hooks,
    incumbent::Best,
    options::{Collect, Options, Replicable, Split, Strategy, Tolerance},
    problem::Problem,
    solver::{End, Progress, Solved, Solver},
    submitted::SubmittedSearch,
    tree::{COUNT_MAX, Children, Copies, InPlace, Moves, Step, Tree},
};
