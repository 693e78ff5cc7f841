//! The permutation flow shop.

#[path = "../../../bnb-framework/examples/flowshop/read.rs"]
pub(crate) mod read;
#[path = "../../../bnb-framework/examples/flowshop/shop.rs"]
mod shop;
