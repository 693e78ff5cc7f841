//! I1: every task completes exactly once per attempt, regardless of lost, repeated, delayed or reordered
//! messages.
//!
//! The check observes states: each is created once and visited once, as long as no member is lost. A state
//! that is visited without being open was visited before by another copy of its task, or was never created.
//! After a loss states are visited again; I10 and I3 ensure that each counts once.

use taskwork::NodeId;

pub(super) const NAME: &str = "I1 (once)";

pub(super) fn check(node: NodeId, unknown: &[u64]) -> Option<String> {
    let first = unknown.first()?;
    Some(format!(
        "{node} has visited state {first:016x}, which was not open: it was visited twice, or never created"
    ))
}
