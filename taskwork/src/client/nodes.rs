//! The nodes of a cluster: finding them, and asking them to leave.

use std::time::Duration;

use rand::Rng as _;
use tokio::time;
use zk::{ClusterPaths, CreateMode, Session, Store, WatchEvent, membership};

use super::{Client, ClientError};
use crate::id::NodeId;

/// The outcome of a request to leave that is sent [at most once](Client::drain_once).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum AskedToLeave {
    /// The node was asked by this request.
    Now,
    /// The node had been asked before, by any client: nothing was changed.
    Before,
}

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
            _ => Err(none(format!("{} nodes are called {beginning}…: use a longer prefix", meant.len()))),
        }
    }

    /// Asks a node to leave after handing over its unfinished tasks. A second request makes it leave
    /// immediately.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long. The request may have been written: repeating it would be a second
    /// request.
    pub async fn drain(&self, node: NodeId) -> Result<(), ClientError> {
        let (path, word) = (&self.cluster().drain(&node.to_string()), &word());
        self.ask(|store| async move { ask_to_leave(&*store, path, word.as_bytes()).await }).await
    }

    /// Asks a node to leave after handing over its unfinished tasks, unless it was asked before. So a request with an
    /// unknown outcome can be repeated.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long. The request may have been written.
    pub async fn drain_once(&self, node: NodeId) -> Result<AskedToLeave, ClientError> {
        let (path, word) = (&self.cluster().drain(&node.to_string()), &word());
        self.ask(|store| async move { ask_to_leave_once(&*store, path, word.as_bytes()).await }).await
    }

    /// Cordons a node: it remains a member, but starts no job, and in the jobs that it works on it takes no tasks from
    /// others. Companions of frameworks, such as those of workflows, continue. Idempotent.
    ///
    /// # Errors
    /// If the node is no member, or ZooKeeper was unavailable for too long.
    pub async fn cordon(&self, node: NodeId) -> Result<(), ClientError> {
        let node = &node.to_string();
        let is_member = self.ask(|store| async move {
            match membership::cordon(&*store, self.cluster(), node).await {
                Err(zk::Error::NoNode { .. }) => Ok(false),
                cordoned => cordoned.map(|()| true),
            }
        });
        if is_member.await? {
            return Ok(());
        }
        let cluster = self.cluster_name();
        let reason = format!(
            "{node} is no node of cluster {cluster}: it has left, or has joined again under another name"
        );
        Err(ClientError::NoNode { reason })
    }

    /// Lets a [cordoned](Self::cordon) node take work again. Idempotent.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long.
    pub async fn uncordon(&self, node: NodeId) -> Result<(), ClientError> {
        let node = &node.to_string();
        self.ask(|store| async move { membership::uncordon(&*store, self.cluster(), node).await }).await
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

/// Returns a word that identifies a request.
fn word() -> String {
    format!("{:016x}", rand::rng().random::<u64>())
}

/// Asks a node to leave unless it was asked before. A request whose answer was lost is recognised by its word.
async fn ask_to_leave_once(store: &dyn Store, path: &str, word: &[u8]) -> zk::Result<AskedToLeave> {
    match store.create(path, word, CreateMode::Persistent).await {
        Ok(_) => Ok(AskedToLeave::Now),
        Err(zk::Error::NodeExists { .. }) => match store.get(path).await {
            Ok((said, _)) if said == word => Ok(AskedToLeave::Now),
            Ok(_) => Ok(AskedToLeave::Before),
            // The node has just left, or this server lags behind: the caller retries.
            Err(zk::Error::NoNode { path }) => Err(zk::Error::Contended { path, tries: 1 }),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Asks a node to leave. The node observes a second request as a change of the znode, and then parks its
/// tasks. Each request has its own word, by which a request whose answer was lost is recognised.
async fn ask_to_leave(store: &dyn Store, path: &str, word: &[u8]) -> zk::Result<()> {
    let asked = match store.get(path).await {
        Ok((said, _)) if said == word => return Ok(()),
        Ok((_, stat)) => store.set(path, word, Some(stat.version)).await.map(drop),
        Err(zk::Error::NoNode { .. }) => store.create(path, word, CreateMode::Persistent).await.map(drop),
        Err(error) => return Err(error),
    };
    match asked {
        // Another client sends a request at the same time, or this server lagged behind: the caller retries.
        Err(zk::Error::BadVersion { path } | zk::Error::NodeExists { path } | zk::Error::NoNode { path }) => {
            Err(zk::Error::Contended { path, tries: 1 })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use zk::{Fate, Faults, MemoryTree, tree::SessionId};

    use super::*;

    const PATH: &str = "/drain";

    /// Loses the answer to the first request of a kind.
    struct Loses(Option<&'static str>);

    impl Faults for Loses {
        fn judge(&mut self, _: SessionId, request: &'static str, _: &str) -> Fate {
            match self.0.take_if(|lost| *lost == request) {
                Some(_) => Fate::LostAfter,
                None => Fate::Answered,
            }
        }
    }

    #[tokio::test]
    async fn drain_once_repeated_after_lost_answer_asks_once() {
        let tree = MemoryTree::new();
        tree.set_faults(Loses(Some("create")));
        let store = tree.connect();
        let ask = |word: &'static str| {
            let store = std::sync::Arc::clone(&store);
            async move { ask_to_leave_once(&*store, PATH, word.as_bytes()).await }
        };
        assert_eq!(ask("a").await, Err(zk::Error::ConnectionLost));
        assert_eq!(ask("a").await, Ok(AskedToLeave::Now), "the same request, repeated");
        assert_eq!(ask("b").await, Ok(AskedToLeave::Before), "another one changes nothing");
        let (said, stat) = store.get(PATH).await.unwrap();
        assert_eq!((said.as_slice(), stat.version), (&b"a"[..], 0), "the node sees one request");
        // An explicit second request is sent.
        ask_to_leave(&*store, PATH, b"c").await.unwrap();
        assert_eq!(store.get(PATH).await.unwrap().1.version, 1);
    }
}
