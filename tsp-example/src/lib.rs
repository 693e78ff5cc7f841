//! The travelling salesman: instances, bounds, start tours, and exact search.

pub mod instance;
pub mod distance;
pub mod map;
pub mod read;
pub mod generate;
pub mod start;
mod heuristic;
mod set;
pub mod path;
pub mod one_tree;
pub mod directed;
pub mod command;
