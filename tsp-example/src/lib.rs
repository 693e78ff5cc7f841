//! The travelling salesman, complete: instances, bounds, a start tour, exact search.

pub mod command;
pub mod distance;
pub mod generate;
pub mod instance;
pub mod one_tree;
pub mod path;
pub mod read;
pub mod start;
