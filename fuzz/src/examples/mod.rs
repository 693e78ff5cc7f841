//! The examples of the framework, as they are.

pub(crate) mod flowshop;
#[path = "../../../bnb-framework/examples/knapsack/items.rs"]
pub(crate) mod knapsack;
pub(crate) mod maxclique;
pub(crate) mod qap;
