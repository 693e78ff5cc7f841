//! I1: every task completes exactly once per attempt, whatever is lost, repeated, delayed or reordered.
//!
//! Seen by the states: each comes into being once and is done once. A state that is done without being open
//! was done before, by another copy of its task, or never came into being at all.

use taskwork::NodeId;

pub(super) const NAME: &str = "I1 (once)";

pub(super) fn check(node: NodeId, unknown: &[u64]) -> Option<String> {
    let first = unknown.first()?;
    Some(format!(
        "{node} has done state {first:016x}, which was not open: it was done twice, or never came into being"
    ))
}
