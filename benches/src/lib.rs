//! Everything that is measured, and the references it is measured against.
//!
//! Two programs are compared by running them in turn, several times, and taking the median of the ratios: so
//! whatever else the machine does meets both.

pub mod bench;
pub mod cluster;
pub mod programs;
pub mod inside;
pub mod machine;
pub mod measure;
mod reference;
pub mod row;
