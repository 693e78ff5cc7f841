//! The znode tree as a pure data structure: no I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    error::{Error, Result},
    store::{CreateMode, Op, OpAnswer, Stat, Version, WatchEvent},
};

/// A session.
pub type SessionId = i64;
/// A watch.
pub type WatchId = u64;

#[derive(Debug, Clone, Default)]
struct Znode {
    data: Vec<u8>,
    version: Version,
    owner: SessionId,
    children: BTreeSet<String>,
    next_sequence: u32,
}

/// What a one-time watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchKind {
    /// data
    Data,
    /// children
    Children,
}

/// tree
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<String, Znode>,
    sessions: BTreeMap<SessionId, BTreeSet<String>>,
    next_session: SessionId,
    one_time: BTreeMap<(String, WatchKind), BTreeSet<WatchId>>,
    recursive: BTreeMap<String, BTreeSet<WatchId>>,
    next_watch: WatchId,
}

/// fired
pub type Fired = Vec<(WatchId, WatchEvent)>;

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(i) => &path[..i],
    }
}
fn name_of(path: &str) -> &str {
    &path[path.rfind('/').map_or(0, |i| i + 1)..]
}

fn check_path(path: &str) -> Result<()> {
    let bad = |reason| Err(Error::InvalidPath { path: path.to_owned(), reason });
    if path == "/" {
        return Ok(());
    }
    if !path.starts_with('/') {
        return bad("it must begin with a slash");
    }
    if path.ends_with('/') {
        return bad("it must not end with a slash");
    }
    if path.chars().any(char::is_control) {
        return bad("control");
    }
    if path[1..].split('/').any(|p| p.is_empty() || p == "." || p == "..") {
        return bad("component");
    }
    Ok(())
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// new
    pub fn new() -> Self {
        Self {
            nodes: [("/".to_owned(), Znode::default())].into(),
            sessions: BTreeMap::new(),
            next_session: 1,
            one_time: BTreeMap::new(),
            recursive: BTreeMap::new(),
            next_watch: 0,
        }
    }
    /// open
    pub fn open_session(&mut self) -> SessionId {
        let id = self.next_session;
        self.next_session += 1;
        self.sessions.insert(id, BTreeSet::new());
        id
    }
    /// end
    pub fn end_session(&mut self, id: SessionId) -> Fired {
        let mut fired = Vec::new();
        for path in self.sessions.remove(&id).unwrap_or_default() {
            let _ = self.do_delete(&path, None, &mut fired);
        }
        fired
    }
    fn live(&self, s: SessionId) -> Result<()> {
        if self.sessions.contains_key(&s) { Ok(()) } else { Err(Error::SessionExpired) }
    }
    fn node(&self, path: &str) -> Result<&Znode> {
        check_path(path)?;
        self.nodes.get(path).ok_or_else(|| Error::NoNode { path: path.to_owned() })
    }
    /// get
    pub fn get(&self, s: SessionId, path: &str) -> Result<(Vec<u8>, Stat)> {
        self.live(s)?;
        let n = self.node(path)?;
        Ok((n.data.clone(), stat(n)))
    }
    /// exists
    pub fn exists(&self, s: SessionId, path: &str) -> Result<Option<Stat>> {
        self.live(s)?;
        check_path(path)?;
        Ok(self.nodes.get(path).map(stat))
    }
    /// children
    pub fn children(&self, s: SessionId, path: &str) -> Result<Vec<String>> {
        self.live(s)?;
        Ok(self.node(path)?.children.iter().cloned().collect())
    }
    /// watch
    pub fn watch(&mut self, path: &str, kind: WatchKind) -> WatchId {
        let id = self.next_watch;
        self.next_watch += 1;
        self.one_time.entry((path.to_owned(), kind)).or_default().insert(id);
        id
    }
    /// watch tree
    pub fn watch_tree(&mut self, path: &str) -> WatchId {
        let id = self.next_watch;
        self.next_watch += 1;
        self.recursive.entry(path.to_owned()).or_default().insert(id);
        id
    }
    /// apply
    pub fn apply(&mut self, s: SessionId, op: &Op, fired: &mut Fired) -> Result<OpAnswer> {
        self.live(s)?;
        check_path(op.path())?;
        match op {
            Op::Create { path, data, mode } => {
                self.do_create(s, path, data, *mode, fired).map(OpAnswer::Created)
            }
            Op::Set { path, data, version } => {
                self.check_version(path, *version)?;
                let n = self.nodes.get_mut(path).expect("checked");
                n.data.clone_from(data);
                n.version += 1;
                let v = n.version;
                self.fire(path, WatchKind::Data, WatchEvent::DataChanged(path.clone()), fired);
                self.fire_recursive(path, &WatchEvent::DataChanged(path.clone()), fired);
                Ok(OpAnswer::Set(v))
            }
            Op::Delete { path, version } => {
                self.do_delete(path, *version, fired)?;
                Ok(OpAnswer::Deleted)
            }
            Op::Check { path, version } => {
                self.check_version(path, *version)?;
                Ok(OpAnswer::Checked)
            }
        }
    }
    /// multi
    pub fn multi(&mut self, s: SessionId, ops: &[Op], fired: &mut Fired) -> Result<Vec<OpAnswer>> {
        self.live(s)?;
        let (nodes, sessions, one, rec) =
            (self.nodes.clone(), self.sessions.clone(), self.one_time.clone(), self.recursive.clone());
        let mut local = Vec::new();
        let mut answers = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            match self.apply(s, op, &mut local) {
                Ok(a) => answers.push(a),
                Err(e) => {
                    self.nodes = nodes;
                    self.sessions = sessions;
                    self.one_time = one;
                    self.recursive = rec;
                    return Err(Error::Multi { index, source: Box::new(e) });
                }
            }
        }
        fired.extend(local);
        Ok(answers)
    }
    fn check_version(&self, path: &str, version: Option<Version>) -> Result<()> {
        let n = self.node(path)?;
        if version.is_some_and(|v| v != n.version) {
            return Err(Error::BadVersion { path: path.to_owned() });
        }
        Ok(())
    }
    fn do_create(
        &mut self,
        s: SessionId,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        fired: &mut Fired,
    ) -> Result<String> {
        let parent = parent_of(path).to_owned();
        let p = self.nodes.get_mut(&parent).ok_or_else(|| Error::NoNode { path: path.to_owned() })?;
        if p.owner != 0 {
            return Err(Error::NoChildrenForEphemerals { path: path.to_owned() });
        }
        let path = match mode {
            CreateMode::PersistentSequential | CreateMode::EphemeralSequential => {
                let n = p.next_sequence;
                p.next_sequence += 1;
                format!("{path}{n:010}")
            }
            _ => path.to_owned(),
        };
        if !p.children.insert(name_of(&path).to_owned()) {
            return Err(Error::NodeExists { path });
        }
        let owner = if matches!(mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential) {
            self.sessions.get_mut(&s).expect("live").insert(path.clone());
            s
        } else {
            0
        };
        self.nodes.insert(path.clone(), Znode { data: data.to_vec(), owner, ..Znode::default() });
        self.fire(&path, WatchKind::Data, WatchEvent::Created(path.clone()), fired);
        self.fire(&parent, WatchKind::Children, WatchEvent::ChildrenChanged(parent.clone()), fired);
        self.fire_recursive(&path, &WatchEvent::Created(path.clone()), fired);
        Ok(path)
    }
    fn do_delete(&mut self, path: &str, version: Option<Version>, fired: &mut Fired) -> Result<()> {
        self.check_version(path, version)?;
        if !self.node(path)?.children.is_empty() {
            return Err(Error::NotEmpty { path: path.to_owned() });
        }
        let n = self.nodes.remove(path).expect("checked");
        if n.owner != 0 {
            if let Some(o) = self.sessions.get_mut(&n.owner) {
                o.remove(path);
            }
        }
        let parent = parent_of(path).to_owned();
        self.nodes.get_mut(&parent).expect("parent").children.remove(name_of(path));
        self.fire(path, WatchKind::Data, WatchEvent::Deleted(path.to_owned()), fired);
        self.fire(path, WatchKind::Children, WatchEvent::Deleted(path.to_owned()), fired);
        self.fire(&parent, WatchKind::Children, WatchEvent::ChildrenChanged(parent.clone()), fired);
        self.fire_recursive(path, &WatchEvent::Deleted(path.to_owned()), fired);
        Ok(())
    }
    fn fire(&mut self, path: &str, kind: WatchKind, event: WatchEvent, fired: &mut Fired) {
        for id in self.one_time.remove(&(path.to_owned(), kind)).unwrap_or_default() {
            fired.push((id, event.clone()));
        }
    }
    fn fire_recursive(&self, path: &str, event: &WatchEvent, fired: &mut Fired) {
        let mut at = path;
        loop {
            for &id in self.recursive.get(at).into_iter().flatten() {
                fired.push((id, event.clone()));
            }
            if at == "/" {
                break;
            }
            at = parent_of(at);
        }
    }
}
fn stat(n: &Znode) -> Stat {
    Stat {
        version: n.version,
        children: u32::try_from(n.children.len()).unwrap_or(u32::MAX),
        ephemeral_owner: n.owner,
    }
}
