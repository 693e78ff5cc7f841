//! The runtime within one process, as a program uses it.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod check;
mod companions;
mod embedded;
mod idle;
mod large;
mod layers;
mod objects;
mod spawn;
mod state;
mod tree;
