//! The command line of programs that solve problems: all options of a search, and the output of its result.
//!
//! A program only implements how its problem is created, and `main` is one call:
//!
//! | source of the problem | implement | `main` calls |
//! |---|---|---|
//! | a file | [`ParseProblem`] | [`main`] |
//! | arguments | [`BuildProblem`] | [`main`] |
//! | arguments, to count the states of a tree | [`Counts`] | [`main_counting`] |
//!
//! [`DisplaySolution`] defines how solutions and costs are displayed. A program that chooses between several
//! types of problem implements [`taskwork_cli::Program`] itself: its arguments include [`SearchArguments`] by
//! `#[command(flatten)]`, and [`prepare`] makes a job from these and a [`Solver`](crate::Solver). The crate
//! `bnb-problems` has examples of each.

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
    program::{BuildProblem, Checking, FileArguments, ParseProblem, checked, main},
    progress::{line, log_values},
    search::{SearchArguments, prepare, prepare_solver},
};
