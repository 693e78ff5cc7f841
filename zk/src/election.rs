//! Leader election, the standard recipe: the lowest number leads, and each watches only the one before it
//! (paper, 3.2).
//!
//! ```text
//!   election/tsp@1.0~n17~0000000003   leads the nodes that run tsp 1.0
//!   election/tsp@1.0~n04~0000000007   watches 3
//!   election/qap@2.1~n11~0000000008   leads the nodes that run qap 2.1
//!   election/tsp@1.0~n29~0000000009   watches 7: when 3 goes, only 7 wakes
//! ```
//!
//! Nodes that run different programs, or versions, have leaders of their own: a leader merges what the tasks
//! have produced, and only the program knows how.

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    release::Release,
    store::{CreateMode, Op, Store, seen},
};

/// A node that stands for election.
pub struct Candidate {
    store: Arc<dyn Store>,
    folder: String,
    /// What the names of those that run the same begin with.
    group: String,
    /// What the names of this node's own candidates begin with.
    mine: String,
    name: String,
}

/// What makes a leader's write fail once it leads no more: it goes into the same multi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    path: String,
}

impl Fence {
    /// Holds while the candidate that was elected is there.
    pub fn check(&self) -> Op {
        Op::Check { path: self.path.clone(), version: None }
    }
}

impl Candidate {
    /// Stands for election.
    ///
    /// # Errors
    /// Whatever the store refuses. If the outcome is unknown it may be called again: a candidate that an
    /// earlier call has left behind is taken up.
    pub async fn enter(
        store: Arc<dyn Store>,
        cluster: &ClusterPaths,
        release: &Release,
        node: &str,
    ) -> Result<Self> {
        let folder = cluster.election();
        let group = format!("{}@{}~", release.program, release.version);
        let mine = format!("{group}{node}~");
        // The node's name is part of the znode's, by which a try whose answer was lost is found again: on
        // whatever server the session is now, which need not have heard of it yet. Two candidates of one
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
    /// [`Error::SessionExpired`] when it stands no more; otherwise whatever the store refuses, and it can be
    /// called again.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing; the candidate stands on.
    pub async fn elected(&mut self) -> Result<Fence> {
        loop {
            let mut names = self.store.children(&self.folder).await?;
            if !names.contains(&self.name) {
                // Whoever lists it lists all that came before it; whoever does not may only be behind.
                self.store.sync(&self.folder).await?;
                names = self.store.children(&self.folder).await?;
            }
            if !names.contains(&self.name) {
                return Err(Error::SessionExpired);
            }
            let rivals = names.into_iter().filter(|name| name.starts_with(&self.group));
            let before =
                rivals.filter(|name| number(name) < number(&self.name)).max_by_key(|name| number(name));
            let Some(before) = before else {
                return Ok(Fence { path: format!("{}/{}", self.folder, self.name) });
            };
            let (stat, gone) = self.store.exists_and_watch(&format!("{}/{before}", self.folder)).await?;
            if stat.is_some() {
                seen(&*self.store, &gone.await)?;
            }
        }
    }
}

impl Candidate {
    /// Stands no more: another one may lead, although this session goes on. Once, however often it is called.
    ///
    /// # Errors
    /// Whatever the store refuses; after a transient error it can be called again.
    pub async fn withdraw(&self) -> Result<()> {
        delete(&*self.store, &format!("{}/{}", self.folder, self.name)).await?;
        // A try to enter whose answer was lost may have left another one behind; it would block whoever comes
        // after it.
        self.store.sync(&self.folder).await?;
        let names = self.store.children(&self.folder).await?;
        for name in names.iter().filter(|name| name.starts_with(&self.mine)) {
            delete(&*self.store, &format!("{}/{name}", self.folder)).await?;
        }
        Ok(())
    }
}

/// Deletes a znode that may be gone.
async fn delete(store: &dyn Store, path: &str) -> Result<()> {
    match store.delete(path, None).await {
        Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The nodes that lead, each with what it runs.
///
/// # Errors
/// Whatever the store refuses.
pub async fn leaders(store: &dyn Store, cluster: &ClusterPaths) -> Result<Vec<(String, String)>> {
    let mut names = store.children(&cluster.election()).await?;
    names.sort_by_key(|name| number(name));
    let mut leaders: Vec<(String, String)> = Vec::new();
    for name in names {
        let mut parts = name.split('~');
        if let (Some(release), Some(node)) = (parts.next(), parts.next())
            && leaders.iter().all(|(known, _)| known != release)
        {
            leaders.push((release.to_owned(), node.to_owned()));
        }
    }
    Ok(leaders)
}

/// The number at the end of a candidate's name. A name without one was not made by a candidate, and never
/// leads.
fn number(name: &str) -> u64 {
    name.rsplit('~').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}
