//! Membership: the nodes of a cluster (paper, 3.2 and 3.3).
//!
//! A node creates an ephemeral znode as the last step of its start, when it is ready to serve. All nodes
//! watch the folder with one persistent recursive watch, which delivers names: *n* nodes that join do not
//! cost *n²* reads. The records of the first members are read at once, those of others on
//! [request](MemberWatch::want): a node of a large cluster communicates with few others. If events may have
//! been lost (after a reconnect), a new watch is set, because the old one is dead, and then the folder is
//! read once and compared with the known members.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    hash::{DefaultHasher, Hasher as _},
    net::SocketAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::{
    error::{Error, Result},
    job::{BroughtProgram, JobRecord},
    labels::Labels,
    paths::ClusterPaths,
    record,
    store::{Answer, CreateMode, Events, Op, Stat, Store, WatchEvent, seen},
};

/// The content of a znode that is being read.
type Content = Answer<(Vec<u8>, Stat)>;

const READS_AT_ONCE: usize = 16;

/// The program of agents, and the label that distinguishes them from submitters, which provide programs to them. Their
/// version is the [target](BroughtProgram::target) of the programs.
pub const AGENT: &str = "agent";

/// The record that a member publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which is also the name of its znode.
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
    /// The name of its machine, pod or container; empty if that is not known.
    #[serde(default)]
    pub host: String,
    /// The id of its process on this machine; 0 if that is not known.
    #[serde(default)]
    pub pid: u32,
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

    /// Returns whether the node may have provided shared data that is too large to be stored: submitters are
    /// members without workers.
    pub fn may_bring_data(&self, job: &JobRecord) -> bool {
        self.workers == 0 && self.runs(job)
    }

    /// Returns whether it is an agent: a member that starts the programs of jobs.
    pub fn is_agent(&self) -> bool {
        self.program == AGENT && self.labels.get(AGENT).is_some()
    }

    /// Checks that it is an agent, and starts the program of a job.
    ///
    /// # Errors
    /// Why it does not.
    pub fn starts(&self, job: &JobRecord) -> std::result::Result<(), Lacks> {
        let is_its_target = |brought: &BroughtProgram| brought.target == self.program_version;
        if !self.is_agent() || !job.brought.as_ref().is_some_and(is_its_target) {
            return Err(Lacks::Release);
        }
        let missing = job.require.missing_from(&self.labels);
        if missing.is_empty() { Ok(()) } else { Err(Lacks::Labels(missing)) }
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
    /// A node has become a member, or the record of a member that was only named has been read.
    Joined(Member),
    /// The node of this name has become a member. Its record is read on [request](MemberWatch::want).
    Named(String),
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

/// Cordons a member: it starts no job and takes no more tasks until it is [uncordoned](uncordon). Idempotent.
///
/// # Errors
/// [`Error::NoNode`] if the node is not a member; otherwise any error from the store.
pub async fn cordon(store: &dyn Store, cluster: &ClusterPaths, node: &str) -> Result<()> {
    let path = cluster.cordon(node);
    let cordon = Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
    let is_member = Op::Check { path: cluster.member(node), version: None };
    match store.multi(vec![is_member, cordon]).await {
        Ok(_) | Err(Error::NodeExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets a cordoned node take work again. Idempotent.
///
/// # Errors
/// Any error from the store.
pub async fn uncordon(store: &dyn Store, cluster: &ClusterPaths, node: &str) -> Result<()> {
    match store.delete(&cluster.cordon(node), None).await {
        Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Decodes the record of a member, from the content of its znode.
///
/// # Errors
/// [`Error::Garbled`] if the content is not such a record.
pub fn decode(path: &str, content: &[u8]) -> Result<Member> {
    record::read(path, content)
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
                Err(error) => tracing::warn!(%error, "the record of a member cannot be read; it is skipped"),
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
    /// The members that were reported to the caller.
    known: BTreeMap<String, Known>,
    pending: VecDeque<Change>,
    /// The names whose znodes have to be read.
    unread: BTreeSet<String>,
    /// The pending reads, in the order of their requests.
    reading: VecDeque<(String, Content)>,
    rescan: bool,
    /// The number of members up to which every record is read without a request.
    read_max: usize,
    /// A random number that selects these members, if there are more at the start.
    choice: u64,
}

/// The known part of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Name,
    Record,
}

impl MemberWatch {
    /// Starts to watch. The first changes report the existing members.
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
            known: BTreeMap::new(),
            pending: VecDeque::new(),
            unread: BTreeSet::new(),
            reading: VecDeque::new(),
            rescan: true,
            read_max: usize::MAX,
            choice: 0,
        })
    }

    /// Limits the number of members that are read without a request; further ones are only named. Of the
    /// existing members, a random selection is read, depending on `choice`.
    #[must_use]
    pub fn reading_at_most(mut self, members: usize, choice: u64) -> Self {
        (self.read_max, self.choice) = (members, choice);
        self
    }

    /// Requests the record of a member that was only named. It is reported as [`Change::Joined`] or, if it
    /// cannot be read, as [`Change::Left`]. For other nodes this has no effect.
    pub fn want(&mut self, name: &str) {
        if self.known.get(name) == Some(&Known::Name) {
            self.unread.insert(name.to_owned());
        }
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
                // This server may lag behind the one that reported the known members: a node has not left
                // merely because this server does not know it yet.
                self.store.sync(&self.cluster.members()).await?;
                (self.events, self.rescan) = (Some(events), true);
                continue;
            };
            if self.rescan {
                self.scan().await?;
            } else if !self.unread.is_empty() {
                self.read_some().await?;
            } else {
                match events.next().await {
                    WatchEvent::Created(path) => {
                        if let Some(name) = self.name_of(&path) {
                            self.appeared(name);
                        }
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

    fn appeared(&mut self, name: String) {
        if self.known.contains_key(&name) || self.unread.contains(&name) {
            return;
        }
        if self.known.len() + self.unread.len() < self.read_max {
            self.unread.insert(name);
        } else {
            self.known.insert(name.clone(), Known::Name);
            self.pending.push_back(Change::Named(name));
        }
    }

    fn gone(&mut self, name: String) {
        // A node that left before its znode was read may nevertheless have taken part.
        if self.unread.remove(&name) | self.known.remove(&name).is_some() {
            self.pending.push_back(Change::Left(name));
        }
    }

    async fn scan(&mut self) -> Result<()> {
        let names: BTreeSet<String> =
            self.store.children(&self.cluster.members()).await?.into_iter().collect();
        let gone: Vec<String> = self.known.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.gone(name);
        }
        self.unread.retain(|name| names.contains(name));
        let mut names: Vec<String> = names.into_iter().collect();
        if names.len() > self.read_max {
            names.sort_by_cached_key(|name| self.place(name));
        }
        for name in names {
            self.appeared(name);
        }
        self.rescan = false;
        Ok(())
    }

    /// Returns the rank of a member in the random selection.
    fn place(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.choice);
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// Reads records, several at a time.
    async fn read_some(&mut self) -> Result<()> {
        if self.reading.is_empty() {
            for name in self.unread.iter().take(READS_AT_ONCE) {
                self.reading.push_back((name.clone(), self.store.get(&self.cluster.member(name))));
            }
        }
        // If this future is dropped, the answers are awaited by the next call.
        while let Some((_, answer)) = self.reading.front_mut() {
            let answer = answer.await;
            let Some((name, _)) = self.reading.pop_front() else { break };
            let content = match answer {
                Ok((content, _)) => Some(content),
                Err(Error::NoNode { .. }) => None,
                Err(error) => {
                    self.reading.clear();
                    return Err(error);
                }
            };
            self.read(&name, content);
        }
        Ok(())
    }

    fn read(&mut self, name: &str, content: Option<Vec<u8>>) {
        // The node may have left in the meantime.
        if !self.unread.remove(name) {
            return;
        }
        // The node has left; if it was reported, its departure will be too.
        let Some(content) = content else { return };
        let path = self.cluster.member(name);
        match record::read::<Member>(&path, &content) {
            Ok(member) if member.node == name => {
                self.known.insert(name.to_owned(), Known::Record);
                self.pending.push_back(Change::Joined(member));
                return;
            }
            Ok(member) => {
                tracing::warn!(
                    znode = path,
                    says = member.node,
                    "the record of a member has another name than its znode; it is skipped"
                );
            }
            Err(error) => tracing::warn!(%error, "the record of a member cannot be read; it is skipped"),
        }
        if self.known.remove(name).is_some() {
            self.pending.push_back(Change::Left(name.to_owned()));
        }
    }
}

impl fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberWatch").field("known", &self.known).finish_non_exhaustive()
    }
}
