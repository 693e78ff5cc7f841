//! What would be lost with a node, in words.

use taskwork::client::{Ledger, NodeFigures};

use super::table;

/// Formats when a node at work had last written what it holds.
pub(super) fn written<F>(report: &NodeFigures<F>) -> String {
    match (report.ledger, report.unwritten_ms()) {
        (Some(Ledger { unprotected: true, .. }), _) => "unprotected".to_owned(),
        (Some(Ledger { empty: true, .. }), _) => "holds nothing".to_owned(),
        (_, Some(ms)) => format!("{} ago", lapse(ms)),
        _ => "-".to_owned(),
    }
}

/// Says what the loss of a node costs that writes what it holds.
pub(super) fn cost(unwritten_ms: u64) -> String {
    format!("with a node at most {} of its work, as the nodes have last reported", lapse(unwritten_ms))
}

/// Says what it means that a node is unprotected.
pub(super) fn unprotected(ledger: &Ledger) -> String {
    let held = match ledger.bytes {
        Some(bytes) => format!("holds {}, more than ledger_bytes_max", megabytes(bytes)),
        None => "does not write all that it holds".to_owned(),
    };
    format!("unprotected: its loss begins a new attempt, as it {held}")
}

/// Formats a short time in tenths of a second.
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
    fn it_is_said_when_each_node_has_written_what_it_holds() {
        let at = |written_ms| Ledger { written_ms: Some(written_ms), ..Ledger::default() };
        let said = |ledger| written(&report(Some(ledger)));
        assert_eq!(said(at(99_600)), "0.4 s ago");
        assert_eq!(said(at(98_760)), "1.2 s ago");
        assert_eq!(said(at(9_000)), "1m 31s ago");
        assert_eq!(said(at(100_500)), "0.0 s ago", "its clock was set meanwhile");
        assert_eq!(said(Ledger { empty: true, ..at(9_000) }), "holds nothing");
        assert_eq!(said(Ledger { unprotected: true, ..at(99_600) }), "unprotected");
        assert_eq!(said(Ledger::default()), "-");
        assert_eq!(written(&report(None)), "-");
    }

    #[test]
    fn it_is_said_what_a_loss_costs() {
        assert_eq!(cost(1_250), "with a node at most 1.2 s of its work, as the nodes have last reported");
        let large = Ledger { unprotected: true, bytes: Some(42_467_328), ..Ledger::default() };
        assert_eq!(
            unprotected(&large),
            "unprotected: its loss begins a new attempt, as it holds 40.5 MiB, more than ledger_bytes_max"
        );
        let unknown = Ledger { bytes: None, ..large };
        assert_eq!(
            unprotected(&unknown),
            "unprotected: its loss begins a new attempt, as it does not write all that it holds"
        );
    }
}
