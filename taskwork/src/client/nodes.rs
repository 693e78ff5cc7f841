//! The nodes of a cluster: finding them, and requesting them to leave.

use std::time::Duration;

use rand::Rng as _;
use tokio::time;
use zk::{ClusterPaths, CreateMode, Session, Store, WatchEvent};

use super::{Client, ClientError};
use crate::id::NodeId;

impl Client {
    /// Checks that the cluster exists, without creating anything.
    ///
    /// # Errors
    /// If it does not, or ZooKeeper was unavailable for too long.
    pub async fn check_cluster(&self) -> Result<(), ClientError> {
        if self.ask(|store| async move { store.exists(&self.cluster().jobs()).await }).await?.is_some() {
            return Ok(());
        }
        let known = self.ask(|store| async move {
            match store.children(ClusterPaths::ALL).await {
                Err(zk::Error::NoNode { .. }) => Ok(Vec::new()),
                other => other,
            }
        });
        let known = known.await?;
        Err(ClientError::NoCluster {
            cluster: self.cluster_name().to_owned(),
            hosts: self.hosts().to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        })
    }

    /// Returns the node whose name starts with `beginning`.
    ///
    /// # Errors
    /// If no member, or more than one, has such a name, or ZooKeeper was unavailable for too long.
    pub async fn member(&self, beginning: &str) -> Result<NodeId, ClientError> {
        let names = self.ask(|store| async move { store.children(&self.cluster().members()).await }).await?;
        let meant: Vec<&String> = names.iter().filter(|name| name.starts_with(beginning)).collect();
        let none = |reason: String| ClientError::NoNode { reason };
        match meant.as_slice() {
            [name] => name.parse().map_err(|error| none(format!("{name}: {error}"))),
            [] => Err(none(format!("no node of cluster {} is called {beginning:?}", self.cluster_name()))),
            _ => Err(none(format!("{} nodes are called {beginning}…: say more of the name", meant.len()))),
        }
    }

    /// Asks a node to leave, handing on its unfinished tasks first. On a second request it leaves at
    /// once.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long.
    pub async fn drain(&self, node: NodeId) -> Result<(), ClientError> {
        let (path, word) =
            (&self.cluster().drain(&node.to_string()), &format!("{:016x}", rand::rng().random::<u64>()));
        self.ask(|store| async move { ask_to_leave(&*store, path, word.as_bytes()).await }).await
    }

    /// Waits until a node is no longer a member.
    ///
    /// # Errors
    /// If it is still a member after the timeout, or ZooKeeper was unavailable for too long.
    pub async fn wait_until_left(&self, node: NodeId, timeout: Duration) -> Result<(), ClientError> {
        let member = &self.cluster().member(&node.to_string());
        let waiting = self.ask(|store| async move {
            loop {
                let (there, changed) = store.exists_and_watch(member).await?;
                if there.is_none() {
                    return Ok::<(), zk::Error>(());
                }
                if changed.await == WatchEvent::Ended && *store.session().borrow() == Session::Expired {
                    return Err(zk::Error::SessionExpired);
                }
            }
        });
        time::timeout(timeout, waiting).await.unwrap_or_else(|_| {
            let waited = timeout.as_secs_f64();
            Err(ClientError::TimedOut {
                reason: format!("node {node} has not left within {waited} s; it still may"),
            })
        })
    }
}

/// Asks a node to leave. The node observes a second request as a change of the znode, and then parks its
/// tasks. Therefore each request has its own word, which identifies a request whose answer was lost.
async fn ask_to_leave(store: &dyn Store, path: &str, word: &[u8]) -> zk::Result<()> {
    let asked = match store.get(path).await {
        Ok((said, _)) if said == word => return Ok(()),
        Ok((_, stat)) => store.set(path, word, Some(stat.version)).await.map(drop),
        Err(zk::Error::NoNode { .. }) => store.create(path, word, CreateMode::Persistent).await.map(drop),
        Err(error) => return Err(error),
    };
    match asked {
        // Another client sends a request at the same time, or this server lagged behind: the caller tries
        // again.
        Err(zk::Error::BadVersion { path } | zk::Error::NodeExists { path } | zk::Error::NoNode { path }) => {
            Err(zk::Error::Contended { path, tries: 1 })
        }
        other => other,
    }
}
