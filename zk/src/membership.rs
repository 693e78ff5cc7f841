//! membership
use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    store::{CreateMode, Events, Store, WatchEvent},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
};
/// m
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Member {
    pub node: String,
    pub address: Option<SocketAddr>,
    pub fingerprint: String,
    pub workers: u32,
    pub program: String,
    pub program_version: String,
    pub started_ms: u64,
}
/// c
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Change {
    Joined(Member),
    Left(String),
}
/// j
pub async fn join(s: &dyn Store, c: &ClusterPaths, m: &Member) -> Result<()> {
    s.create(&c.member(&m.node), &serde_json::to_vec(m).unwrap(), CreateMode::Ephemeral).await.map(|_| ())
}
/// r
pub struct Roll {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    events: Box<dyn Events>,
    known: BTreeSet<String>,
    pending: VecDeque<Change>,
    rescan: bool,
}
impl Roll {
    /// o
    pub async fn open(store: Arc<dyn Store>, cluster: &ClusterPaths) -> Result<Self> {
        let events = store.watch_tree(&cluster.members()).await?;
        Ok(Self {
            store,
            cluster: cluster.clone(),
            events,
            known: BTreeSet::new(),
            pending: VecDeque::new(),
            rescan: true,
        })
    }
    /// n
    pub async fn next(&mut self) -> Result<Change> {
        loop {
            if let Some(c) = self.pending.pop_front() {
                return Ok(c);
            }
            if self.rescan {
                self.scan().await?;
                self.rescan = false;
                continue;
            }
            match self.events.next().await {
                WatchEvent::Created(p) | WatchEvent::DataChanged(p) => {
                    let n = p.rsplit('/').next().unwrap_or("").to_owned();
                    if p != self.cluster.members() && !self.known.contains(&n) {
                        self.read(&n).await?;
                    }
                }
                WatchEvent::Deleted(p) => {
                    let n = p.rsplit('/').next().unwrap_or("").to_owned();
                    if self.known.remove(&n) {
                        self.pending.push_back(Change::Left(n));
                    }
                }
                WatchEvent::ChildrenChanged(_) => {}
                WatchEvent::Rescan => self.rescan = true,
                WatchEvent::Ended => return Err(Error::SessionExpired),
            }
        }
    }
    async fn read(&mut self, n: &str) -> Result<()> {
        match self.store.get(&self.cluster.member(n)).await {
            Ok((d, _)) => {
                if let Ok(m) = serde_json::from_slice(&d) {
                    self.known.insert(n.to_owned());
                    self.pending.push_back(Change::Joined(m));
                }
                Ok(())
            }
            Err(Error::NoNode { .. }) => Ok(()),
            Err(e) => {
                self.rescan = true;
                Err(e)
            }
        }
    }
    async fn scan(&mut self) -> Result<()> {
        let names: BTreeSet<String> =
            self.store.children(&self.cluster.members()).await?.into_iter().collect();
        let gone: Vec<_> = self.known.difference(&names).cloned().collect();
        for g in gone {
            self.known.remove(&g);
            self.pending.push_back(Change::Left(g));
        }
        for n in names {
            if !self.known.contains(&n) {
                self.read(&n).await?;
            }
        }
        Ok(())
    }
}
#[allow(unused)]
type B = BTreeMap<u8, u8>;
