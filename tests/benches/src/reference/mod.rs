//! The same searches written by hand, without the runtime, for comparison.

#![allow(clippy::cast_possible_truncation, reason = "cities, vertices and places are few")]

pub(crate) mod queens;
pub(crate) mod recursion;
pub(crate) mod tsp;
pub(crate) mod uts;
