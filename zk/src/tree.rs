//! The znode tree: a pure data structure without I/O, clock or threads.
//!
//! It executes the requests of sessions one by one as a server does, with the server's errors, and reports
//! which watches have fired. The same calls return the same answers, so a simulated cluster can be replayed.

mod kept;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::kept::{Change, Keeper, Kept};
use crate::{
    error::{Error, Result},
    store::{CreateMode, Op, OpAnswer, Stat, Version, WatchEvent},
};

/// The number of a session; 0 means no session.
pub type SessionId = i64;

/// The number of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(u64);

/// The changes that a one-time watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchKind {
    /// Creation, deletion or change of data.
    Data,
    /// Creation or deletion of a child, or deletion of the znode.
    Children,
}

/// The watches that an operation has fired, with their events, in order.
pub type Fired = Vec<(WatchId, WatchEvent)>;

/// The maximum size of a request, in bytes: just under 1 MiB, as on a server. A larger request would break
/// the connection and lose all pending requests.
pub const REQUEST_BYTES_MAX: usize = (1 << 20) - (4 << 10);
/// The longest chroot, in bytes: it is part of every path, and a transaction has many paths.
pub(crate) const CHROOT_BYTES_MAX: usize = 128;
/// The maximum overhead of an operation, in bytes, in addition to its path and data: headers, lengths, the
/// access list.
const OP_BYTES: usize = 96;

#[derive(Debug, Clone, Default)]
struct Znode {
    data: Vec<u8>,
    version: Version,
    owner: SessionId,
    children: BTreeSet<String>,
    /// The number of the next child, if it is sequential. It counts every child ever created, as on a server,
    /// and never decreases.
    next_number: u32,
}

/// A tree of znodes with its sessions and watches.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: BTreeMap<String, Znode>,
    /// The ephemerals of each session.
    sessions: BTreeMap<SessionId, BTreeSet<String>>,
    next_session: SessionId,
    one_time: BTreeMap<(String, WatchKind), BTreeSet<WatchId>>,
    recursive: BTreeMap<String, BTreeSet<WatchId>>,
    next_watch: u64,
}

/// A completed operation, with the data to undo it.
#[derive(Debug)]
enum Done {
    Created { path: String },
    Set { path: String, data: Vec<u8> },
    Deleted { path: String, node: Znode },
    Checked,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// Creates a tree that consists of the root alone.
    pub fn new() -> Self {
        Self {
            nodes: BTreeMap::from([("/".to_owned(), Znode::default())]),
            sessions: BTreeMap::new(),
            next_session: 1,
            one_time: BTreeMap::new(),
            recursive: BTreeMap::new(),
            next_watch: 0,
        }
    }

    /// Starts a session.
    pub fn open_session(&mut self) -> SessionId {
        let id = self.next_session;
        self.next_session += 1;
        self.sessions.insert(id, BTreeSet::new());
        id
    }

    /// Ends a session and deletes its ephemerals, in the order of their paths.
    pub fn end_session(&mut self, session: SessionId) -> Fired {
        let mut fired = Vec::new();
        for path in self.sessions.remove(&session).unwrap_or_default() {
            if let Ok(done) = self.delete(&path, None) {
                self.fire(&done, &mut fired);
            }
        }
        fired
    }

    /// Reads a znode.
    ///
    /// # Errors
    /// As on a server: the session is over, the path is invalid, or the znode does not exist.
    pub fn get(&self, session: SessionId, path: &str) -> Result<(Vec<u8>, Stat)> {
        self.check_session(session)?;
        let node = self.node(path)?;
        Ok((node.data.clone(), node.stat()))
    }

    /// Returns the stat of a znode, or `None` if it does not exist.
    ///
    /// # Errors
    /// The session is over, or the path is invalid.
    pub fn exists(&self, session: SessionId, path: &str) -> Result<Option<Stat>> {
        self.check_session(session)?;
        check_path(path)?;
        Ok(self.nodes.get(path).map(Znode::stat))
    }

    /// Returns the names of a znode's children, sorted.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn children(&self, session: SessionId, path: &str) -> Result<Vec<String>> {
        self.check_session(session)?;
        Ok(self.node(path)?.children.iter().cloned().collect())
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// As on a server; then nothing has changed.
    pub fn apply(&mut self, session: SessionId, op: &Op, fired: &mut Fired) -> Result<OpAnswer> {
        self.apply_kept(session, op, fired, None)
    }

    /// Executes all operations, each seeing the effects of those before it, or none.
    ///
    /// # Errors
    /// [`Error::Multi`] with the first operation that failed; then nothing has changed.
    pub fn multi(&mut self, session: SessionId, ops: &[Op], fired: &mut Fired) -> Result<Vec<OpAnswer>> {
        self.multi_kept(session, ops, fired, None)
    }

    /// Sets a one-time watch.
    pub fn watch(&mut self, path: &str, kind: WatchKind) -> WatchId {
        let id = self.new_watch();
        self.one_time.entry((path.to_owned(), kind)).or_default().insert(id);
        id
    }

    /// Sets a persistent watch on a znode and everything below it.
    pub fn watch_tree(&mut self, path: &str) -> WatchId {
        let id = self.new_watch();
        self.recursive.entry(path.to_owned()).or_default().insert(id);
        id
    }

    /// Removes watches.
    pub fn unwatch(&mut self, gone: &BTreeSet<WatchId>) {
        let keep = |watches: &mut BTreeSet<WatchId>| {
            watches.retain(|id| !gone.contains(id));
            !watches.is_empty()
        };
        self.one_time.retain(|_, watches| keep(watches));
        self.recursive.retain(|_, watches| keep(watches));
    }

    /// Returns the number of znodes, including the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the root is the only znode.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Returns every path, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Returns whether a watch set on this tree observes a change when the tree becomes `that`.
    pub(crate) fn differs(&self, that: &Self, path: &str, kind: WatchKind) -> bool {
        match (self.nodes.get(path), that.nodes.get(path)) {
            (Some(old), Some(new)) if kind == WatchKind::Children => {
                (&old.children, old.next_number) != (&new.children, new.next_number)
            }
            (Some(old), Some(new)) => {
                (&old.data, old.version, old.owner) != (&new.data, new.version, new.owner)
            }
            (old, new) => old.is_some() != new.is_some(),
        }
    }

    /// Returns the events of a persistent watch when this tree becomes `that`.
    pub(crate) fn differences(&self, that: &Self, path: &str) -> Vec<WatchEvent> {
        let is_below = |other: &&String| {
            other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let gone = self.nodes.keys().rev().filter(|path| !that.nodes.contains_key(*path));
        let gone = gone.filter(is_below).map(|path| WatchEvent::Deleted(path.clone()));
        let here = that.nodes.keys().filter(is_below);
        let here = here.filter(|path| self.differs(that, path, WatchKind::Data)).map(|path| {
            if self.nodes.contains_key(path) {
                WatchEvent::DataChanged(path.clone())
            } else {
                WatchEvent::Created(path.clone())
            }
        });
        gone.chain(here).collect()
    }

    fn new_watch(&mut self) -> WatchId {
        let id = WatchId(self.next_watch);
        self.next_watch += 1;
        id
    }

    fn check_session(&self, session: SessionId) -> Result<()> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(Error::SessionExpired) }
    }

    fn node(&self, path: &str) -> Result<&Znode> {
        check_path(path)?;
        self.nodes.get(path).ok_or_else(|| Error::NoNode { path: path.to_owned() })
    }

    fn checked(&mut self, path: &str, version: Option<Version>) -> Result<&mut Znode> {
        check_path(path)?;
        match self.nodes.get_mut(path) {
            None => Err(Error::NoNode { path: path.to_owned() }),
            Some(node) if version.is_some_and(|version| version != node.version) => {
                Err(Error::BadVersion { path: path.to_owned() })
            }
            Some(node) => Ok(node),
        }
    }

    fn perform(&mut self, session: SessionId, op: &Op) -> Result<(Done, OpAnswer)> {
        match op {
            Op::Create { path, data, mode } => self.create(session, path, data, *mode),
            Op::Set { path, data, version } => {
                let node = self.checked(path, *version)?;
                let before = std::mem::replace(&mut node.data, data.clone());
                node.version += 1;
                let version = node.version;
                Ok((Done::Set { path: path.clone(), data: before }, OpAnswer::Set(version)))
            }
            Op::Delete { path, version } => Ok((self.delete(path, *version)?, OpAnswer::Deleted)),
            Op::Check { path, version } => {
                self.checked(path, *version)?;
                Ok((Done::Checked, OpAnswer::Checked))
            }
        }
    }

    fn create(
        &mut self,
        session: SessionId,
        path: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<(Done, OpAnswer)> {
        let numbered = matches!(mode, CreateMode::PersistentSequential | CreateMode::EphemeralSequential);
        check_new_path(path, mode)?;
        let parent_path = parent_of(path);
        let parent =
            self.nodes.get_mut(parent_path).ok_or_else(|| Error::NoNode { path: path.to_owned() })?;
        if parent.owner != 0 {
            return Err(Error::NoChildrenForEphemerals { path: path.to_owned() });
        }
        let path = if numbered { format!("{path}{:010}", parent.next_number) } else { path.to_owned() };
        if path == "/" || !parent.children.insert(name_of(&path).to_owned()) {
            return Err(Error::NodeExists { path });
        }
        parent.next_number += 1;
        let ephemeral = matches!(mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential);
        let owner = if ephemeral { session } else { 0 };
        if ephemeral {
            self.sessions.entry(session).or_default().insert(path.clone());
        }
        self.nodes.insert(path.clone(), Znode { data: data.to_vec(), owner, ..Znode::default() });
        Ok((Done::Created { path: path.clone() }, OpAnswer::Created(path)))
    }

    fn delete(&mut self, path: &str, version: Option<Version>) -> Result<Done> {
        if !self.checked(path, version)?.children.is_empty() || path == "/" {
            return Err(Error::NotEmpty { path: path.to_owned() });
        }
        let node = self.detach(path);
        Ok(Done::Deleted { path: path.to_owned(), node })
    }

    fn detach(&mut self, path: &str) -> Znode {
        let node = self.nodes.remove(path).unwrap_or_default();
        if let Some(parent) = self.nodes.get_mut(parent_of(path)) {
            parent.children.remove(name_of(path));
        }
        if let Some(ephemerals) = self.sessions.get_mut(&node.owner) {
            ephemerals.remove(path);
        }
        node
    }

    fn undo(&mut self, done: Done) {
        match done {
            Done::Created { path } => {
                self.detach(&path);
                if let Some(parent) = self.nodes.get_mut(parent_of(&path)) {
                    parent.next_number -= 1;
                }
            }
            Done::Set { path, data } => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    node.data = data;
                    node.version -= 1;
                }
            }
            Done::Deleted { path, node } => {
                if let Some(parent) = self.nodes.get_mut(parent_of(&path)) {
                    parent.children.insert(name_of(&path).to_owned());
                }
                if let Some(ephemerals) = self.sessions.get_mut(&node.owner) {
                    ephemerals.insert(path.clone());
                }
                self.nodes.insert(path, node);
            }
            Done::Checked => {}
        }
    }

    fn fire(&mut self, done: &Done, fired: &mut Fired) {
        match done {
            Done::Created { path } => {
                self.fire_one_time(path, WatchKind::Data, &WatchEvent::Created(path.clone()), fired);
                self.fire_children(path, fired);
                self.fire_recursive(path, &WatchEvent::Created(path.clone()), fired);
            }
            Done::Set { path, .. } => {
                let event = WatchEvent::DataChanged(path.clone());
                self.fire_one_time(path, WatchKind::Data, &event, fired);
                self.fire_recursive(path, &event, fired);
            }
            Done::Deleted { path, .. } => {
                let event = WatchEvent::Deleted(path.clone());
                self.fire_one_time(path, WatchKind::Data, &event, fired);
                self.fire_one_time(path, WatchKind::Children, &event, fired);
                self.fire_children(path, fired);
                self.fire_recursive(path, &event, fired);
            }
            Done::Checked => {}
        }
    }

    fn fire_one_time(&mut self, path: &str, kind: WatchKind, event: &WatchEvent, fired: &mut Fired) {
        let watches = self.one_time.remove(&(path.to_owned(), kind)).unwrap_or_default();
        fired.extend(watches.into_iter().map(|id| (id, event.clone())));
    }

    fn fire_children(&mut self, path: &str, fired: &mut Fired) {
        let parent = parent_of(path);
        self.fire_one_time(
            parent,
            WatchKind::Children,
            &WatchEvent::ChildrenChanged(parent.to_owned()),
            fired,
        );
    }

    fn fire_recursive(&self, path: &str, event: &WatchEvent, fired: &mut Fired) {
        if self.recursive.is_empty() {
            return;
        }
        let mut above = path;
        loop {
            let watches = self.recursive.get(above).into_iter().flatten();
            fired.extend(watches.map(|&id| (id, event.clone())));
            if above == "/" {
                return;
            }
            above = parent_of(above);
        }
    }
}

impl Znode {
    fn stat(&self) -> Stat {
        let children = u32::try_from(self.children.len()).unwrap_or(u32::MAX);
        Stat {
            version: self.version,
            children,
            bytes: self.data.len(),
            ephemeral_owner: self.owner,
            modified_ms: 0,
        }
    }
}

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(end) => &path[..end],
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(crate) fn op_bytes(op: &Op) -> usize {
    let data = match op {
        Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
        Op::Delete { .. } | Op::Check { .. } => 0,
    };
    OP_BYTES + op.path().len() + data
}

pub(crate) fn check_size(path: &str, size: usize) -> Result<()> {
    if size <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge { path: path.to_owned(), size, limit: REQUEST_BYTES_MAX })
}

/// Checks that a tree can contain this path; a number is appended to that of a sequential znode.
pub(crate) fn check_new_path(path: &str, mode: CreateMode) -> Result<()> {
    let numbered = matches!(mode, CreateMode::PersistentSequential | CreateMode::EphemeralSequential);
    // The name of a sequential znode may be empty, as its number is appended.
    check_path(if numbered { path.strip_suffix('/').unwrap_or(path) } else { path })
}

pub(crate) fn check_path(path: &str) -> Result<()> {
    let reason = if path == "/" {
        return Ok(());
    } else if !path.starts_with('/') {
        "it does not start with a slash"
    } else if path.ends_with('/') {
        "it ends with a slash"
    } else if path.contains(char::is_control) {
        "it has a control character"
    } else if path[1..].split('/').any(|part| matches!(part, "" | "." | "..")) {
        "a part of it is empty, . or .."
    } else {
        return Ok(());
    };
    Err(Error::InvalidPath { path: path.to_owned(), reason })
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
