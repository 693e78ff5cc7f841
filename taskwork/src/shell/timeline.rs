//! A node's events in a job, for later display.

use std::sync::{Mutex, PoisonError};

use zk::figures::{EventKind, TimelineEvent};

use super::clock::unix_ms;

/// A bounded list of a node's events in a job.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Vec<TimelineEvent>>);

/// The maximum number of events. Beyond it, the oldest half and the latest events are kept.
const EVENTS_MAX: usize = 64;

impl Timeline {
    /// Records an event now.
    pub(crate) fn note(&self, kind: EventKind, detail: impl Into<String>) {
        self.note_at(unix_ms(), kind, detail);
    }

    pub(crate) fn note_at(&self, at_ms: u64, kind: EventKind, detail: impl Into<String>) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= EVENTS_MAX {
            events.remove(EVENTS_MAX / 2);
        }
        events.push(TimelineEvent { at_ms, kind, detail: detail.into() });
    }

    pub(crate) fn all(&self) -> Vec<TimelineEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_is_bounded_and_keeps_its_first_and_last_events() {
        let timeline = Timeline::default();
        for at in 0..1000 {
            timeline.note_at(at, EventKind::Improved, "");
        }
        let kept: Vec<u64> = timeline.all().iter().map(|event| event.at_ms).collect();
        assert_eq!((kept.len(), kept[0], kept[31], kept[63]), (EVENTS_MAX, 0, 31, 999));
    }
}
