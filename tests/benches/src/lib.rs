//! All benchmarks, and the references with which they are compared.
//!
//! Two programs are compared by running them alternately several times and taking the median of the ratios,
//! so that other load on the machine affects both.

pub mod bench;
pub mod bulk;
pub mod cluster;
pub mod dataflow;
pub mod flow;
pub mod elastic;
pub mod kept;
pub mod ledger;
pub mod walk;
pub mod search;
pub mod inside;
pub mod machine;
pub mod measure;
mod reference;
pub mod routines;
pub mod row;
