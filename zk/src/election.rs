//! Leader election, the standard recipe: the lowest number leads, and each watches only the one before it (paper, 3.2).
//!
//! ```text
//!   election/n-0000000003   leads
//!   election/n-0000000007   watches 3
//!   election/n-0000000008   watches 7: when 3 goes, only 7 wakes
//! ```

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    store::{CreateMode, Op, Session, Store, WatchEvent},
};

/// A node that stands for election.
pub struct Candidate {
    store: Arc<dyn Store>,
    folder: String,
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
    /// Whatever the store refuses. If the outcome is unknown it may be called again: a candidate that an earlier call
    /// has left behind is taken up.
    pub async fn enter(store: Arc<dyn Store>, cluster: &ClusterPaths, node: &str) -> Result<Self> {
        let folder = cluster.election();
        // The node's name is the content, by which a try whose answer was lost is found again.
        for name in store.children(&folder).await? {
            match store.get(&format!("{folder}/{name}")).await {
                Ok((content, _)) if content == node.as_bytes() => return Ok(Self { store, folder, name }),
                Ok(_) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let path =
            store.create(&format!("{folder}/n-"), node.as_bytes(), CreateMode::EphemeralSequential).await?;
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { store, folder, name })
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// [`Error::SessionExpired`] when it stands no more; otherwise whatever the store refuses, and it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing; the candidate stands on.
    pub async fn elected(&mut self) -> Result<Fence> {
        loop {
            let names = self.store.children(&self.folder).await?;
            if !names.contains(&self.name) {
                return Err(Error::SessionExpired);
            }
            let before = names.into_iter().filter(|name| *name < self.name).max();
            let Some(before) = before else {
                return Ok(Fence { path: format!("{}/{}", self.folder, self.name) });
            };
            let (stat, gone) = self.store.exists_and_watch(&format!("{}/{before}", self.folder)).await?;
            if stat.is_some()
                && gone.await == WatchEvent::Ended
                && *self.store.session().borrow() == Session::Expired
            {
                return Err(Error::SessionExpired);
            }
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}
