//! How often a node writes what somebody waits for: a few times in a row if it has not for a while, and in the
//! long run once in an interval.
//!
//! At the end of a job one node waits for the other several times in a row, and each of these waits would take
//! an interval if writes were evenly spaced. On average a cluster writes as often as if they were: this is the
//! generic cell rate algorithm (ITU-T I.371, 1996), which keeps nothing but a time.

/// The number of writes in a row after a pause of as many intervals.
const ROW: u64 = 8;

/// The writes of a node.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When as many intervals have passed as there were writes.
    paid_at: u64,
}

impl Pace {
    /// Returns the time from which the next write is due, in milliseconds.
    pub(super) fn next(&self, interval_ms: u64) -> u64 {
        self.paid_at.saturating_sub((ROW - 1) * interval_ms)
    }

    /// Takes a write into account, whether or not it has waited for its turn.
    pub(super) fn note(&mut self, now: u64, interval_ms: u64) {
        self.paid_at = self.paid_at.max(now) + interval_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as soon as it is due, and returns the times of the first writes.
    fn writes(pace: &mut Pace, mut now: u64, count: usize) -> Vec<u64> {
        let write = |_| {
            now = now.max(pace.next(100));
            pace.note(now, 100);
            now
        };
        (0..count).map(write).collect()
    }

    #[test]
    fn a_few_writes_come_in_a_row_and_the_others_once_in_an_interval() {
        let mut pace = Pace::default();
        let first = writes(&mut pace, 1_000, 11);
        assert_eq!(first, [[1_000; 8].as_slice(), &[1_100, 1_200, 1_300]].concat());
        assert_eq!(writes(&mut pace, 1_650, 5), [1_650, 1_650, 1_650, 1_700, 1_800], "not all was paid");
        assert_eq!(writes(&mut pace, 9_000, 5), [9_000; 5], "again");
    }

    #[test]
    fn without_an_interval_nothing_waits() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.note(7, 0));
        assert!(pace.next(0) <= 7);
    }
}
