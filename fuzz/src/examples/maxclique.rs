//! The largest clique.

#[path = "../../../bnb-framework/examples/maxclique/clique.rs"]
pub(crate) mod clique;
#[path = "../../../bnb-framework/examples/maxclique/graph.rs"]
pub(crate) mod graph;
#[path = "../../../bnb-framework/examples/maxclique/set.rs"]
mod set;
