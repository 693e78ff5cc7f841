//! The small trait that the recipes need of a tree of znodes.
//!
//! It is ZooKeeper's interface and no more: whatever holds here holds on a real server. A recipe written on
//! [`Store`] runs over the tree in this process (`memory.rs`) and over a server alike.
//!
//! A request is **sent when the method is called**, not when the answer is first polled: requests of one
//! session are executed in the order of the calls, so several of them can be pipelined; dropping an answer
//! does not take the request back.

use std::{
    fmt,
    future::{self, Future},
    pin::Pin,
};

use tokio::sync::watch;

use crate::error::{Error, Result};

/// The answer to come of a request that is already under way.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The version of a znode's data: 0 when created, one more at each set.
pub type Version = i32;

/// How a znode is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Stays until it is deleted; a number that only grows is appended to its name.
    PersistentSequential,
    /// Goes with the session that created it.
    Ephemeral,
    /// Goes with the session that created it; a number that only grows is appended to its name.
    EphemeralSequential,
}

/// What is known of a znode besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// The version of the data.
    pub version: Version,
    /// The number of children.
    pub children: u32,
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
        /// Where; the parent must exist.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// How.
        mode: CreateMode,
    },
    /// Replaces the data of a znode.
    Set {
        /// Which znode.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// The version that it must have; `None` takes any.
        version: Option<Version>,
    },
    /// Deletes a znode without children.
    Delete {
        /// Which znode.
        path: String,
        /// The version that it must have; `None` takes any.
        version: Option<Version>,
    },
    /// Fails the multi unless the znode exists and has this version.
    Check {
        /// Which znode.
        path: String,
        /// The version that it must have; `None` asks only that it exists.
        version: Option<Version>,
    },
}

impl Op {
    /// The path that the operation is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }
}

/// What one operation of a successful multi answered.
///
/// A create answers with the path alone: a server's stat of a create inside a multi is not to be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpAnswer {
    /// The path created, with its number if it is sequential.
    Created(String),
    /// The new version.
    Set(Version),
    /// Done.
    Deleted,
    /// It held.
    Checked,
}

/// What a watch has seen.
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
    /// Events may have been lost (a reconnect, a full queue). A persistent watch that says so says nothing
    /// more: whoever goes on sets a new one first, and then reads again and compares. After a one-time watch
    /// it is enough to read again.
    Rescan,
    /// The session is over; no event will follow.
    Ended,
}

/// A one-time watch: resolves once, at the first change after the read that set it. It outlives the
/// connection: what changed while there was none is told afterwards, though not how often.
pub type OneShot = Pin<Box<dyn Future<Output = WatchEvent> + Send>>;

/// A persistent recursive watch: every change of the znode and of everything below it, in order, until the
/// connection breaks.
pub trait Events: Send {
    /// The next event. After [`WatchEvent::Rescan`] there is none but [`WatchEvent::Ended`]; after that it
    /// answers `Ended` again and again.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no event.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>>;
}

/// The state of a session as far as this side knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// Connected to a server.
    Connected,
    /// Without a server; the session may still be alive, its ephemerals too.
    Disconnected,
    /// Over, for good: closed, or expired as a server says. While no server answers nobody can know, however
    /// long that takes.
    Expired,
}

/// A session on a tree of znodes.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Creates a znode and answers with its path, number included.
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String>;
    /// Replaces a znode's data and answers with the new version. `None` takes any version.
    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version>;
    /// Deletes a znode without children. `None` takes any version.
    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()>;
    /// Reads a znode.
    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)>;
    /// Whether a znode exists.
    fn exists(&self, path: &str) -> Answer<Option<Stat>>;
    /// The names (not paths) of a znode's children, sorted.
    fn children(&self, path: &str) -> Answer<Vec<String>>;
    /// Does all operations or none.
    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>>;
    /// Waits until this session's server has caught up with everything committed before the call, and has
    /// done whatever this session asked for earlier, answered or not.
    fn sync(&self, path: &str) -> Answer<()>;
    /// Reads a znode and watches for its next change of data or its deletion.
    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)>;
    /// Asks for a znode and watches for its creation, deletion or next change of data.
    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)>;
    /// Reads the names of a znode's children and watches for the next change among them.
    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)>;
    /// Watches a znode and everything below it. A path takes either this or one-time watches within one
    /// session, never both: on a server the later one silences the earlier.
    ///
    /// The watch does not outlive the connection. When the session is connected again its stream says
    /// [`WatchEvent::Rescan`] once and then nothing any more; whoever watches sets a new watch before reading
    /// again. The old one may be dropped before that or after.
    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>>;
    /// Whether a znode that others may have made is closed to whoever has no credentials, if this session has
    /// some: otherwise [`Error::Open`].
    fn check_access(&self, path: &str) -> Answer<()> {
        let _ = path;
        Box::pin(future::ready(Ok(())))
    }
    /// The state of the session, to be looked at or waited for.
    fn session(&self) -> watch::Receiver<Session>;
    /// Ends the session; its ephemerals go at once.
    fn close(&self) -> Answer<()>;
}

/// What a watch has seen; [`Error::SessionExpired`] if it will see nothing any more. A watch that has ended
/// while the session goes on may have missed something: whoever asks reads again in either case.
pub(crate) fn seen(store: &dyn Store, event: &WatchEvent) -> Result<()> {
    if *event == WatchEvent::Ended && *store.session().borrow() == Session::Expired {
        return Err(Error::SessionExpired);
    }
    Ok(())
}
