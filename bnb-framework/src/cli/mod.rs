//! The command line of a program that solves problems: everything that can be chosen of a search as options,
//! and what is said of its end.
//!
//! There is nothing to write but how the problem is had, and `main` is one call:
//!
//! | the problem | implement | `main` calls |
//! |---|---|---|
//! | is read from a file | [`ParseProblem`] | [`main`] |
//! | is made from arguments | [`BuildProblem`] | [`main`] |
//! | counts the states of a tree | [`Counts`] | [`main_counting`] |
//!
//! How solutions and costs look is said by [`DisplaySolution`]. A program that chooses between several types of problem
//! implements [`taskwork_cli::Program`] itself: its arguments take [`SearchArguments`] in by
//! `#[command(flatten)]`, and [`prepare`] makes a job of a [`Solver`](crate::Solver) and of these. The crate
//! `bnb-problems` does each of them.

mod answer;
mod count;
mod program;
mod progress;
mod search;
mod display;

pub use taskwork_cli::Failure;

pub use self::{
    answer::shown,
    count::{CountArguments, Counts, main_counting, prepare_count},
    display::DisplaySolution,
    program::{BuildProblem, FileArguments, ParseProblem, main},
    progress::line,
    search::{SearchArguments, prepare},
};
