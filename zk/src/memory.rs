//! The store over a tree in this process: the embedded default, and the fault injector for tests. A
//! [keeper](crate::tree::Keeper) can make it survive the process, as in `durable/`.

mod events;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, future,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{mpsc, oneshot, watch};

use self::events::MemoryEvents;
use crate::{
    counted::Requests,
    error::{Error, Result},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version, WatchEvent},
    tree::{Fired, Keeper, SessionId, Tree, WatchId, WatchKind},
};

/// The capacity of a persistent watch, in events. Further events are lost, which `Rescan` reports.
pub const EVENTS_MAX: usize = 1024;

/// A tree that sessions within this process share. Clones are handles to the same tree.
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    shared: Arc<Mutex<Shared>>,
}

/// One session on a [`MemoryTree`]. It ends when it is closed or dropped.
#[derive(Debug)]
pub struct MemoryStore {
    tree: MemoryTree,
    session: SessionId,
    state: watch::Receiver<Session>,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is executed and answered.
    Answered,
    /// The connection is lost before it is executed.
    LostBefore,
    /// It is executed, and the connection is lost before the answer arrives.
    LostAfter,
    /// It is executed, and the session reconnects to a server that does not know the change yet, as after
    /// [`fall_behind`](MemoryTree::fall_behind).
    LostBehind,
}

/// Decides the fate of requests, for tests.
pub trait Faults: Send {
    /// Returns the fate of a session's request, given its name, such as `multi`, and the path of its (first)
    /// operation.
    fn judge(&mut self, session: SessionId, request: &'static str, path: &str) -> Fate;
}

/// A one-time watch.
struct OneTime {
    session: SessionId,
    path: String,
    kind: WatchKind,
    /// Whether the znode existed when the watch was set.
    existed: bool,
    sender: oneshot::Sender<WatchEvent>,
}

/// A persistent watch, from the tree's side.
struct Stream {
    session: SessionId,
    path: String,
    sender: mpsc::Sender<WatchEvent>,
}

#[derive(Default)]
struct Shared {
    tree: Tree,
    one_shots: BTreeMap<WatchId, OneTime>,
    /// One-time watches that fired while their session was disconnected.
    unheard: BTreeSet<WatchId>,
    streams: BTreeMap<WatchId, Stream>,
    /// Streams that have lost events.
    behind: BTreeSet<WatchId>,
    sessions: BTreeMap<SessionId, watch::Sender<Session>>,
    /// The trees seen by sessions whose server is behind the others.
    old_views: BTreeMap<SessionId, Tree>,
    faults: Option<Box<dyn Faults>>,
    /// Saves the tree's changes beyond this process.
    keeper: Option<Box<dyn Keeper>>,
    /// Why changes can no longer be saved: the answer to every further request.
    failure: Option<Error>,
    requests: Requests,
}

impl MemoryTree {
    /// Creates an empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a tree whose changes are kept.
    pub(crate) fn kept(tree: Tree, keeper: impl Keeper + 'static) -> Self {
        let shared = Shared { tree, keeper: Some(Box::new(keeper)), ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Starts a session.
    pub fn connect(&self) -> Arc<MemoryStore> {
        let mut shared = self.lock();
        let session = shared.tree.open_session();
        let (sender, state) = watch::channel(Session::Connected);
        shared.sessions.insert(session, sender);
        if shared.failure.is_some() {
            shared.expire(session);
        }
        drop(shared);
        Arc::new(MemoryStore { tree: self.clone(), session, state })
    }

    /// Ends a session, as a server does after the session timeout.
    pub fn expire(&self, session: SessionId) {
        self.lock().expire(session);
    }

    /// Returns why the tree can no longer save its changes, if it is [kept on disk](crate::durable) and
    /// writing has failed: then all sessions are over, and every request is answered with this error.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    /// Disconnects a session from the tree, or reconnects it. Its ephemerals stay. After a reconnect its
    /// one-time watches report the changes; its persistent ones report `Rescan` and are dead, as with a
    /// server.
    pub fn set_connected(&self, session: SessionId, connected: bool) {
        let mut shared = self.lock();
        let Some(state) = shared.sessions.get(&session) else { return };
        state.send_replace(if connected { Session::Connected } else { Session::Disconnected });
        let streams = shared.streams.iter().filter(|(_, stream)| stream.session == session);
        let ids: BTreeSet<WatchId> = streams.map(|(id, _)| *id).collect();
        shared.tree.unwatch(&ids);
        if connected {
            shared.deliver(ids.into_iter().map(|id| (id, WatchEvent::Rescan)).collect());
            shared.report_missed(session);
        }
    }

    /// Moves a session to a server that lags behind the others: it sees the tree as it is now, regardless of
    /// later changes, until it sends a `sync` or one of its own writes is answered. Then its watches report
    /// the differences.
    pub fn fall_behind(&self, session: SessionId) {
        let mut shared = self.lock();
        let view = shared.tree.clone();
        shared.old_views.insert(session, view);
    }

    /// Moves a session to the same server as another one, which may be [behind](Self::fall_behind).
    pub fn join_server_of(&self, session: SessionId, other: SessionId) {
        let mut shared = self.lock();
        let view = shared.view(other).clone();
        shared.old_views.insert(session, view);
    }

    /// Sets the judge of the fate of further requests.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.lock().faults = Some(Box::new(faults));
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> Requests {
        self.lock().requests
    }

    /// Returns every path at or below this one, sorted.
    pub fn paths_below(&self, path: &str) -> Vec<String> {
        let below = |other: &&str| {
            other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.lock().tree.paths().filter(below).map(str::to_owned).collect()
    }

    /// Locks the tree. A poisoned lock is harmless, because only the fault judges of tests panic while they
    /// hold it. The exception is the keeper: if it has panicked, the tree may contain a change that is not
    /// saved.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(|poisoned| {
            let mut shared = poisoned.into_inner();
            if shared.keeper.is_some() && shared.failure.is_none() {
                let (file, reason) = ("the state".to_owned(), "the last write has panicked".to_owned());
                shared.fail(Error::NotKept { file, reason });
            }
            shared
        })
    }
}

impl Shared {
    fn expire(&mut self, session: SessionId) {
        let fired = self.tree.end_session(session);
        self.deliver(fired);
        if let Some(state) = self.sessions.remove(&session) {
            state.send_replace(Session::Expired);
        }
        // Dropping the senders notifies waiting observers that the watch has ended.
        let one_shots = self.one_shots.iter().map(|(id, watch)| (*id, watch.session));
        let streams = self.streams.iter().map(|(id, stream)| (*id, stream.session));
        let mine = one_shots.chain(streams).filter(|(_, owner)| *owner == session);
        let gone: BTreeSet<WatchId> = mine.map(|(id, _)| id).collect();
        self.tree.unwatch(&gone);
        self.one_shots.retain(|id, _| !gone.contains(id));
        self.streams.retain(|id, _| !gone.contains(id));
        self.unheard.retain(|id| !gone.contains(id));
        self.old_views.remove(&session);
    }

    /// Executes the operations of a write, and notifies the observers.
    fn change<T>(
        &mut self,
        perform: impl FnOnce(&mut Tree, &mut Fired, Option<&mut dyn Keeper>) -> Result<T>,
    ) -> Result<T> {
        let mut fired = Vec::new();
        let keeper = self.keeper.as_mut().map(|keeper| &mut **keeper as &mut dyn Keeper);
        let done = perform(&mut self.tree, &mut fired, keeper);
        self.deliver(fired);
        if let Err(error @ Error::NotKept { .. }) = &done {
            self.fail(error.clone());
        }
        done
    }

    /// Rejects all further requests: it is unknown whether the last change is on disk, so reads might return
    /// other data than after a restart.
    fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.expire(session);
        }
    }

    fn deliver(&mut self, fired: Fired) {
        for (id, event) in fired {
            let owner = self.one_shots.get(&id).map(|watch| watch.session);
            let state = owner.and_then(|owner| self.sessions.get(&owner)).map(|state| *state.borrow());
            let is_behind = owner.is_some_and(|owner| self.old_views.contains_key(&owner));
            if state == Some(Session::Disconnected) || is_behind {
                self.unheard.insert(id);
            } else if let Some(watch) = self.one_shots.remove(&id) {
                // The observer may have been dropped.
                let _ = watch.sender.send(event);
            } else if let Some(stream) = self.streams.get(&id) {
                let hears = event == WatchEvent::Rescan || !self.old_views.contains_key(&stream.session);
                let lost = hears && stream.sender.try_send(event).is_err();
                self.behind.extend(lost.then_some(id));
            }
        }
    }
}

impl Shared {
    /// Reports the changes that a reconnected session's one-time watches have missed, as far as they are still
    /// visible.
    fn report_missed(&mut self, session: SessionId) {
        if self.old_views.contains_key(&session) {
            return;
        }
        let of_session = |shared: &Self, id: &WatchId| {
            shared.one_shots.get(id).is_some_and(|watch| watch.session == session)
        };
        let ids: Vec<WatchId> = self.unheard.iter().copied().filter(|id| of_session(self, id)).collect();
        for id in ids {
            self.unheard.remove(&id);
            let Some(watch) = self.one_shots.remove(&id) else { continue };
            let exists = self.tree.exists(session, &watch.path).is_ok_and(|stat| stat.is_some());
            let path = watch.path.clone();
            let event = match (watch.kind, exists) {
                (WatchKind::Children, true) => WatchEvent::ChildrenChanged(path),
                (WatchKind::Data, true) if !watch.existed => WatchEvent::Created(path),
                (WatchKind::Data, true) => WatchEvent::DataChanged(path),
                // The znode was created and deleted in the meantime, which leaves no trace.
                (WatchKind::Data, false) if !watch.existed => {
                    let id = self.tree.watch(&path, WatchKind::Data);
                    self.one_shots.insert(id, watch);
                    continue;
                }
                (_, false) => WatchEvent::Deleted(path),
            };
            // The observer may have been dropped.
            let _ = watch.sender.send(event);
        }
    }

    /// Returns the tree that a session sees.
    fn view(&self, session: SessionId) -> &Tree {
        self.old_views.get(&session).unwrap_or(&self.tree)
    }

    /// Brings the session's server up to date.
    fn catch_up(&mut self, session: SessionId) {
        let Some(old) = self.old_views.remove(&session) else { return };
        let mine = self.one_shots.iter().filter(|(_, watch)| watch.session == session);
        let differs = |watch: &OneTime| old.differs(&self.tree, &watch.path, watch.kind);
        let fired = mine.filter(|(_, watch)| differs(watch)).map(|(id, _)| *id);
        let fired: BTreeSet<WatchId> = fired.collect();
        self.tree.unwatch(&fired);
        self.unheard.extend(fired);
        self.report_missed(session);
        let mine = self.streams.iter().filter(|(_, stream)| stream.session == session);
        let told = mine.flat_map(|(id, stream)| {
            let differences = old.differences(&self.tree, &stream.path);
            differences.into_iter().map(|event| (*id, event))
        });
        let told = told.collect();
        self.deliver(told);
    }
}

impl MemoryStore {
    /// Returns the session's number.
    pub fn id(&self) -> SessionId {
        self.session
    }

    /// Executes a request, unless its fate prevents that.
    fn request<T: Send + 'static>(
        &self,
        name: &'static str,
        path: &str,
        perform: impl FnOnce(&mut Shared, SessionId) -> Result<T>,
    ) -> Answer<T> {
        let mut shared = self.tree.lock();
        if let Some(failure) = &shared.failure {
            return ready(Err(failure.clone()));
        }
        let fate = match *self.state.borrow() {
            Session::Expired => return ready(Err(Error::SessionExpired)),
            Session::Disconnected => Fate::LostBefore,
            Session::Connected => {
                let judge = |faults: &mut Box<dyn Faults>| faults.judge(self.session, name, path);
                shared.faults.as_mut().map_or(Fate::Answered, judge)
            }
        };
        if fate == Fate::LostBefore {
            return ready(Err(Error::ConnectionLost));
        }
        if fate == Fate::LostBehind {
            let view = shared.view(self.session).clone();
            shared.old_views.insert(self.session, view);
        }
        let answer = perform(&mut shared, self.session);
        // Dropping an unused answer may drop a watch, which needs the lock to unregister.
        if fate == Fate::Answered && matches!(name, "create" | "set" | "delete" | "multi") {
            shared.catch_up(self.session);
        }
        drop(shared);
        ready(if fate == Fate::Answered { answer } else { Err(Error::ConnectionLost) })
    }

    fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        path: &str,
        perform: impl FnOnce(&mut Shared, SessionId) -> Result<T>,
    ) -> Answer<T> {
        self.request(name, path, |shared, session| {
            shared.requests.reads += 1;
            perform(shared, session)
        })
    }

    fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        op: &Op,
        answer: impl FnOnce(OpAnswer) -> Option<T>,
    ) -> Answer<T> {
        self.request(name, op.path(), |shared, session| {
            shared.requests.writes += 1;
            let done = shared.change(|tree, fired, keeper| tree.apply_kept(session, op, fired, keeper))?;
            Ok(answer(done).expect("an operation is answered in its own kind"))
        })
    }
}

impl Shared {
    fn one_shot(&mut self, session: SessionId, path: &str, kind: WatchKind) -> OneShot {
        let (sender, receiver) = oneshot::channel();
        let existed = self.view(session).exists(session, path).is_ok_and(|stat| stat.is_some());
        let id = self.tree.watch(path, kind);
        let path = path.to_owned();
        self.one_shots.insert(id, OneTime { session, path, kind, existed, sender });
        Box::pin(async move { receiver.await.unwrap_or(WatchEvent::Ended) })
    }
}

impl Store for MemoryStore {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        let op = Op::Create { path: path.to_owned(), data: data.to_vec(), mode };
        self.write(
            "create",
            &op,
            |answer| if let OpAnswer::Created(path) = answer { Some(path) } else { None },
        )
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        let op = Op::Set { path: path.to_owned(), data: data.to_vec(), version };
        self.write(
            "set",
            &op,
            |answer| if let OpAnswer::Set(version) = answer { Some(version) } else { None },
        )
    }

    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.write("delete", &Op::Delete { path: path.to_owned(), version }, |_| Some(()))
    }

    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.read("get", path, |shared, session| shared.view(session).get(session, path))
    }

    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.read("exists", path, |shared, session| shared.view(session).exists(session, path))
    }

    fn children(&self, path: &str) -> Answer<Vec<String>> {
        self.read("children", path, |shared, session| shared.view(session).children(session, path))
    }

    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let path = ops.first().map_or("/", Op::path).to_owned();
        self.request("multi", &path, |shared, session| {
            let answers = shared.change(|tree, fired, keeper| tree.multi_kept(session, &ops, fired, keeper));
            match &answers {
                Ok(_) => shared.requests.multis += 1,
                Err(_) => shared.requests.failed_multis += 1,
            }
            answers
        })
    }

    fn sync(&self, path: &str) -> Answer<()> {
        self.request("sync", path, |shared, session| {
            shared.catch_up(session);
            Ok(())
        })
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        self.read("get", path, |shared, session| {
            let (data, stat) = shared.view(session).get(session, path)?;
            Ok((data, stat, shared.one_shot(session, path, WatchKind::Data)))
        })
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        self.read("exists", path, |shared, session| {
            let stat = shared.view(session).exists(session, path)?;
            Ok((stat, shared.one_shot(session, path, WatchKind::Data)))
        })
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        self.read("children", path, |shared, session| {
            let names = shared.view(session).children(session, path)?;
            Ok((names, shared.one_shot(session, path, WatchKind::Children)))
        })
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let (tree, path) = (self.tree.clone(), path.to_owned());
        self.request("watch_tree", &path.clone(), |shared, session| {
            let id = shared.tree.watch_tree(&path);
            let (sender, events) = mpsc::channel(EVENTS_MAX);
            shared.streams.insert(id, Stream { session, path, sender });
            Ok(Box::new(MemoryEvents { tree, id, events, is_dead: false }) as Box<dyn Events>)
        })
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.state.clone()
    }

    fn close(&self) -> Answer<()> {
        self.tree.expire(self.session);
        ready(Ok(()))
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.tree.expire(self.session);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("znodes", &self.tree.len())
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

fn ready<T: Send + 'static>(answer: Result<T>) -> Answer<T> {
    Box::pin(future::ready(answer))
}
