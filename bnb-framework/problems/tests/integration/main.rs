//! The problems: every kind of search gives the same answer, and every reader refuses wrong input.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod checks;
mod cliques;
mod kinds;
mod packings;
mod readers;
