//! The engines of [`Solver`](crate::Solver) and [`Enumerator`](crate::Enumerator).
//!
//! The nodes of a cluster register the tasks by their type: `Node::builder(&client).task::<SearchTask<Knapsack>>()`. The
//! result of such a job is a [`Tally`], and its variable an [`Incumbent`]; [`Solved`](crate::Solved) interprets both. A
//! task with a custom loop can keep its open states in a [`Frontier`], with its own [`Visitor`].

pub use crate::{
    enumerate::EnumerationTask,
    frontier::{Below, Frontier, Searched, Visitor},
    incumbent::Incumbent,
    instance::Instance,
    limits::Halt,
    search::SearchTask,
    tally::Tally,
};
