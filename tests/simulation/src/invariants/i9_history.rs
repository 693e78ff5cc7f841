//! I9: one seed has one history. Two runs of the same plan must produce traces with the same fingerprint.

use super::Violation;

/// Compares two runs of one plan.
pub(crate) fn check(first: u64, second: u64, at_ms: u64) -> Option<Violation> {
    let what = || format!("two runs differ: {first:016x}, {second:016x}");
    (first != second).then(|| Violation { at_ms, invariant: "I9 (one history)", what: what() })
}
