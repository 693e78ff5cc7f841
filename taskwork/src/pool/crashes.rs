//! The number of nodes lost with a task, and the time after which this number is forgotten.

use std::time::Duration;

use tokio::time::Instant;

/// The time for which a task must run before its crashes are forgotten. If it kills this node later, it is
/// continued from a state written shortly before, so the next run reaches that point sooner.
const SURVIVED_AFTER: Duration = Duration::from_secs(1);

/// The number of consecutive nodes that were lost with a task.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Crashes {
    count: u32,
    /// The start of its current run on this node, if there are crashes and it does not wait.
    since: Option<Instant>,
    /// The time for which it had run before it waited.
    ran: Duration,
}

impl Crashes {
    pub(crate) fn new(count: u32) -> Self {
        Self { count, ..Self::default() }
    }

    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Returns whether there are crashes, and the next one is the last before the task is set aside.
    pub(super) fn may_be_last(self, crashes_max: u32) -> bool {
        self.count > 0 && crashes_max > 0 && self.count.saturating_add(1) >= crashes_max
    }

    /// Returns the crashes of a task that runs from now on, if it has not run before.
    pub(super) fn running(self, now: Instant) -> Self {
        if self.count == 0 {
            return self;
        }
        Self { since: self.since.or(Some(now)), ..self }
    }

    /// Returns the crashes of a task that waits from now on: waiting does not count as running.
    pub(super) fn resting(self, now: Instant) -> Self {
        let ran = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        Self { since: None, ran: self.ran + ran, ..self }
    }

    /// Returns the crashes of a task that was polled now.
    pub(super) fn polled(self, now: Instant) -> Self {
        match self.since {
            Some(since) if self.ran + now.duration_since(since) >= SURVIVED_AFTER => Self::default(),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_forgotten_after_long_running_and_not_after_waiting() {
        let start = Instant::now();
        let crashes = Crashes::new(2);
        assert_eq!(crashes.polled(start + 2 * SURVIVED_AFTER).count(), 2, "it has not run");
        let crashes = crashes.running(start);
        let half = start + SURVIVED_AFTER / 2;
        let crashes = crashes.polled(half).running(half);
        assert_eq!(crashes.count(), 2, "not for long");
        assert_eq!(crashes.polled(start + SURVIVED_AFTER).count(), 0);
        let (later, rested) =
            (start + 3 * SURVIVED_AFTER, crashes.resting(half).running(start + 3 * SURVIVED_AFTER));
        assert_eq!(rested.polled(later + SURVIVED_AFTER / 4).count(), 2, "it has waited");
        assert_eq!(rested.polled(later + SURVIVED_AFTER / 2).count(), 0, "it has run for so long altogether");
    }
}
