//! The store over a real ZooKeeper, using the crate `zookeeper-client`.
//!
//! The crate reconnects and registers one-time watches again. This module adds guarantees for the recipes: a
//! deadline for every request, errors that state whether the request may have taken effect, an event wherever
//! a watch may have lost some (`watches.rs`), and a session that is kept until a server declares it over
//! (`session.rs`).
//!
//! If a connection breaks between the server's handshake and its first answer, the crate still reports
//! "connected" until it finds the next server. Requests sent in between are queued and may be executed later;
//! their deadline turns them into unknown outcomes.

use std::{
    fmt,
    future::{self, Future},
    sync::{Arc, Mutex, PoisonError},
    task::{self, Poll, Waker},
    time::Duration,
};

use tokio::{sync::watch, time};
use zookeeper_client::{self as zookeeper, Acls, AddWatchMode, Client, MultiWriteError, MultiWriteResult};

use crate::{
    connect::Connect,
    error::{Error, Result},
    losses::Losses,
    session::{Fate, KeptSession},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version},
    tree,
    watches::{self, ServerEvents},
};

/// A session with ZooKeeper. It ends when it is closed or dropped.
pub struct ServerStore {
    session: KeptSession,
    hosts: String,
    chroot: String,
    /// Whether znodes created by others must also be guarded by credentials.
    is_private: bool,
    acls: Acls<'static>,
    request_timeout: Duration,
    losses: Arc<Mutex<Losses>>,
}

impl ServerStore {
    /// Creates a store over the session of a client that has just connected.
    pub(crate) fn new(client: Client, connect: &Connect) -> Self {
        let is_private = connect.credentials.is_some();
        Self {
            hosts: connect.hosts.clone(),
            chroot: client.path().trim_end_matches('/').to_owned(),
            is_private,
            acls: if is_private { Acls::creator_all() } else { Acls::anyone_all() },
            request_timeout: connect.request_timeout,
            losses: Arc::default(),
            session: KeptSession::new(client, connect.clone()),
        }
    }

    /// Returns the client, or an error if the session is over.
    fn client(&self) -> Result<Client> {
        self.session.client().map(|(client, _)| client)
    }

    /// Sends a request immediately, and sets a deadline for its answer.
    fn request<T, F>(&self, path: &str, ask: impl FnOnce(Client) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, zookeeper::Error>> + Send + 'static,
    {
        self.watching(path, |client, _| ask(client))
    }

    /// Sends a request that sets a watch, with the same deadline.
    fn watching<T, F>(&self, path: &str, ask: impl FnOnce(Client, Fate) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, zookeeper::Error>> + Send + 'static,
    {
        let path = path.to_owned();
        // The client accepts some paths that every server refuses, and then reports a missing znode.
        match tree::check_path(&path).and_then(|()| self.session.client()) {
            Ok((client, fate)) => {
                let asked = ask(client, fate);
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

    /// Records the outcome of a pending write. The write may be too large for the server, which then breaks
    /// the connection without an answer.
    fn written<T: Send + 'static>(&self, bytes: usize, asked: Answer<T>) -> Answer<T> {
        let losses = Arc::clone(&self.losses);
        Box::pin(async move {
            let answer = asked.await;
            let note =
                losses.lock().unwrap_or_else(PoisonError::into_inner).note(bytes, answer.as_ref().err());
            if let Some((times, bytes)) = note {
                tracing::warn!(
                    times,
                    bytes,
                    "the connection to ZooKeeper broke each time something of this size was written: is the \
                     servers' jute.maxbuffer smaller than 1 MiB?"
                );
            }
            answer
        })
    }

    /// Returns the size of a request, unless it is too large.
    fn check_size(&self, ops: &[Op]) -> Result<usize> {
        let first = ops.first().map_or("/", Op::path);
        let bytes = ops.iter().map(|op| tree::op_bytes(op) + self.chroot.len()).sum();
        tree::check_size(first, bytes).map(|()| bytes)
    }
}

/// Polls a future once. The client's futures send their request at the first poll at the latest, so the
/// request is sent after this. The caller that awaits the answer polls again, with a waker.
fn sent<T: Send + 'static>(mut asked: Answer<T>) -> Answer<T> {
    match asked.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Box::pin(future::ready(answer)),
        Poll::Pending => asked,
    }
}

impl Store for ServerStore {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        let op = Op::Create { path: path.to_owned(), data: data.to_vec(), mode };
        let sized = self.check_size(std::slice::from_ref(&op));
        let checked = sized.and_then(|bytes| tree::check_new_path(path, mode).map(|()| bytes));
        let (client, bytes) = match checked.and_then(|bytes| Ok((self.client()?, bytes))) {
            Ok(asked) => asked,
            Err(error) => return Box::pin(future::ready(Err(error))),
        };
        let (acls, path, data) = (self.acls, path.to_owned(), data.to_vec());
        let asked = self.in_time(Box::pin(async move {
            let options = mode_of(mode).with_acls(acls);
            match client.create(&path, &data, &options).await {
                Ok((_, sequence)) if is_sequential(mode) => Ok(format!("{path}{sequence}")),
                Ok(_) => Ok(path),
                Err(error) => Err(error_at(&path, &error)),
            }
        }));
        self.written(bytes, asked)
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        let op = Op::Set { path: path.to_owned(), data: data.to_vec(), version };
        // The size is recorded only for requests that are sent.
        let sized = self.check_size(std::slice::from_ref(&op));
        let bytes = match sized.and_then(|bytes| self.client().map(|_| bytes)) {
            Ok(bytes) => bytes,
            Err(error) => return Box::pin(future::ready(Err(error))),
        };
        let asked = self.request(path, |client| {
            let set = client.set_data(path, data, version);
            async move { Ok(set.await?.version) }
        });
        self.written(bytes, asked)
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
        let (client, bytes) = match self.check_size(&ops).and_then(|bytes| Ok((self.client()?, bytes))) {
            Ok(asked) => asked,
            Err(error) => return Box::pin(future::ready(Err(error))),
        };
        let acls = self.acls;
        let asked = self.in_time(Box::pin(async move { transact(&client, &ops, acls).await }));
        self.written(bytes, asked)
    }

    fn sync(&self, path: &str) -> Answer<()> {
        let asked = path.to_owned();
        self.request(path, |client| async move { client.sync(&asked).await })
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        let asked = path.to_owned();
        self.watching(path, |client, fate| async move {
            let (data, stat, watcher) = client.get_and_watch_data(&asked).await?;
            Ok((data, stat_of(&stat), watches::one_shot(watcher, fate)))
        })
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        let asked = path.to_owned();
        self.watching(path, |client, fate| async move {
            let (stat, watcher) = client.check_and_watch_stat(&asked).await?;
            Ok((stat.as_ref().map(stat_of), watches::one_shot(watcher, fate)))
        })
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        let asked = path.to_owned();
        self.watching(path, |client, fate| async move {
            let (mut names, watcher) = client.list_and_watch_children(&asked).await?;
            names.sort_unstable();
            Ok((names, watches::one_shot(watcher, fate)))
        })
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let asked = path.to_owned();
        self.watching(path, |client, fate| async move {
            let watcher = client.watch(&asked, AddWatchMode::PersistentRecursive).await?;
            Ok(Box::new(ServerEvents::new(watcher, fate)) as Box<dyn Events>)
        })
    }

    fn check_access(&self, path: &str) -> Answer<()> {
        if !self.is_private {
            return Box::pin(future::ready(Ok(())));
        }
        let (asked, shown) = (path.to_owned(), format!("{}{path}", self.chroot));
        let acl = self.request(path, |client| async move { Ok(client.get_acl(&asked).await?.0) });
        Box::pin(async move {
            // A password or a certificate identifies a client; the schemes `world` and `ip` do not.
            let is_open = acl.await?.iter().any(|acl| matches!(acl.scheme(), "world" | "ip"));
            if is_open { Err(Error::Open { path: shown }) } else { Ok(()) }
        })
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.session.state()
    }

    fn close(&self) -> Answer<()> {
        self.session.close();
        let (mut session, patience) = (self.session.state(), self.request_timeout);
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
            .field("session", &*self.session.state().borrow())
            .finish_non_exhaustive()
    }
}

async fn transact(client: &Client, ops: &[Op], acls: Acls<'static>) -> Result<Vec<OpAnswer>> {
    let mut writer = client.new_multi_writer();
    for (index, op) in ops.iter().enumerate() {
        // An invalid path is refused here, before anything is sent.
        let added =
            check(op).and_then(|()| add(&mut writer, op, acls).map_err(|error| error_at(op.path(), &error)));
        added.map_err(|cause| Error::Multi { index, cause: Box::new(cause) })?;
    }
    match writer.commit().await {
        Ok(answers) => Ok(answers.into_iter().map(op_answer).collect()),
        Err(MultiWriteError::OperationFailed { index, source }) => {
            let path = ops.get(index).map_or("/", Op::path);
            Err(Error::Multi { index, cause: Box::new(error_at(path, &source)) })
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

const ANY_VERSION: i32 = -1;

fn op_answer(answer: MultiWriteResult) -> OpAnswer {
    match answer {
        MultiWriteResult::Delete => OpAnswer::Deleted,
        // The stat of a create within a multi is not reliable (ZOOKEEPER-4026).
        MultiWriteResult::Create { path, .. } => OpAnswer::Created(path),
        MultiWriteResult::SetData { stat } => OpAnswer::Set(stat.version),
        // A check; no other operation is ever sent.
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
        bytes: usize::try_from(stat.data_length).unwrap_or(0),
        ephemeral_owner: stat.ephemeral_owner,
        modified_ms: u64::try_from(stat.mtime).unwrap_or(0),
    }
}

/// Translates an error of the client. Anything but a server's clear refusal leaves the outcome unknown:
/// requests that are under way when a connection breaks fail with errors of many kinds.
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
        Kind::QuotaExceeded | Kind::MarshallingError | Kind::Unimplemented => {
            Error::Refused { path, reason: error.to_string() }
        }
        // This includes the errors of a client that gives up, which need not end the session (the next
        // request finds out); of a server that is overloaded or has lost its quorum; and codes of newer
        // servers, such as the one for a partly executed request. A failure that may be transient must not
        // fail a job.
        _ => Error::ConnectionLost,
    }
}

#[cfg(test)]
mod tests {
    use zookeeper::Error as Kind;

    use super::*;
    use crate::error::Effect;

    #[test]
    fn client_error_other_than_refusal_is_transient() {
        for passing in [
            Kind::Throttled,
            Kind::NotReadOnly,
            Kind::ConnectionLoss,
            Kind::Timeout,
            Kind::UnexpectedErrorCode(-122),
            // Reported by the client's own clock, without a server.
            Kind::SessionExpired,
            Kind::SessionMoved,
            Kind::ClientClosed,
        ] {
            let error = error_at("/x", &passing);
            assert!(error.is_transient() && error.effect() == Effect::Unknown, "{passing}: {error}");
        }
        for refusal in [Kind::NoNode, Kind::NoAuth, Kind::QuotaExceeded] {
            let error = error_at("/x", &refusal);
            assert!(!error.is_transient() && error.effect() == Effect::None, "{refusal}: {error}");
        }
    }
}
