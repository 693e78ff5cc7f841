//! The change in speedup as the paper defines it, that of an ideal runtime, and what separates the two.

/// A job on nodes of which some were there only for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grown {
    /// The nodes that were there all the time.
    pub nodes: usize,
    /// Those that were there for a while.
    pub added: usize,
    /// For how long, in seconds.
    pub phase_s: f64,
    /// The time that the job takes without them, in seconds.
    pub alone_s: f64,
    /// The time that it took with them.
    pub seconds: f64,
}

impl Grown {
    /// Returns the percentage change in speedup, the paper's formula 1. Both speedups are relative to the
    /// same sequential time, which cancels out.
    pub fn change(&self) -> f64 {
        100.0 * (self.alone_s / self.seconds - 1.0)
    }

    /// Returns the time that the job takes with a runtime whose added nodes work from the moment at which
    /// they are started to the moment at which they are told to leave, and cost the others nothing.
    pub fn ideal_s(&self) -> f64 {
        self.alone_s - self.phase_s * self.added as f64 / self.nodes as f64
    }

    /// Returns the change in speedup of such a runtime.
    pub fn ideal_change(&self) -> f64 {
        Self { seconds: self.ideal_s(), ..*self }.change()
    }

    /// Returns the share of that change that was reached.
    pub fn reached(&self) -> f64 {
        self.change() / self.ideal_change()
    }

    /// Returns the work that is missing compared with such a runtime, in seconds of each added node.
    pub fn missing_s(&self) -> f64 {
        (self.seconds - self.ideal_s()) * self.nodes as f64 / self.added as f64
    }
}

/// Returns the time within which this share of all nodes had done something, given the times of those that
/// have done it. `None` if fewer have.
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
    fn half_the_time_is_twice_the_speedup() {
        is(Grown { seconds: 60.0, ..GROWN }.change(), 100.0);
        is(Grown { seconds: 160.0, ..GROWN }.change(), -25.0);
    }

    #[test]
    fn ideal_nodes_save_their_own_time() {
        // 40 nodes in 15 s do what 10 do in 60.
        is(GROWN.ideal_s(), 60.0);
        is(GROWN.ideal_change(), 100.0);
        is(GROWN.reached(), 0.875);
        is(Grown { seconds: 60.0, ..GROWN }.reached(), 1.0);
        is(Grown { phase_s: 0.0, ..GROWN }.ideal_change(), 0.0);
    }

    #[test]
    fn what_is_missing_is_shared_by_those_that_were_added() {
        // Ten nodes work for four seconds longer: one second of each of the forty.
        is(GROWN.missing_s(), 1.0);
    }

    #[test]
    fn a_share_counts_nodes_that_have_never_done_it() {
        let times: Vec<f64> = (1..=9).rev().map(f64::from).collect();
        assert_eq!(within(times.clone(), 10, 0.9), Some(9.0));
        assert_eq!(within(times.clone(), 9, 0.9), Some(9.0));
        assert_eq!(within(times.clone(), 9, 0.5), Some(5.0));
        assert_eq!(within(times, 11, 0.9), None);
        assert_eq!(within(Vec::new(), 0, 0.9), None);
    }
}
