//! What each node says of its part in a job: for people, not for the protocol. Nothing is decided by it.

use serde::{Deserialize, Serialize};

use crate::{
    counted::Requests,
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, Store},
};

/// What a node has done for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFigures<F> {
    /// The attempt that the node is at.
    pub attempt: u32,
    /// What it has done, as the runtime counts it.
    pub figures: F,
    /// What it has asked of ZooKeeper for it.
    pub requests: Requests,
    /// Whether these are its last words: it works on the job no more.
    pub last: bool,
    /// When it said so, in milliseconds since 1970 by its own clock.
    pub at_ms: u64,
}

/// Writes what a node has done for a job, in place of what it said before.
///
/// # Errors
/// Whatever the store refuses; [`Error::NoNode`] if there is no such job any more.
pub async fn publish<F: Serialize>(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    node: &str,
    figures: &NodeFigures<F>,
) -> Result<()> {
    let (path, content) = (cluster.job(job).node_figures(node), record::write(figures));
    match store.set(&path, &content, None).await {
        Err(Error::NoNode { .. }) => store.create(&path, &content, CreateMode::Persistent).await.map(drop),
        other => other.map(drop),
    }
}

/// What every node has done for a job, by the node's name. What cannot be read is left out.
///
/// # Errors
/// Whatever the store refuses.
pub async fn read<F: serde::de::DeserializeOwned>(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
) -> Result<Vec<(String, NodeFigures<F>)>> {
    let paths = cluster.job(job);
    let nodes = match store.children(&paths.figures()).await {
        Err(Error::NoNode { .. }) => return Ok(Vec::new()),
        other => other?,
    };
    // All are asked for before the first answer is awaited.
    let asked: Vec<_> = nodes.iter().map(|node| store.get(&paths.node_figures(node))).collect();
    let mut figures = Vec::new();
    for (node, answer) in nodes.into_iter().zip(asked) {
        match answer.await {
            Ok((content, _)) => match record::read(&paths.node_figures(&node), &content) {
                Ok(read) => figures.push((node, read)),
                Err(error) => tracing::warn!(%error, "a node's figures cannot be read"),
            },
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(figures)
}
