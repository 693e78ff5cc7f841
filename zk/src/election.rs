//! election
use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    store::{CreateMode, Op, Store, WatchEvent},
};
use std::sync::Arc;
/// f
#[derive(Debug, Clone)]
pub struct Fence {
    path: String,
}
impl Fence {
    /// c
    pub fn check(&self) -> Op {
        Op::Check { path: self.path.clone(), version: None }
    }
}
/// c
pub struct Candidate {
    store: Arc<dyn Store>,
    dir: String,
    name: String,
}
impl Candidate {
    /// e
    pub async fn enter(store: Arc<dyn Store>, c: &ClusterPaths, node: &str) -> Result<Self> {
        let dir = c.election();
        let p = store.create(&format!("{dir}/n-"), node.as_bytes(), CreateMode::EphemeralSequential).await?;
        let name = p.rsplit('/').next().unwrap_or("").to_owned();
        Ok(Self { store, dir, name })
    }
    /// e
    pub async fn elected(&mut self) -> Result<Fence> {
        loop {
            let names = self.store.children(&self.dir).await?;
            if !names.contains(&self.name) {
                return Err(Error::SessionExpired);
            }
            match names.iter().filter(|n| **n < self.name).max() {
                None => return Ok(Fence { path: format!("{}/{}", self.dir, self.name) }),
                Some(before) => {
                    let (s, w) = self.store.exists_and_watch(&format!("{}/{before}", self.dir)).await?;
                    if s.is_some() && w.await == WatchEvent::Ended {
                        return Err(Error::SessionExpired);
                    }
                }
            }
        }
    }
}
