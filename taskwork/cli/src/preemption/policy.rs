//! The time left after a notice, and the start of the drain. Pure.
//!
//! After a notice without a plan, such as that of a cloud, the node leaves at once: such notices are best effort, and
//! machines have gone long before the announced time. A planned end is known hours before, so the node works until
//! shortly before it.

use std::time::{Duration, SystemTime};

/// The announced end of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// At a time.
    At(SystemTime),
    /// After a duration, from the time of reading.
    In(Duration),
    /// Not specified.
    Unsaid,
}

/// The time of a planned end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    In(Duration),
    Never,
    /// In the past, by a clock that must be wrong.
    Unclear,
}

/// The present time, with the clock that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// The clock of the source, which the announced time refers to.
    Theirs(SystemTime),
    /// The clock of this machine, which may be wrong.
    Ours(SystemTime),
}

/// The assumed time left if it is not specified: the minimum that clouds promise.
pub(super) const UNSAID: Duration = Duration::from_secs(30);

/// The time between the drain and the exit of the process: to close its session, and for its supervisor to notice.
const FAREWELL: Duration = Duration::from_secs(3);

/// The minimum time for a drain, even if no time is left: the machine may go later than announced.
const DRAIN_MIN: Duration = Duration::from_secs(1);

/// The time above which a planned end is ignored.
const NEVER: Duration = Duration::from_secs(366 * 86_400);

impl Clock {
    pub(super) fn ours() -> Self {
        Self::Ours(SystemTime::now())
    }

    /// Returns the time left.
    pub(super) fn left(self, when: When) -> Duration {
        match (when, self) {
            (When::In(left), _) => left,
            (When::Unsaid, _) => UNSAID,
            (When::At(at), Self::Theirs(now)) => at.duration_since(now).unwrap_or_default(),
            // In the past: notices are always for the future, so this machine's clock is ahead.
            (When::At(at), Self::Ours(now)) => at.duration_since(now).unwrap_or(UNSAID),
        }
    }

    /// Returns the time until a planned end.
    pub(super) fn planned(self, at: SystemTime) -> Ends {
        let (Self::Theirs(now) | Self::Ours(now)) = self;
        match at.duration_since(now) {
            Ok(left) if left >= NEVER => Ends::Never,
            Ok(left) => Ends::In(left),
            Err(_) => Ends::Unclear,
        }
    }
}

/// Returns the deadline of a drain from the time left: at most `most`, and at least half of the time left.
pub(crate) fn deadline(left: Duration, most: Duration) -> Duration {
    let until_farewell = left.saturating_sub(FAREWELL).max(left / 2);
    until_farewell.max(DRAIN_MIN).min(most)
}

/// Returns the time that a node needs before a planned end, from its drain deadline.
pub fn lead(most: Duration) -> Duration {
    most + FAREWELL
}

/// Returns the time after which a node with a planned end starts to leave: at least half of the time left.
pub(super) fn begins_in(left: Duration, lead: Duration) -> Duration {
    left.saturating_sub(lead).max(left / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(30);
    const HOUR: Duration = Duration::from_secs(3600);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + s(1_800_000_000)
    }

    #[test]
    fn deadline_is_before_end_and_at_most_as_configured() {
        for (left, expected) in [(120, 30), (33, 30), (30, 27), (15, 12), (6, 3), (4, 2), (2, 1), (0, 1)] {
            assert_eq!(deadline(s(left), MOST), s(expected), "{left} s left");
        }
        assert_eq!(deadline(s(120), s(5)), s(5));
        assert_eq!(deadline(s(0), Duration::from_millis(200)), Duration::from_millis(200));
        assert_eq!(deadline(Duration::MAX, MOST), MOST);
    }

    #[test]
    fn time_left_is_measured_by_source_clock() {
        let when = When::At(noon() + s(90));
        assert_eq!(Clock::Theirs(noon()).left(when), s(90));
        assert_eq!(Clock::Theirs(noon() + s(80)).left(when), s(10));
        assert_eq!(Clock::Theirs(noon() + HOUR).left(when), s(0), "it goes now");
    }

    #[test]
    fn clock_off_by_an_hour_does_not_shorten_deadline() {
        let when = When::At(noon() + s(90));
        assert_eq!(Clock::Ours(noon() + HOUR).left(when), UNSAID);
        // An hour behind: the time left seems longer, but the configured deadline is the maximum.
        assert_eq!(deadline(Clock::Ours(noon() - HOUR).left(when), MOST), MOST);
        assert_eq!(Clock::Ours(noon()).left(When::Unsaid), UNSAID);
    }

    #[test]
    fn drain_before_planned_end_starts_at_lead_time() {
        assert_eq!(begins_in(HOUR, lead(MOST)), s(3600 - 33));
        assert_eq!(begins_in(s(40), lead(MOST)), s(20), "at least half of the time is for work");
        assert_eq!(Clock::Ours(noon()).planned(noon() + HOUR), Ends::In(HOUR));
        assert_eq!(Clock::Ours(noon()).planned(noon() + 400 * 24 * HOUR), Ends::Never);
        assert_eq!(Clock::Ours(noon()).planned(noon() - HOUR), Ends::Unclear);
    }
}
