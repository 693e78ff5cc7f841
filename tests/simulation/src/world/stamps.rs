//! The last changes of each znode, as positions in the log: a watch that is set again reports the changes
//! that its client has missed.

use std::collections::HashMap;

use zk::{
    WatchEvent,
    tree::{Fired, WatchKind},
};

/// Every znode that ever existed, with its changes.
#[derive(Debug, Default)]
pub(super) struct Stamps(HashMap<String, Stamp>);

#[derive(Debug, Default)]
struct Stamp {
    /// The entries of the log that created, set or deleted it.
    data: Vec<u64>,
    /// The entries that created or deleted one of its children.
    children: Vec<u64>,
}

/// The number of changes kept per znode before obsolete ones are dropped.
const KEPT_MAX: usize = 16;

impl Stamps {
    /// Records the changes of an entry of the log. `everywhere` is the last entry that every replica has
    /// applied.
    pub(super) fn note(&mut self, entry: u64, everywhere: u64, changed: &Fired) {
        for (_, event) in changed {
            match event {
                WatchEvent::DataChanged(path) => push(&mut self.of(path).data, entry, everywhere),
                WatchEvent::Created(path) | WatchEvent::Deleted(path) => {
                    push(&mut self.of(path).data, entry, everywhere);
                    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
                    push(&mut self.of(parent).children, entry, everywhere);
                }
                _ => {}
            }
        }
    }

    fn of(&mut self, path: &str) -> &mut Stamp {
        if !self.0.contains_key(path) {
            self.0.insert(path.to_owned(), Stamp::default());
        }
        self.0.get_mut(path).expect("it was put in if it was not there")
    }

    /// Returns whether a replica that has applied the log up to `applied` has seen a change that a client
    /// shown the log up to `shown` has not.
    pub(super) fn has_changed(&self, path: &str, kind: WatchKind, shown: u64, applied: u64) -> bool {
        let Some(stamp) = self.0.get(path) else { return false };
        let entries = if kind == WatchKind::Data { &stamp.data } else { &stamp.children };
        entries.iter().any(|&entry| shown < entry && entry <= applied)
    }
}

fn push(entries: &mut Vec<u64>, entry: u64, everywhere: u64) {
    if entries.len() >= KEPT_MAX {
        // Of the entries that all replicas have applied, the last one suffices.
        let past = entries.iter().filter(|&&entry| entry <= everywhere).count();
        entries.drain(..past.saturating_sub(1));
    }
    entries.push(entry);
}
