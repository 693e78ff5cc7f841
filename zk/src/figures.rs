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
    /// What has happened to it.
    #[serde(default)]
    pub timeline: Vec<TimelineEvent>,
    /// Its tasks that were asked to stop and have not answered for long. They keep the node from leaving, or
    /// from the next job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silent>,
    /// Whether these are its last words: it works on the job no more.
    pub last: bool,
    /// How many other nodes that run the same it knows of; `None` of nodes that do not say.
    #[serde(default)]
    pub members_known: Option<u32>,
    /// When it said so, in milliseconds since 1970 by its own clock.
    pub at_ms: u64,
}

/// A task that does not ask whether it is to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// The task.
    pub task: String,
    /// When it was asked to stop, in milliseconds since 1970 by the node's own clock.
    pub since_ms: u64,
}

/// Something that has happened to a node in a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEvent {
    /// When, in milliseconds since 1970 by the node's own clock.
    pub at_ms: u64,
    /// What.
    pub kind: EventKind,
    /// More about it.
    pub detail: String,
}

/// What can happen to a node in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// It became a member.
    Joined,
    /// It takes part in an attempt.
    TakesPart,
    /// It has its first task.
    FirstTask,
    /// It leads.
    Leads,
    /// A variable has a better value from it.
    Improved,
    /// It found that nodes were lost.
    Lost,
    /// It closed the job.
    Closed,
    /// It was told to leave.
    ToldToLeave,
    /// It has left, with nothing in its hands.
    Left,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
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
