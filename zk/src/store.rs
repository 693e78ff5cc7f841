//! The small trait that the recipes need from a tree of znodes.
//!
//! It has ZooKeeper's interface and nothing more, so that every operation exists on a real server. A recipe
//! written against [`Store`] runs over the tree in this process (`memory.rs`) as well as over a server.
//!
//! A request is **sent when the method is called**, not when the answer is first polled. Requests of one
//! session are executed in the order of the calls, so they can be pipelined. Dropping an answer does not
//! cancel the request.

use std::{
    fmt,
    future::{self, Future},
    pin::Pin,
};

use tokio::sync::watch;

use crate::error::{Error, Result};

/// The future answer to a request that is already under way.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The version of a znode's data: 0 at its creation, incremented by each set.
pub type Version = i32;

/// The kind of a new znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Exists until it is deleted.
    Persistent,
    /// Exists until it is deleted; an increasing number is appended to its name.
    PersistentSequential,
    /// Exists as long as the session that created it.
    Ephemeral,
    /// Exists as long as the session that created it; an increasing number is appended to its name.
    EphemeralSequential,
}

/// The metadata of a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// The version of the data.
    pub version: Version,
    /// The number of children.
    pub children: u32,
    /// The size of its data, in bytes.
    pub bytes: usize,
    /// The session that an ephemeral znode belongs to; 0 for a persistent one.
    pub ephemeral_owner: i64,
    /// When the data was set, in milliseconds since 1970 by the server's clock; 0 where the tree has no
    /// clock.
    pub modified_ms: u64,
}

/// One operation of a multi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a znode.
    Create {
        /// Its path; the parent must exist.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// The kind of znode.
        mode: CreateMode,
    },
    /// Replaces the data of a znode.
    Set {
        /// The path of the znode.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// The version that it must have; `None` accepts any.
        version: Option<Version>,
    },
    /// Deletes a znode without children.
    Delete {
        /// The path of the znode.
        path: String,
        /// The version that it must have; `None` accepts any.
        version: Option<Version>,
    },
    /// Fails the multi unless the znode exists and has this version.
    Check {
        /// The path of the znode.
        path: String,
        /// The version that it must have; `None` only requires that it exists.
        version: Option<Version>,
    },
}

impl Op {
    /// Returns the path of the operation.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }
}

/// The answer to one operation of a successful multi.
///
/// A create answers with the path alone: a server's stat of a create inside a multi is not reliable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpAnswer {
    /// The path created, with its number if it is sequential.
    Created(String),
    /// The new version.
    Set(Version),
    /// The znode was deleted.
    Deleted,
    /// The check succeeded.
    Checked,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The znode was created.
    Created(String),
    /// The znode was deleted.
    Deleted(String),
    /// The znode's data was set.
    DataChanged(String),
    /// A child of the znode was created or deleted (one-time watches only).
    ChildrenChanged(String),
    /// Events may have been lost (a reconnect, a full queue). It is the last event of a persistent watch: the
    /// observer sets a new watch first, then reads again and compares. After a one-time watch it suffices to
    /// read again.
    Rescan,
    /// The session is over; no more events follow.
    Ended,
}

/// A one-time watch, which resolves at the first change after the read that set it. It survives reconnects:
/// changes during a disconnection are reported afterwards, but not how many there were.
pub type OneShot = Pin<Box<dyn Future<Output = WatchEvent> + Send>>;

/// A persistent recursive watch: every change of the znode and of everything below it, in order, until the
/// connection breaks.
pub trait Events: Send {
    /// Waits for the next event. After [`WatchEvent::Rescan`] the only event is [`WatchEvent::Ended`], which
    /// is returned by every call from then on.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no event.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>>;
}

/// The state of a session as far as the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// Connected to a server.
    Connected,
    /// Not connected; the session and its ephemerals may still exist.
    Disconnected,
    /// Closed, or declared expired by a server. As long as no server answers, expiry is unknown.
    Expired,
}

/// A session on a tree of znodes.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Creates a znode and returns its path, number included.
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String>;
    /// Replaces a znode's data and returns the new version. `None` accepts any version.
    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version>;
    /// Deletes a znode without children. `None` accepts any version.
    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()>;
    /// Reads a znode.
    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)>;
    /// Returns the stat of a znode, or `None` if it does not exist.
    fn exists(&self, path: &str) -> Answer<Option<Stat>>;
    /// Returns the names (not paths) of a znode's children, sorted.
    fn children(&self, path: &str) -> Answer<Vec<String>>;
    /// Executes all operations or none.
    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>>;
    /// Waits until this session's server has caught up with everything committed before the call, and has
    /// executed all earlier requests of this session, answered or not.
    fn sync(&self, path: &str) -> Answer<()>;
    /// Reads a znode and watches for its deletion or the next change of its data.
    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)>;
    /// Returns the stat of a znode and watches for its creation, deletion or next change of data.
    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)>;
    /// Reads the names of a znode's children and watches for the next change among them.
    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)>;
    /// Watches a znode and everything below it. Within one session a path has either this or one-time
    /// watches, never both: on a server the later one silences the earlier.
    ///
    /// The watch does not survive a reconnect. Once the session is connected again, it reports
    /// [`WatchEvent::Rescan`] and then nothing more; the observer sets a new watch before reading again. The
    /// old one may be dropped before or after that.
    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>>;
    /// Checks that a znode that others may have created is not accessible without credentials, if this
    /// session has credentials. Fails with [`Error::Open`] otherwise.
    fn check_access(&self, path: &str) -> Answer<()> {
        let _ = path;
        Box::pin(future::ready(Ok(())))
    }
    /// Returns the state of the session, which can be read or awaited.
    fn session(&self) -> watch::Receiver<Session>;
    /// Ends the session; its ephemerals are deleted at once.
    fn close(&self) -> Answer<()>;
}

/// Checks the event of a watch; returns [`Error::SessionExpired`] if the session is over. A watch that has
/// ended while the session continues may have missed events, so the observer reads again in either case.
pub(crate) fn seen(store: &dyn Store, event: &WatchEvent) -> Result<()> {
    if *event == WatchEvent::Ended && *store.session().borrow() == Session::Expired {
        return Err(Error::SessionExpired);
    }
    Ok(())
}
