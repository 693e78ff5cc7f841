//! The state of the graph, in parts that do not depend on each other.

pub(super) mod chains;
pub(super) mod durable;
pub(super) mod earlier;
pub(super) mod groups;
pub(super) mod kept;
pub(super) mod lanes;
pub(super) mod nests;
pub(super) mod reductions;
pub(super) mod troubles;
