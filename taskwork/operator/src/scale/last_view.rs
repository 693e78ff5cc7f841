//! The last observed state of the cluster.

use std::sync::{Mutex, MutexGuard, PoisonError};

use taskwork::view::{Content, Event, Snapshot, View};

/// The last observed state of the cluster.
#[derive(Default)]
pub(crate) struct LastView {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    view: View,
    /// Whether the state is complete; `None` until it was first read, or could not be.
    is_whole: Option<bool>,
}

impl LastView {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an observed event.
    pub(crate) fn apply(&self, event: &Event) {
        let mut seen = self.seen();
        match event.content {
            Content::Found => seen.is_whole = Some(true),
            Content::Lost => seen.is_whole = Some(false),
            _ => {}
        }
        seen.view.apply(event);
    }

    /// Returns the cluster, unless its state is incomplete or out of date.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let seen = self.seen();
        let is_current =
            seen.is_whole == Some(true) && seen.view.silent_since_ms().is_none() && seen.view.seq() > 0;
        is_current.then(|| seen.view.snapshot())
    }

    /// Returns whether the cluster is being read for the first time.
    pub(super) fn is_first_read(&self) -> bool {
        self.seen().is_whole.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_is_read_for_the_first_time_until_it_is_known_or_silent() {
        for content in [Content::Found, Content::Lost] {
            let last_view = LastView::default();
            last_view.apply(&Event::of(1, "members/n1", Content::Data(Vec::new())));
            last_view.apply(&Event::tick(1));
            assert!(last_view.is_first_read() && last_view.snapshot().is_none());
            let is_known = content == Content::Found;
            last_view.apply(&Event::of(2, "", content));
            last_view.apply(&Event::tick(2));
            assert_eq!((last_view.is_first_read(), last_view.snapshot().is_some()), (false, is_known));
        }
    }
}
