//! The observer's side of a persistent watch on the tree in this process.

use std::{future::Future, pin::Pin};

use tokio::sync::mpsc;

use super::MemoryTree;
use crate::{
    store::{Events, WatchEvent},
    tree::WatchId,
};

/// A persistent watch.
pub(super) struct MemoryEvents {
    pub(super) tree: MemoryTree,
    pub(super) id: WatchId,
    pub(super) events: mpsc::Receiver<WatchEvent>,
    /// Whether it has reported `Rescan`.
    pub(super) is_dead: bool,
}

impl Events for MemoryEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>> {
        Box::pin(async {
            while self.is_dead {
                if self.events.recv().await.is_none() {
                    return WatchEvent::Ended;
                }
            }
            let event = match self.events.try_recv() {
                Ok(event) => event,
                // All queued events were delivered; now report that others were lost.
                Err(_) if self.tree.lock().behind.remove(&self.id) => WatchEvent::Rescan,
                Err(_) => self.events.recv().await.unwrap_or(WatchEvent::Ended),
            };
            if event == WatchEvent::Rescan {
                self.is_dead = true;
                self.tree.lock().tree.unwatch(&[self.id].into());
            }
            event
        })
    }
}

impl Drop for MemoryEvents {
    fn drop(&mut self) {
        let mut shared = self.tree.lock();
        shared.streams.remove(&self.id);
        shared.tree.unwatch(&[self.id].into());
    }
}
