//! When each znode was last changed, as places in the log: a watch that is set anew tells its client what it
//! has missed.

use std::collections::HashMap;

use zk::{
    WatchEvent,
    tree::{Fired, WatchKind},
};

/// Every znode that there ever was, with its changes.
#[derive(Debug, Default)]
pub(super) struct Stamps(HashMap<String, Stamp>);

#[derive(Debug, Default)]
struct Stamp {
    /// Entries of the log that created, set or deleted it.
    data: Vec<u64>,
    /// Entries that created or deleted a child of it.
    children: Vec<u64>,
}

/// How many changes of a znode are kept before those are dropped that say nothing any more.
const KEPT_MAX: usize = 16;

impl Stamps {
    /// Notes what an entry of the log has changed. `everywhere` is the last that every replica has applied.
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

    /// Whether a replica that has applied so much has seen a change that a client has not which was shown so
    /// much.
    pub(super) fn has_changed(&self, path: &str, kind: WatchKind, shown: u64, applied: u64) -> bool {
        let Some(stamp) = self.0.get(path) else { return false };
        let entries = if kind == WatchKind::Data { &stamp.data } else { &stamp.children };
        entries.iter().any(|&entry| shown < entry && entry <= applied)
    }
}

fn push(entries: &mut Vec<u64>, entry: u64, everywhere: u64) {
    if entries.len() >= KEPT_MAX {
        // Of those that all have applied the last says it all.
        let past = entries.iter().filter(|&&entry| entry <= everywhere).count();
        entries.drain(..past.saturating_sub(1));
    }
    entries.push(entry);
}
