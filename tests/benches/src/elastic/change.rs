//! The change in speedup as defined in the paper, the change with an ideal runtime, and the difference.

/// A job with nodes that take part only for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grown {
    /// The number of permanent nodes.
    pub nodes: usize,
    /// The number of added nodes.
    pub added: usize,
    /// The time that they take part, in seconds.
    pub phase_s: f64,
    /// The duration of the job without them, in seconds.
    pub alone_s: f64,
    /// The duration with them.
    pub seconds: f64,
}

impl Grown {
    /// Returns the percentage change in speedup, the paper's formula 1. Both speedups are relative to the
    /// same sequential time, which cancels out.
    pub fn change(&self) -> f64 {
        100.0 * (self.alone_s / self.seconds - 1.0)
    }

    /// Returns the duration of the job with an ideal runtime, whose added nodes work from their start until
    /// they are asked to leave, and cost the others nothing.
    pub fn ideal_s(&self) -> f64 {
        self.alone_s - self.phase_s * self.added as f64 / self.nodes as f64
    }

    /// Returns the change in speedup of the ideal runtime.
    pub fn ideal_change(&self) -> f64 {
        Self { seconds: self.ideal_s(), ..*self }.change()
    }

    /// Returns the achieved share of that change.
    pub fn reached(&self) -> f64 {
        self.change() / self.ideal_change()
    }

    /// Returns the missing work compared with the ideal runtime, in seconds of each added node.
    pub fn missing_s(&self) -> f64 {
        (self.seconds - self.ideal_s()) * self.nodes as f64 / self.added as f64
    }
}

/// Returns the time within which this share of all nodes had taken a step, given the times of those that did.
/// `None` if fewer did.
pub fn within(mut times: Vec<f64>, all: usize, share: f64) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of nodes")]
    let needed = (share * all as f64).ceil() as usize;
    times.get(needed.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROWN: Grown = Grown { nodes: 10, added: 40, phase_s: 15.0, alone_s: 120.0, seconds: 64.0 };

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }

    #[test]
    fn halved_time_doubles_speedup() {
        is(Grown { seconds: 60.0, ..GROWN }.change(), 100.0);
        is(Grown { seconds: 160.0, ..GROWN }.change(), -25.0);
    }

    #[test]
    fn ideal_nodes_save_their_own_time() {
        // 40 nodes in 15 s do the work of 10 in 60.
        is(GROWN.ideal_s(), 60.0);
        is(GROWN.ideal_change(), 100.0);
        is(GROWN.reached(), 0.875);
        is(Grown { seconds: 60.0, ..GROWN }.reached(), 1.0);
        is(Grown { phase_s: 0.0, ..GROWN }.ideal_change(), 0.0);
    }

    #[test]
    fn missing_time_is_shared_by_added_nodes() {
        // Ten nodes work four seconds longer: one second of each of the forty.
        is(GROWN.missing_s(), 1.0);
    }

    #[test]
    fn share_counts_nodes_without_the_step() {
        let times: Vec<f64> = (1..=9).rev().map(f64::from).collect();
        assert_eq!(within(times.clone(), 10, 0.9), Some(9.0));
        assert_eq!(within(times.clone(), 9, 0.9), Some(9.0));
        assert_eq!(within(times.clone(), 9, 0.5), Some(5.0));
        assert_eq!(within(times, 11, 0.9), None);
        assert_eq!(within(Vec::new(), 0, 0.9), None);
    }
}
