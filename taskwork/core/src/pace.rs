//! The rate limit of awaited flushes: short bursts after a pause, and once in an interval on average.
//!
//! At the end of a job two nodes wait for each other several times in a row, and each of these waits would take
//! an interval if writes were evenly spaced. On average a cluster does not write more often than that: this is the
//! generic cell rate algorithm (ITU-T I.371, 1996), whose only state is a time.

/// The maximum burst, in writes, after a pause of as many intervals.
const ROW: u64 = 8;

/// The writes of a node.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The time at which as many intervals have passed as there were writes.
    paid_at: u64,
}

impl Pace {
    /// Returns the time from which the next write is due, in milliseconds.
    pub(super) fn next(&self, interval_ms: u64) -> u64 {
        self.paid_at.saturating_sub((ROW - 1) * interval_ms)
    }

    /// Counts a write, even if it was early.
    pub(super) fn note(&mut self, now: u64, interval_ms: u64) {
        self.paid_at = self.paid_at.max(now) + interval_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as soon as possible, and returns the times of the first writes.
    fn writes(pace: &mut Pace, mut now: u64, count: usize) -> Vec<u64> {
        let write = |_| {
            now = now.max(pace.next(100));
            pace.note(now, 100);
            now
        };
        (0..count).map(write).collect()
    }

    #[test]
    fn pace_allows_a_burst_and_then_one_write_per_interval() {
        let mut pace = Pace::default();
        let first = writes(&mut pace, 1_000, 11);
        assert_eq!(first, [[1_000; 8].as_slice(), &[1_100, 1_200, 1_300]].concat());
        assert_eq!(writes(&mut pace, 1_650, 5), [1_650, 1_650, 1_650, 1_700, 1_800], "not all was paid");
        assert_eq!(writes(&mut pace, 9_000, 5), [9_000; 5], "again");
    }

    #[test]
    fn pace_without_interval_never_waits() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.note(7, 0));
        assert!(pace.next(0) <= 7);
    }
}
