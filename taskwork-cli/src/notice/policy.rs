//! How much time a notice leaves, and what follows from it. Pure.
//!
//! A notice without a plan, such as that of a cloud, lets the node leave at once: such notices are best effort, and
//! machines have gone long before the time that was said. A planned end is known for hours, so the node works until
//! just before it.

use std::time::{Duration, SystemTime};

/// When a machine goes, as its source says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// At a time.
    At(SystemTime),
    /// After a time, counted from when it was read.
    In(Duration),
    /// It does not say.
    Unsaid,
}

/// When something planned ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    In(Duration),
    Never,
    /// It has ended already, by a clock that cannot be right.
    Unclear,
}

/// The present time by a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// That of the source, by which it also says when the machine goes.
    Theirs(SystemTime),
    /// That of this machine, which may be wrong.
    Ours(SystemTime),
}

/// The time that is taken to be left if it is not known: the least that a cloud promises.
pub(super) const UNSAID: Duration = Duration::from_secs(30);

/// The time after a drain until the process has ended: to give up its session, and to be noticed by who waits for it.
const FAREWELL: Duration = Duration::from_secs(3);

/// The least time for a drain, even if no time is left: the machine may go later than was said.
const DRAIN_MIN: Duration = Duration::from_secs(1);

/// The time from which on something planned counts as having no end.
const NEVER: Duration = Duration::from_secs(366 * 86_400);

impl Clock {
    pub(super) fn ours() -> Self {
        Self::Ours(SystemTime::now())
    }

    /// Returns the time that is left.
    pub(super) fn left(self, when: When) -> Duration {
        match (when, self) {
            (When::In(left), _) => left,
            (When::Unsaid, _) => UNSAID,
            (When::At(at), Self::Theirs(now)) => at.duration_since(now).unwrap_or_default(),
            // In the past: this machine's clock is ahead, since nobody gives a notice of what has been.
            (When::At(at), Self::Ours(now)) => at.duration_since(now).unwrap_or(UNSAID),
        }
    }

    /// Returns when something ends that is planned for a time.
    pub(super) fn planned(self, at: SystemTime) -> Ends {
        let (Self::Theirs(now) | Self::Ours(now)) = self;
        match at.duration_since(now) {
            Ok(left) if left >= NEVER => Ends::Never,
            Ok(left) => Ends::In(left),
            Err(_) => Ends::Unclear,
        }
    }
}

/// Returns the deadline of a drain for which this time is left, and never more than `most`. It is at least half of
/// what is left.
pub(crate) fn deadline(left: Duration, most: Duration) -> Duration {
    let until_farewell = left.saturating_sub(FAREWELL).max(left / 2);
    until_farewell.max(DRAIN_MIN).min(most)
}

/// Returns the time that a node wants to have before a planned end, if its drain may take so long.
pub(crate) fn lead(most: Duration) -> Duration {
    most + FAREWELL
}

/// Returns after which time a node begins to leave that has a planned end. It works for at least half of the time.
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
    fn the_deadline_is_before_the_end_and_at_most_as_configured() {
        for (left, expected) in [(120, 30), (33, 30), (30, 27), (15, 12), (6, 3), (4, 2), (2, 1), (0, 1)] {
            assert_eq!(deadline(s(left), MOST), s(expected), "{left} s left");
        }
        assert_eq!(deadline(s(120), s(5)), s(5));
        assert_eq!(deadline(s(0), Duration::from_millis(200)), Duration::from_millis(200));
        assert_eq!(deadline(Duration::MAX, MOST), MOST);
    }

    #[test]
    fn the_source_tells_the_time_by_its_own_clock() {
        let when = When::At(noon() + s(90));
        assert_eq!(Clock::Theirs(noon()).left(when), s(90));
        assert_eq!(Clock::Theirs(noon() + s(80)).left(when), s(10));
        assert_eq!(Clock::Theirs(noon() + HOUR).left(when), s(0), "it goes at this moment");
    }

    #[test]
    fn a_clock_an_hour_off_does_not_end_a_node_in_a_hurry() {
        let when = When::At(noon() + s(90));
        assert_eq!(Clock::Ours(noon() + HOUR).left(when), UNSAID);
        // An hour behind: more seems to be left than is, but the configured deadline is the most.
        assert_eq!(deadline(Clock::Ours(noon() - HOUR).left(when), MOST), MOST);
        assert_eq!(Clock::Ours(noon()).left(When::Unsaid), UNSAID);
    }

    #[test]
    fn a_planned_end_is_met_just_in_time() {
        assert_eq!(begins_in(HOUR, lead(MOST)), s(3600 - 33));
        assert_eq!(begins_in(s(40), lead(MOST)), s(20), "otherwise it would hardly work at all");
        assert_eq!(Clock::Ours(noon()).planned(noon() + HOUR), Ends::In(HOUR));
        assert_eq!(Clock::Ours(noon()).planned(noon() + 400 * 24 * HOUR), Ends::Never);
        assert_eq!(Clock::Ours(noon()).planned(noon() - HOUR), Ends::Unclear);
    }
}
