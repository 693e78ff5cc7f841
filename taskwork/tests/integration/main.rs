//! What a program sees of the runtime, within one process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check;
mod companions;
mod embedded;
mod idle;
mod large;
mod layers;
mod spawn;
mod state;
