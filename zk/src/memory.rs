//! memory
use crate::{
    error::{Error, Result},
    store::*,
    tree::{Fired, SessionId, Tree, WatchId, WatchKind},
};
use std::{
    collections::BTreeMap,
    future,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{mpsc, oneshot, watch};

#[derive(Debug, Default)]
struct Inner {
    tree: Tree,
    once: BTreeMap<WatchId, oneshot::Sender<WatchEvent>>,
    many: BTreeMap<WatchId, mpsc::Sender<WatchEvent>>,
    states: BTreeMap<SessionId, watch::Sender<Session>>,
}
/// tree
#[derive(Debug, Clone, Default)]
pub struct MemoryTree(Arc<Mutex<Inner>>);
/// store
#[derive(Debug)]
pub struct MemoryStore {
    tree: MemoryTree,
    session: SessionId,
    state: watch::Receiver<Session>,
}

impl MemoryTree {
    /// new
    pub fn new() -> Self {
        Self::default()
    }
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// connect
    pub fn connect(&self) -> Arc<MemoryStore> {
        let mut i = self.lock();
        let session = i.tree.open_session();
        let (tx, state) = watch::channel(Session::Connected);
        i.states.insert(session, tx);
        drop(i);
        Arc::new(MemoryStore { tree: self.clone(), session, state })
    }
    /// expire
    pub fn expire(&self, session: SessionId) {
        let mut i = self.lock();
        let f = i.tree.end_session(session);
        i.deliver(f);
        if let Some(s) = i.states.remove(&session) {
            let _ = s.send(Session::Expired);
        }
    }
}
impl Inner {
    fn deliver(&mut self, fired: Fired) {
        for (id, event) in fired {
            if let Some(tx) = self.once.remove(&id) {
                let _ = tx.send(event.clone());
            }
            if let Some(tx) = self.many.get(&id) {
                let _ = tx.try_send(event);
            }
        }
    }
}
fn ready<T: Send + 'static>(r: Result<T>) -> Answer<T> {
    Box::pin(future::ready(r))
}
impl MemoryStore {
    fn apply(&self, op: Op) -> Result<OpAnswer> {
        let mut i = self.tree.lock();
        let mut f = Vec::new();
        let r = i.tree.apply(self.session, &op, &mut f);
        i.deliver(f);
        r
    }
    fn watch(&self, path: &str, kind: WatchKind, i: &mut Inner) -> OneShot {
        let id = i.tree.watch(path, kind);
        let (tx, rx) = oneshot::channel();
        i.once.insert(id, tx);
        Box::pin(async move { rx.await.unwrap_or(WatchEvent::Ended) })
    }
}
impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.tree.expire(self.session);
    }
}
struct MemoryEvents(mpsc::Receiver<WatchEvent>);
impl Events for MemoryEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>> {
        Box::pin(async { self.0.recv().await.unwrap_or(WatchEvent::Ended) })
    }
}
impl Store for MemoryStore {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        ready(
            self.apply(Op::Create { path: path.into(), data: data.into(), mode })
                .map(|a| if let OpAnswer::Created(p) = a { p } else { unreachable!() }),
        )
    }
    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        ready(
            self.apply(Op::Set { path: path.into(), data: data.into(), version })
                .map(|a| if let OpAnswer::Set(p) = a { p } else { unreachable!() }),
        )
    }
    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        ready(self.apply(Op::Delete { path: path.into(), version }).map(|_| ()))
    }
    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        ready(self.tree.lock().tree.get(self.session, path))
    }
    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        ready(self.tree.lock().tree.exists(self.session, path))
    }
    fn children(&self, path: &str) -> Answer<Vec<String>> {
        ready(self.tree.lock().tree.children(self.session, path))
    }
    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let mut i = self.tree.lock();
        let mut f = Vec::new();
        let r = i.tree.multi(self.session, &ops, &mut f);
        i.deliver(f);
        ready(r)
    }
    fn sync(&self, _: &str) -> Answer<()> {
        ready(Ok(()))
    }
    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        let mut i = self.tree.lock();
        let r =
            i.tree.get(self.session, path).map(|(d, s)| (d, s, self.watch(path, WatchKind::Data, &mut i)));
        ready(r)
    }
    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        let mut i = self.tree.lock();
        let r = i.tree.exists(self.session, path).map(|s| (s, self.watch(path, WatchKind::Data, &mut i)));
        ready(r)
    }
    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        let mut i = self.tree.lock();
        let r =
            i.tree.children(self.session, path).map(|s| (s, self.watch(path, WatchKind::Children, &mut i)));
        ready(r)
    }
    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let mut i = self.tree.lock();
        let id = i.tree.watch_tree(path);
        let (tx, rx) = mpsc::channel(4096);
        i.many.insert(id, tx);
        ready(Ok(Box::new(MemoryEvents(rx)) as Box<dyn Events>))
    }
    fn session(&self) -> watch::Receiver<Session> {
        self.state.clone()
    }
    fn close(&self) -> Answer<()> {
        self.tree.expire(self.session);
        ready(Ok(()))
    }
}
#[allow(unused)]
type E = Error;
