//! The travelling salesman, complete: instances, bounds, a start tour, exact search.

pub mod instance;
pub mod distance;
pub mod read;
pub mod generate;
pub mod start;
mod set;
pub mod path;
pub mod one_tree;
pub mod directed;
pub mod command;
