//! Clocks: monotonic time for the protocol, time of day for records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A monotonic clock that counts milliseconds from its creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn now_ms(self) -> u64 {
        millis(self.now())
    }

    /// Returns the instant `after` the start.
    pub(crate) fn instant(self, after: Duration) -> Instant {
        self.0 + after
    }
}

/// Returns the time of day in milliseconds since 1970, for display. No decision depends on it: the clocks of nodes
/// may differ by hours.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
