//! The quadratic assignment problem.

#[path = "../../../bnb-framework/examples/qap/facilities.rs"]
mod facilities;
#[path = "../../../bnb-framework/examples/qap/read.rs"]
pub(crate) mod read;
