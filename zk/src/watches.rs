//! The watches of a session with a ZooKeeper.
//!
//! After a reconnect the crate (0.11.2) does not register persistent watches again: of the five lists of
//! watches it sends only the first three. Persistent watches would miss the events during the disconnection
//! in any case (ZOOKEEPER-4698). So a persistent watch reports `Rescan` when its session is connected again
//! and is dead from then on; the observer sets a new one. The old one may be dropped before or after: the
//! crate removes a watch from the server only if it has no other one on the path, set or requested.

use std::{future::Future, pin::Pin};

use zookeeper_client::{EventType, OneshotWatcher, PersistentWatcher, WatchedEvent};

use crate::{
    session::{Fate, session_of},
    store::{Events, OneShot, Session, WatchEvent},
};

/// Returns a one-time watch. It reports only the end of its client's session.
pub(crate) fn one_shot(watcher: OneshotWatcher, mut fate: Fate) -> OneShot {
    Box::pin(async move {
        match node_event(watcher.changed().await) {
            Some(event) => event,
            None => fate.decided().await,
        }
    })
}

/// Returns the event of a znode, or `None` if the event concerns the session.
fn node_event(event: WatchedEvent) -> Option<WatchEvent> {
    match event.event_type {
        EventType::NodeCreated => Some(WatchEvent::Created(event.path)),
        EventType::NodeDeleted => Some(WatchEvent::Deleted(event.path)),
        EventType::NodeDataChanged => Some(WatchEvent::DataChanged(event.path)),
        EventType::NodeChildrenChanged => Some(WatchEvent::ChildrenChanged(event.path)),
        EventType::Session => None,
    }
}

/// A persistent watch.
pub(crate) struct ServerEvents {
    watcher: PersistentWatcher,
    fate: Fate,
    hearing: Hearing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    Hears,
    /// The connection on which it was set is lost, and that was reported.
    Deaf,
    /// The client gave up before the watch reported the loss of the connection.
    InDoubt,
    /// The client has given up; the watcher must not be used again.
    Gone,
}

impl ServerEvents {
    /// Creates the stream for a watch that was just set.
    pub(crate) fn new(watcher: PersistentWatcher, fate: Fate) -> Self {
        Self { watcher, fate, hearing: Hearing::Hears }
    }

    async fn event(&mut self) -> WatchEvent {
        loop {
            match self.hearing {
                Hearing::InDoubt => {
                    let decided = self.fate.decided().await;
                    self.hearing = Hearing::Gone;
                    return decided;
                }
                Hearing::Gone => return self.fate.over().await,
                Hearing::Hears | Hearing::Deaf => {}
            }
            let event = self.watcher.changed().await;
            let (state, hears) = (event.session_state, self.hearing == Hearing::Hears);
            match node_event(event) {
                Some(event) if hears => return event,
                None if state.is_terminated() => {
                    self.hearing = if hears { Hearing::InDoubt } else { Hearing::Gone };
                }
                None if hears && session_of(state) == Session::Connected => {
                    self.hearing = Hearing::Deaf;
                    return WatchEvent::Rescan;
                }
                // The event may belong to another watch on the path.
                _ => {}
            }
        }
    }
}

impl Events for ServerEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>> {
        Box::pin(self.event())
    }
}
