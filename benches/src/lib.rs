//! Everything that is measured, and the references it is measured against.
//!
//! Two programs are compared by running them in turn, several times, and taking the median of the ratios: so whatever else the
//! machine does meets both.

pub mod bench;
pub mod cluster;
pub mod examples;
pub mod inside;
pub mod machine;
pub mod measure;
#[allow(dead_code, missing_docs, reason = "the examples say what they are themselves")]
mod problems;
mod reference;
pub mod row;
