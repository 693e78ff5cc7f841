//! The consumption of calls.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{store::Outcome, tally::Tally};

/// The consumption of calls that have ended. Each call counts once, also if it was repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Usage {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    /// The time from the start of the calls to their results, in microseconds.
    pub(crate) wall_us: u64,
    /// The processor times of processes, in microseconds: those of jobs only.
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    /// The maximum memory of a process, in bytes: that of jobs only.
    pub(crate) peak_memory_bytes: u64,
    /// The sizes of the arguments and of the results in JSON.
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
    /// The numbers of uses of processes that had made calls before, and of new ones: those of jobs only.
    pub(crate) warm: u64,
    pub(crate) cold: u64,
}

/// The total consumption of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Consumption {
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) peak_memory_bytes: u64,
}

impl Usage {
    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.calls, other.calls),
            (&mut self.failed, other.failed),
            (&mut self.wall_us, other.wall_us),
            (&mut self.user_us, other.user_us),
            (&mut self.system_us, other.system_us),
            (&mut self.in_bytes, other.in_bytes),
            (&mut self.out_bytes, other.out_bytes),
            (&mut self.warm, other.warm),
            (&mut self.cold, other.cold),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.peak_memory_bytes = self.peak_memory_bytes.max(other.peak_memory_bytes);
    }

    /// Adds the difference of two states of a process.
    pub(crate) fn add_consumption(&mut self, before: Consumption, now: Consumption) {
        self.user_us += now.user_us.saturating_sub(before.user_us);
        self.system_us += now.system_us.saturating_sub(before.system_us);
        self.peak_memory_bytes = self.peak_memory_bytes.max(now.peak_memory_bytes);
    }

    /// Adds the size of a result.
    pub(crate) fn add_outcome(&mut self, outcome: &Outcome) {
        self.out_bytes += match outcome {
            Outcome::Value(value) => value.get().len(),
            Outcome::Error(error) => error.message.len() + error.trace.len(),
        } as u64;
    }

    /// Returns the usage of a job that is over.
    pub(crate) fn of_job(tally: &Tally) -> Self {
        Self { calls: tally.ended, failed: tally.failed.values().sum(), ..tally.usage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_sum_and_memory_a_maximum() {
        let process = |user_us, peak_memory_bytes| Consumption { user_us, system_us: 7, peak_memory_bytes };
        let mut usage = Usage { calls: 2, wall_us: 5, cold: 1, ..Usage::default() };
        usage.add_consumption(Consumption::default(), process(20, 300));
        usage.add_consumption(process(20, 300), process(50, 200));
        let mut sum = usage;
        sum.merge(&usage);
        let expected = Usage {
            calls: 4,
            wall_us: 10,
            user_us: 100,
            system_us: 14,
            peak_memory_bytes: 300,
            cold: 2,
            ..Usage::default()
        };
        assert_eq!(sum, expected);
    }
}
