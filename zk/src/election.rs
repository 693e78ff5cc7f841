//! Leader election by the standard recipe: the candidate with the lowest number leads, and each candidate
//! watches only the one before it (paper, 3.2).
//!
//! ```text
//!   election/j-0000000004~n17~0000000003   leads the nodes that work on job 4
//!   election/j-0000000004~n04~0000000007   watches 3
//!   election/j-0000000005~n11~0000000008   leads the nodes that work on job 5
//!   election/j-0000000004~n29~0000000009   watches 7: when 3 goes, only 7 wakes
//! ```
//!
//! Each job has its own leader, one of the nodes that work on it: a leader merges the output of the tasks,
//! and only a node that has opened the job can do that.

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    store::{CreateMode, Op, Store, seen},
};

/// A node's candidacy.
pub struct Candidate {
    store: Arc<dyn Store>,
    folder: String,
    /// The prefix of the names of this job's candidates.
    group: String,
    /// The prefix of the names of this node's own candidates.
    mine: String,
    name: String,
}

/// A check that makes a leader's write fail once it no longer leads. It is part of the same multi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    path: String,
}

impl Fence {
    /// Returns an operation that succeeds as long as the elected candidate exists.
    pub fn check(&self) -> Op {
        Op::Check { path: self.path.clone(), version: None }
    }
}

impl Candidate {
    /// Stands for election as the leader of a job.
    ///
    /// # Errors
    /// Any error from the store. If the outcome is unknown, it can be called again: a candidate left behind
    /// by an earlier call is reused.
    pub async fn enter(store: Arc<dyn Store>, cluster: &ClusterPaths, job: &str, node: &str) -> Result<Self> {
        let folder = cluster.election();
        let group = format!("{job}~");
        let mine = format!("{group}{node}~");
        // The znode's name contains the node's, so that a candidate can be found even if the answer to its
        // creation was lost. The server of the session may lag behind, hence the sync. Two candidates of one
        // session would wait for each other.
        store.sync(&folder).await?;
        let found = store.children(&folder).await?.into_iter().find(|name| name.starts_with(&mine));
        let name = if let Some(name) = found {
            name
        } else {
            let path =
                store.create(&format!("{folder}/{mine}"), b"", CreateMode::EphemeralSequential).await?;
            path.rsplit('/').next().unwrap_or_default().to_owned()
        };
        Ok(Self { store, folder, group, mine, name })
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// [`Error::NoNode`] if the candidate is gone: [enter](Self::enter) another one, unless the session is over.
    /// Otherwise any error from the store; after a transient one the call can be repeated.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing; the candidate stays.
    pub async fn elected(&mut self) -> Result<Fence> {
        loop {
            let mut names = self.store.children(&self.folder).await?;
            if !names.contains(&self.name) {
                // A list that contains it also contains all earlier candidates; a list without it may merely
                // be stale.
                self.store.sync(&self.folder).await?;
                names = self.store.children(&self.folder).await?;
            }
            let path = format!("{}/{}", self.folder, self.name);
            if !names.contains(&self.name) {
                return Err(Error::NoNode { path });
            }
            if number(&self.name) == u64::MAX {
                let reason = "it has no number: the servers have exhausted the sequence numbers".to_owned();
                return Err(Error::Garbled { path, reason });
            }
            let rivals = names.into_iter().filter(|name| name.starts_with(&self.group));
            let before =
                rivals.filter(|name| number(name) < number(&self.name)).max_by_key(|name| number(name));
            let Some(before) = before else {
                return Ok(Fence { path });
            };
            let (stat, gone) = self.store.exists_and_watch(&format!("{}/{before}", self.folder)).await?;
            if stat.is_some() {
                seen(&*self.store, &gone.await)?;
            }
        }
    }
}

impl Candidate {
    /// Withdraws the candidate: another one may lead, although this session continues. Can be called
    /// repeatedly.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    pub async fn withdraw(&self) -> Result<()> {
        delete(&*self.store, &format!("{}/{}", self.folder, self.name)).await?;
        // A call of `enter` whose answer was lost may have left another candidate behind, which would block
        // later candidates.
        self.store.sync(&self.folder).await?;
        let names = self.store.children(&self.folder).await?;
        for name in names.iter().filter(|name| name.starts_with(&self.mine)) {
            delete(&*self.store, &format!("{}/{name}", self.folder)).await?;
        }
        Ok(())
    }
}

/// Deletes a znode that may already be gone.
async fn delete(store: &dyn Store, path: &str) -> Result<()> {
    match store.delete(path, None).await {
        Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the nodes that lead, each with its job.
///
/// # Errors
/// Any error from the store.
pub async fn leaders(store: &dyn Store, cluster: &ClusterPaths) -> Result<Vec<(String, String)>> {
    let mut names = store.children(&cluster.election()).await?;
    names.sort_by_key(|name| number(name));
    let mut leaders: Vec<(String, String)> = Vec::new();
    for name in names {
        let mut parts = name.split('~');
        if let (Some(job), Some(node)) = (parts.next(), parts.next())
            && leaders.iter().all(|(known, _)| known != job)
        {
            leaders.push((job.to_owned(), node.to_owned()));
        }
    }
    Ok(leaders)
}

/// Returns the number at the end of a candidate's name. A name without one was not created by a candidate and
/// never leads.
fn number(name: &str) -> u64 {
    name.rsplit('~').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}
