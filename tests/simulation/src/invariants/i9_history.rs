//! I9: one seed, one history. The same plan is run twice and must give the same trace, of which the
//! fingerprint is compared.

use super::Violation;

/// Compares two runs of one plan.
pub(crate) fn check(first: u64, second: u64, at_ms: u64) -> Option<Violation> {
    let what = || format!("two runs differ: {first:016x}, {second:016x}");
    (first != second).then(|| Violation { at_ms, invariant: "I9 (one history)", what: what() })
}
