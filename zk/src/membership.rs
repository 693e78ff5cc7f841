//! Membership: which nodes are there (paper, 3.2 and 3.3).
//!
//! A node creates an ephemeral znode as the last step of its start, when it is ready to serve. All nodes
//! watch the folder with one persistent recursive watch, which delivers increments: *n* nodes that join do
//! not cost *n²* reads. Where events may have been lost (after a reconnect), a new watch is set, because the
//! old one is dead, and then the folder is read once and compared with the known members.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    net::SocketAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::{
    error::{Error, Result},
    job::JobRecord,
    labels::Labels,
    paths::ClusterPaths,
    record,
    store::{CreateMode, Events, Store, WatchEvent, seen},
};

/// What a member publishes about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which is also that of its znode.
    pub node: String,
    /// The address at which it listens; `None` if it does not listen.
    pub address: Option<SocketAddr>,
    /// The SHA-256 of its certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The number of its workers; 0 if it works on no job.
    pub workers: u32,
    /// The memory that it may use, in bytes; 0 if that is not known.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
    /// The program that it runs.
    pub program: String,
    /// The program's version.
    pub program_version: String,
    /// When it started, in milliseconds since 1970 by its own clock.
    pub started_ms: u64,
}

impl Member {
    /// Checks that the node works on jobs like this one.
    ///
    /// # Errors
    /// Why it does not.
    pub fn takes(&self, job: &JobRecord) -> std::result::Result<(), Lacks> {
        if self.runs(job) { self.has(&job.require) } else { Err(Lacks::Release) }
    }

    /// Returns whether the node runs a job's program and version.
    pub fn runs(&self, job: &JobRecord) -> bool {
        (&self.program, &self.program_version) == (&job.program, &job.program_version)
    }

    /// Checks that the node works on those jobs of its release that require these labels.
    ///
    /// # Errors
    /// Why it does not.
    pub fn has(&self, require: &Labels) -> std::result::Result<(), Lacks> {
        if self.workers == 0 {
            return Err(Lacks::Workers);
        }
        let missing = require.missing_from(&self.labels);
        if missing.is_empty() { Ok(()) } else { Err(Lacks::Labels(missing)) }
    }
}

/// Why a node does not work on a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, ThisError)]
pub enum Lacks {
    /// It lacks labels that the job requires.
    #[error("it does not have {0}")]
    Labels(Labels),
    /// It has no workers.
    #[error("it has no workers")]
    Workers,
    /// It runs another program or version.
    #[error("it runs another program or version")]
    Release,
}

/// A change of the membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node has become a member.
    Joined(Member),
    /// The node of this name is no longer a member.
    Left(String),
}

/// Makes a node a member for as long as its session lives.
///
/// # Errors
/// Any error from the store. If the outcome is unknown, it may be called again: an existing member znode
/// with the same content counts as success.
pub async fn join(store: &dyn Store, cluster: &ClusterPaths, member: &Member) -> Result<()> {
    let (path, content) = (cluster.member(&member.node), record::write(member));
    match store.create(&path, &content, CreateMode::Ephemeral).await {
        Ok(_) => Ok(()),
        // Names are unique, so this znode comes from an earlier try whose answer was lost.
        Err(Error::NodeExists { .. }) if store.get(&path).await?.0 == content => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the current members. Unreadable ones are skipped.
///
/// # Errors
/// Any error from the store.
pub async fn list(store: &dyn Store, cluster: &ClusterPaths) -> Result<Vec<Member>> {
    let names = store.children(&cluster.members()).await?;
    let asked: Vec<_> = names.iter().map(|name| store.get(&cluster.member(name))).collect();
    let mut members = Vec::new();
    for (name, answer) in names.iter().zip(asked) {
        match answer.await {
            Ok((content, _)) => match record::read::<Member>(&cluster.member(name), &content) {
                Ok(member) => members.push(member),
                Err(error) => tracing::warn!(%error, "a member that cannot be read is passed over"),
            },
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(members)
}

/// A watch on the members.
pub struct MemberWatch {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    /// `None` while a new watch has to be set.
    events: Option<Box<dyn Events>>,
    known: BTreeSet<String>,
    pending: VecDeque<Change>,
    /// Names whose znodes are to be read.
    unread: BTreeSet<String>,
    rescan: bool,
}

impl MemberWatch {
    /// Begins to watch. The first changes report the members that are already there.
    ///
    /// # Errors
    /// Any error from the store.
    pub async fn open(store: Arc<dyn Store>, cluster: &ClusterPaths) -> Result<Self> {
        // The watch is set before the first read, so that no change is missed.
        let events = store.watch_tree(&cluster.members()).await?;
        Ok(Self {
            store,
            cluster: cluster.clone(),
            events: Some(events),
            known: BTreeSet::new(),
            pending: VecDeque::new(),
            unread: BTreeSet::new(),
            rescan: true,
        })
    }

    /// Returns the next change.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again and continues.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Result<Change> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(change);
            }
            let Some(events) = &mut self.events else {
                // Set before the scan, so that no change is missed. If it fails, or this future is dropped,
                // the next call does it.
                let events = self.store.watch_tree(&self.cluster.members()).await?;
                // This server may be behind the one that reported the known members: a node has not left
                // merely because this server has not heard of it.
                self.store.sync(&self.cluster.members()).await?;
                (self.events, self.rescan) = (Some(events), true);
                continue;
            };
            if self.rescan {
                self.scan().await?;
            } else if let Some(name) = self.unread.first().cloned() {
                self.read(&name).await?;
            } else {
                match events.next().await {
                    WatchEvent::Created(path) => {
                        let name = self.name_of(&path);
                        self.unread.extend(name.filter(|name| !self.known.contains(name)));
                    }
                    WatchEvent::Deleted(path) => {
                        if let Some(name) = self.name_of(&path) {
                            self.gone(name);
                        }
                    }
                    WatchEvent::Rescan => self.events = None,
                    WatchEvent::DataChanged(_) | WatchEvent::ChildrenChanged(_) => {}
                    // A watch can end although its session continues.
                    event @ WatchEvent::Ended => {
                        seen(&*self.store, &event)?;
                        self.events = None;
                    }
                }
            }
        }
    }

    fn name_of(&self, path: &str) -> Option<String> {
        path.strip_prefix(&self.cluster.members())?.strip_prefix('/').map(str::to_owned)
    }

    fn gone(&mut self, name: String) {
        // A node that left before its znode was read may have taken part nevertheless.
        if self.unread.remove(&name) | self.known.remove(&name) {
            self.pending.push_back(Change::Left(name));
        }
    }

    async fn scan(&mut self) -> Result<()> {
        let names: BTreeSet<String> =
            self.store.children(&self.cluster.members()).await?.into_iter().collect();
        let gone: Vec<String> = self.known.difference(&names).cloned().collect();
        for name in gone {
            self.gone(name);
        }
        self.unread = names.difference(&self.known).cloned().collect();
        self.rescan = false;
        Ok(())
    }

    async fn read(&mut self, name: &str) -> Result<()> {
        let path = self.cluster.member(name);
        let content = match self.store.get(&path).await {
            Ok((content, _)) => Some(content),
            Err(Error::NoNode { .. }) => None,
            Err(error) => return Err(error),
        };
        self.unread.remove(name);
        match content.map(|content| record::read::<Member>(&path, &content)) {
            Some(Ok(member)) if member.node == name => {
                self.known.insert(name.to_owned());
                self.pending.push_back(Change::Joined(member));
            }
            Some(Ok(member)) => {
                tracing::warn!(
                    znode = path,
                    says = member.node,
                    "a member under a name not its own is passed over"
                );
            }
            Some(Err(error)) => tracing::warn!(%error, "a member that cannot be read is passed over"),
            None => {}
        }
        Ok(())
    }
}

impl fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberWatch").field("known", &self.known).finish_non_exhaustive()
    }
}
