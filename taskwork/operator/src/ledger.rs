//! Texts about the work that would be lost with a node.

use taskwork::client::records::{Ledger, NodeFigures};

use super::table;

/// Formats the time since a working node last wrote its ledger.
pub(super) fn written<F>(report: &NodeFigures<F>) -> String {
    match (report.ledger, report.unwritten_ms()) {
        (Some(Ledger { unprotected: true, .. }), _) => "unprotected".to_owned(),
        (Some(Ledger { empty: true, .. }), _) => "holds nothing".to_owned(),
        (_, Some(ms)) => format!("{} ago", lapse(ms)),
        _ => "-".to_owned(),
    }
}

/// Returns a text for the maximum work lost with a node that writes its ledger.
pub(super) fn cost(unwritten_ms: u64) -> String {
    format!("with a node at most {} of its work, as the nodes have last reported", lapse(unwritten_ms))
}

/// Explains that a node is unprotected, and the reason.
pub(super) fn unprotected(ledger: &Ledger) -> String {
    let held = match ledger.bytes {
        Some(bytes) => format!("holds {}, more than ledger_bytes_max", megabytes(bytes)),
        None => "does not write all that it holds".to_owned(),
    };
    format!("unprotected: if it is lost, a new attempt starts, because it {held}")
}

/// Formats a duration; below a minute in tenths of a second.
fn lapse(ms: u64) -> String {
    if ms < 60_000 { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) } else { table::lapse(0, ms) }
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ledger: Option<Ledger>) -> NodeFigures<()> {
        NodeFigures { attempt: 1, ledger, at_ms: 100_000, ..NodeFigures::default() }
    }

    #[test]
    fn ledger_age_is_formatted_per_node() {
        let at = |written_ms| Ledger { written_ms: Some(written_ms), ..Ledger::default() };
        let said = |ledger| written(&report(Some(ledger)));
        assert_eq!(said(at(99_600)), "0.4 s ago");
        assert_eq!(said(at(98_760)), "1.2 s ago");
        assert_eq!(said(at(9_000)), "1m 31s ago");
        assert_eq!(said(at(100_500)), "0.0 s ago", "its clock was set back");
        assert_eq!(said(Ledger { empty: true, ..at(9_000) }), "holds nothing");
        assert_eq!(said(Ledger { unprotected: true, ..at(99_600) }), "unprotected");
        assert_eq!(said(Ledger::default()), "-");
        assert_eq!(written(&report(None)), "-");
    }

    #[test]
    fn loss_cost_depends_on_protection() {
        assert_eq!(cost(1_250), "with a node at most 1.2 s of its work, as the nodes have last reported");
        let large = Ledger { unprotected: true, bytes: Some(42_467_328), ..Ledger::default() };
        assert_eq!(
            unprotected(&large),
            "unprotected: if it is lost, a new attempt starts, because it holds 40.5 MiB, more than ledger_bytes_max"
        );
        let unknown = Ledger { bytes: None, ..large };
        assert_eq!(
            unprotected(&unknown),
            "unprotected: if it is lost, a new attempt starts, because it does not write all that it holds"
        );
    }
}
