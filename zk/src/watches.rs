//! The watches of a session on a ZooKeeper.
//!
//! After a reconnect the crate (0.11.2) does not register persistent watches again: of the five lists of
//! watches it sends the first three alone. They would lose the events of the meantime in any case
//! (ZOOKEEPER-4698). So a persistent watch says `Rescan` when its session is connected again and is dead from
//! then on; a new one is set by whoever watches. The old one may go before or after: the crate takes a watch
//! back at the server only when it has, and awaits, no other on the path.

use std::{future::Future, pin::Pin};

use zookeeper_client::{EventType, OneshotWatcher, PersistentWatcher, WatchedEvent};

use crate::{
    session::{Fate, session_of},
    store::{Events, OneShot, Session, WatchEvent},
};

/// A one-time watch, which hears of the end of its client and of nothing else about it.
pub(crate) fn one_shot(watcher: OneshotWatcher, mut fate: Fate) -> OneShot {
    Box::pin(async move {
        match node_event(watcher.changed().await) {
            Some(event) => event,
            None => fate.decided().await,
        }
    })
}

/// What has happened to a znode; `None` for what has happened to the session.
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
    /// The connection that it was set on is lost, and it has said so.
    Deaf,
    /// The client has given up before it has said so.
    InDoubt,
    /// The client has given up; the watcher must not be asked any more.
    Gone,
}

impl ServerEvents {
    /// A watch that was just set.
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
                // Another watch in the same place may hear of this.
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
