//! The store over a real ZooKeeper, by the crate `zookeeper-client`.
//!
//! The crate keeps the session, reconnects and registers watches again; what is added here is what the recipes rely on:
//! a deadline for every request, an error that says whether the request may have happened, and a [`WatchEvent::Rescan`]
//! wherever a watch may have lost events.

use std::{
    fmt,
    future::{self, Future},
    pin::Pin,
    sync::{PoisonError, RwLock},
    task::{self, Poll, Waker},
    time::Duration,
};

use tokio::{sync::watch, time};
use zookeeper_client::{
    self as zookeeper, Acls, AddWatchMode, Client, EventType, MultiWriteError, MultiWriteResult,
    OneshotWatcher, PersistentWatcher, SessionState, WatchedEvent,
};

use crate::{
    connect::Connect,
    error::{Error, Result},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version, WatchEvent},
    tree,
};

/// A session on a ZooKeeper. It ends when it is closed or dropped.
pub struct ServerStore {
    /// `None` once closed.
    client: RwLock<Option<Client>>,
    hosts: String,
    chroot_bytes: usize,
    acls: Acls<'static>,
    request_timeout: Duration,
    session: watch::Receiver<Session>,
}

impl ServerStore {
    /// The session of a client that has just connected.
    pub(crate) fn new(client: Client, connect: &Connect) -> Self {
        let (sender, session) = watch::channel(Session::Connected);
        let mut states = client.state_watcher();
        tokio::spawn(async move {
            loop {
                let state = states.changed().await;
                sender.send_replace(session_of(state));
                if state.is_terminated() {
                    return;
                }
            }
        });
        Self {
            hosts: connect.hosts.clone(),
            chroot_bytes: client.path().len(),
            acls: if connect.credentials.is_some() { Acls::creator_all() } else { Acls::anyone_all() },
            request_timeout: connect.request_timeout,
            client: RwLock::new(Some(client)),
            session,
        }
    }

    /// The client, unless there is no sense in asking it.
    fn client(&self) -> Result<Client> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let client = client.ok_or(Error::SessionExpired)?;
        match session_of(client.state()) {
            Session::Connected => Ok(client),
            // It would keep the request until it is connected again, however long that takes, and do it then.
            Session::Disconnected => Err(Error::ConnectionLost),
            Session::Expired => Err(Error::SessionExpired),
        }
    }

    /// Sends a request now, and gives its answer a deadline.
    fn request<T, F>(&self, path: &str, ask: impl FnOnce(Client) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, zookeeper::Error>> + Send + 'static,
    {
        let path = path.to_owned();
        // The client lets some paths pass that no server takes, and calls it a missing znode then.
        match tree::check_path(&path).and_then(|()| self.client()) {
            Ok(client) => {
                let asked = ask(client);
                self.in_time(Box::pin(async move { asked.await.map_err(|error| error_at(&path, &error)) }))
            }
            Err(error) => Box::pin(future::ready(Err(error))),
        }
    }

    fn in_time<T: Send + 'static>(&self, asked: Answer<T>) -> Answer<T> {
        let (patience, asked) = (self.request_timeout, sent(asked));
        Box::pin(async move {
            let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            time::timeout(patience, asked).await.unwrap_or(Err(Error::TimedOut { waited_ms }))
        })
    }

    fn check_size(&self, ops: &[Op]) -> Result<()> {
        let first = ops.first().map_or("/", Op::path);
        tree::check_size(first, ops.iter().map(|op| tree::op_bytes(op) + self.chroot_bytes).sum())
    }
}

/// Polls a future once. The client's futures send their request at the first poll at the latest, so that the request is on its
/// way after this; whoever awaits the answer polls again, with a waker.
fn sent<T: Send + 'static>(mut asked: Answer<T>) -> Answer<T> {
    match asked.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Box::pin(future::ready(answer)),
        Poll::Pending => asked,
    }
}

impl Store for ServerStore {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        let op = Op::Create { path: path.to_owned(), data: data.to_vec(), mode };
        if let Err(error) = self.check_size(std::slice::from_ref(&op)) {
            return Box::pin(future::ready(Err(error)));
        }
        let client = match tree::check_new_path(path, mode).and_then(|()| self.client()) {
            Ok(client) => client,
            Err(error) => return Box::pin(future::ready(Err(error))),
        };
        let (acls, path, data) = (self.acls, path.to_owned(), data.to_vec());
        self.in_time(Box::pin(async move {
            let options = mode_of(mode).with_acls(acls);
            match client.create(&path, &data, &options).await {
                Ok((_, sequence)) if is_sequential(mode) => Ok(format!("{path}{sequence}")),
                Ok(_) => Ok(path),
                Err(error) => Err(error_at(&path, &error)),
            }
        }))
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        let op = Op::Set { path: path.to_owned(), data: data.to_vec(), version };
        if let Err(error) = self.check_size(std::slice::from_ref(&op)) {
            return Box::pin(future::ready(Err(error)));
        }
        self.request(path, |client| {
            let set = client.set_data(path, data, version);
            async move { Ok(set.await?.version) }
        })
    }

    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.request(path, |client| client.delete(path, version))
    }

    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.request(path, |client| {
            let got = client.get_data(path);
            async move { got.await.map(|(data, stat)| (data, stat_of(&stat))) }
        })
    }

    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.request(path, |client| {
            let asked = client.check_stat(path);
            async move { Ok(asked.await?.as_ref().map(stat_of)) }
        })
    }

    fn children(&self, path: &str) -> Answer<Vec<String>> {
        let asked = path.to_owned();
        self.request(path, |client| async move {
            let mut names = client.list_children(&asked).await?;
            names.sort_unstable();
            Ok(names)
        })
    }

    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let client = match self.check_size(&ops).and_then(|()| self.client()) {
            Ok(client) => client,
            Err(error) => return Box::pin(future::ready(Err(error))),
        };
        let acls = self.acls;
        self.in_time(Box::pin(async move { transact(&client, &ops, acls).await }))
    }

    fn sync(&self, path: &str) -> Answer<()> {
        let asked = path.to_owned();
        self.request(path, |client| async move { client.sync(&asked).await })
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        let asked = path.to_owned();
        self.request(path, |client| async move {
            let (data, stat, watcher) = client.get_and_watch_data(&asked).await?;
            Ok((data, stat_of(&stat), one_shot(watcher)))
        })
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, |client| async move {
            let (stat, watcher) = client.check_and_watch_stat(&asked).await?;
            Ok((stat.as_ref().map(stat_of), one_shot(watcher)))
        })
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, |client| async move {
            let (mut names, watcher) = client.list_and_watch_children(&asked).await?;
            names.sort_unstable();
            Ok((names, one_shot(watcher)))
        })
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let asked = path.to_owned();
        self.request(path, |client| async move {
            let watcher = client.watch(&asked, AddWatchMode::PersistentRecursive).await?;
            Ok(Box::new(ServerEvents { watcher, ended: false }) as Box<dyn Events>)
        })
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.session.clone()
    }

    fn close(&self) -> Answer<()> {
        // The session is closed when its last client is dropped. Requests that are under way hold one each.
        drop(self.client.write().unwrap_or_else(PoisonError::into_inner).take());
        let (mut session, patience) = (self.session.clone(), self.request_timeout);
        Box::pin(async move {
            let ended = session.wait_for(|state| *state == Session::Expired);
            let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            match time::timeout(patience, ended).await {
                Ok(_) => Ok(()),
                Err(_) => Err(Error::TimedOut { waited_ms }),
            }
        })
    }
}

impl fmt::Debug for ServerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerStore")
            .field("hosts", &self.hosts)
            .field("session", &*self.session.borrow())
            .finish_non_exhaustive()
    }
}

/// Does all operations or none.
async fn transact(client: &Client, ops: &[Op], acls: Acls<'static>) -> Result<Vec<OpAnswer>> {
    let mut writer = client.new_multi_writer();
    for (index, op) in ops.iter().enumerate() {
        // What is refused here, an invalid path, is refused before anything is sent.
        let added =
            check(op).and_then(|()| add(&mut writer, op, acls).map_err(|error| error_at(op.path(), &error)));
        added.map_err(|source| Error::Multi { index, source: Box::new(source) })?;
    }
    match writer.commit().await {
        Ok(answers) => Ok(answers.into_iter().map(op_answer).collect()),
        Err(MultiWriteError::OperationFailed { index, source }) => {
            let path = ops.get(index).map_or("/", Op::path);
            Err(Error::Multi { index, source: Box::new(error_at(path, &source)) })
        }
        Err(MultiWriteError::RequestFailed { source }) => {
            Err(error_at(ops.first().map_or("/", Op::path), &source))
        }
    }
}

fn check(op: &Op) -> Result<()> {
    match op {
        Op::Create { path, mode, .. } => tree::check_new_path(path, *mode),
        Op::Set { path, .. } | Op::Delete { path, .. } | Op::Check { path, .. } => tree::check_path(path),
    }
}

fn add(
    writer: &mut zookeeper::MultiWriter<'_>,
    op: &Op,
    acls: Acls<'static>,
) -> std::result::Result<(), zookeeper::Error> {
    match op {
        Op::Create { path, data, mode } => writer.add_create(path, data, &mode_of(*mode).with_acls(acls)),
        Op::Set { path, data, version } => writer.add_set_data(path, data, *version),
        Op::Delete { path, version } => writer.add_delete(path, *version),
        Op::Check { path, version } => writer.add_check_version(path, version.unwrap_or(ANY_VERSION)),
    }
}

/// What a server takes for "whatever version it has".
const ANY_VERSION: i32 = -1;

fn op_answer(answer: MultiWriteResult) -> OpAnswer {
    match answer {
        MultiWriteResult::Delete => OpAnswer::Deleted,
        // The stat of a create within a multi is not to be relied on (ZOOKEEPER-4026).
        MultiWriteResult::Create { path, .. } => OpAnswer::Created(path),
        MultiWriteResult::SetData { stat } => OpAnswer::Set(stat.version),
        // A check; nothing else is ever asked.
        _ => OpAnswer::Checked,
    }
}

fn mode_of(mode: CreateMode) -> zookeeper::CreateMode {
    match mode {
        CreateMode::Persistent => zookeeper::CreateMode::Persistent,
        CreateMode::PersistentSequential => zookeeper::CreateMode::PersistentSequential,
        CreateMode::Ephemeral => zookeeper::CreateMode::Ephemeral,
        CreateMode::EphemeralSequential => zookeeper::CreateMode::EphemeralSequential,
    }
}

fn is_sequential(mode: CreateMode) -> bool {
    matches!(mode, CreateMode::PersistentSequential | CreateMode::EphemeralSequential)
}

fn stat_of(stat: &zookeeper::Stat) -> Stat {
    Stat {
        version: stat.version,
        children: u32::try_from(stat.num_children).unwrap_or(0),
        ephemeral_owner: stat.ephemeral_owner,
        modified_ms: u64::try_from(stat.mtime).unwrap_or(0),
    }
}

fn session_of(state: SessionState) -> Session {
    match state {
        SessionState::SyncConnected => Session::Connected,
        // A server without a quorum takes no writes: to a recipe that is as good as none.
        SessionState::Disconnected | SessionState::ConnectedReadOnly => Session::Disconnected,
        SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => Session::Expired,
    }
}

/// What an error of the client means. Whatever is not a server's clear refusal leaves the outcome unknown: what is under way
/// when a connection breaks fails with errors of many kinds.
fn error_at(path: &str, error: &zookeeper::Error) -> Error {
    use zookeeper::Error as Kind;
    let path = path.to_owned();
    match error {
        Kind::NoNode => Error::NoNode { path },
        Kind::NodeExists => Error::NodeExists { path },
        Kind::BadVersion => Error::BadVersion { path },
        Kind::NotEmpty => Error::NotEmpty { path },
        Kind::NoChildrenForEphemerals => Error::NoChildrenForEphemerals { path },
        Kind::NoAuth | Kind::InvalidAcl | Kind::AuthFailed => Error::NoAuth { path },
        Kind::BadArguments(reason) => Error::InvalidPath { path, reason },
        Kind::SessionExpired | Kind::SessionMoved | Kind::ClientClosed => Error::SessionExpired,
        Kind::QuotaExceeded | Kind::MarshallingError | Kind::Unimplemented => {
            Error::Refused { path, reason: error.to_string() }
        }
        // Among these are a server that is overloaded or has lost its quorum, and codes of newer servers, such as that of a
        // request that was given up half done: what may be better the next time must not fail a job.
        _ => Error::ConnectionLost,
    }
}

fn one_shot(watcher: OneshotWatcher) -> OneShot {
    // A one-time watch hears of the end of its session, and of nothing else about it.
    Box::pin(async move { node_event(watcher.changed().await).unwrap_or(WatchEvent::Ended) })
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
struct ServerEvents {
    watcher: PersistentWatcher,
    ended: bool,
}

impl Events for ServerEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>> {
        Box::pin(async {
            // The watcher panics when it is asked again after its end.
            while !self.ended {
                let event = self.watcher.changed().await;
                let state = event.session_state;
                match node_event(event) {
                    Some(event) => return event,
                    None if state.is_terminated() => self.ended = true,
                    // Events of the time without a connection are lost (ZOOKEEPER-4698).
                    None if session_of(state) == Session::Connected => return WatchEvent::Rescan,
                    None => {}
                }
            }
            WatchEvent::Ended
        })
    }
}

#[cfg(test)]
mod tests {
    use zookeeper::Error as Kind;

    use super::*;
    use crate::error::Effect;

    #[test]
    fn only_a_clear_refusal_is_final() {
        for passing in [
            Kind::Throttled,
            Kind::NotReadOnly,
            Kind::ConnectionLoss,
            Kind::Timeout,
            Kind::UnexpectedErrorCode(-122),
        ] {
            let error = error_at("/x", &passing);
            assert!(error.is_transient() && error.effect() == Effect::Unknown, "{passing}: {error}");
        }
        for refusal in [Kind::NoNode, Kind::NoAuth, Kind::QuotaExceeded, Kind::SessionExpired] {
            let error = error_at("/x", &refusal);
            assert!(!error.is_transient() && error.effect() == Effect::None, "{refusal}: {error}");
        }
    }
}
