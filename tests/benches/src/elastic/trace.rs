//! The number of nodes at work at each moment, from the records of their processes.

use crate::walk::Part;

/// Returns the number of processes at work from each moment on, in seconds since the submission of the job:
/// those that have started a first task, and not yet ended their last state.
pub(super) fn at_work<'a>(parts: impl Iterator<Item = &'a Part>, submitted_us: u64) -> Vec<(f64, usize)> {
    let mut changes: Vec<(u64, bool)> = Vec::new();
    for part in parts {
        changes.extend([(part.first_us, true), (part.last_us, false)]);
    }
    changes.sort_unstable();
    let mut nodes = 0_usize;
    let mut trace = vec![(0.0, 0)];
    for (at_us, begins) in changes {
        nodes = if begins { nodes + 1 } else { nodes.saturating_sub(1) };
        trace.push(((at_us as f64 - submitted_us as f64) / 1e6, nodes));
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_counts_nodes_while_they_work() {
        let part = |first_us, last_us| Part { states: 1, first_us, last_us };
        let parts = [part(2_000_000, 9_000_000), part(5_000_000, 6_000_000)];
        let expected = [(0.0, 0), (1.0, 1), (4.0, 2), (5.0, 1), (8.0, 0)];
        assert_eq!(at_work(parts.iter(), 1_000_000), expected);
    }
}
