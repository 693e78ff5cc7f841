//! Figures that each node reports about its part in a job. They are for users only: the protocol does not
//! depend on them.

mod now;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::now::{Best, GIVERS_MAX, Givers, PoolNow, ProcessNow, Sense, StolenFrom};
use crate::{
    counted::{Latencies, Requests},
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, Store},
};

/// A node's figures for a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeFigures<F> {
    /// The attempt that the node works on.
    pub attempt: u32,
    /// The name of its machine, which remains known after a loss of the node; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The figures counted by the runtime.
    pub figures: F,
    /// The requests to ZooKeeper that it sent for the job.
    pub requests: Requests,
    /// The latencies of these requests; `None` from nodes that do not report it.
    #[serde(default)]
    pub latencies: Option<Latencies>,
    /// Its pool; `None` from nodes that do not report it, and in the last report.
    #[serde(default)]
    pub pool: Option<PoolNow>,
    /// The best value of the first numeric variable; `None` if there is none, or none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// The nodes that gave it tasks; `None` from nodes that do not report it.
    #[serde(default)]
    pub givers: Option<Givers>,
    /// Its process; `None` from nodes that do not report it.
    #[serde(default)]
    pub process: Option<ProcessNow>,
    /// The events in its timeline.
    #[serde(default)]
    pub timeline: Vec<TimelineEvent>,
    /// Its tasks that have long ignored a request to stop. They prevent the node from leaving or taking the
    /// next job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silent>,
    /// The members that it cannot reach over the network, if there are any: at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_off: Vec<String>,
    /// Whether this is the node's last report: it no longer works on the job.
    pub last: bool,
    /// The number of other nodes of its release that it knows; `None` from nodes that do not report it.
    #[serde(default)]
    pub members_known: Option<u32>,
    /// The state that would be lost with the node; `None` from nodes that work on nothing or do not report
    /// it.
    #[serde(default)]
    pub ledger: Option<Ledger>,
    /// The status that the companion of the job on the node publishes, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The values of the job's variables as JSON; only in the last report of a leader of a job without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<Value>,
    /// The time of the report, in milliseconds since 1970 by the node's own clock.
    pub at_ms: u64,
}

/// The status that the companion of a job on a node publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Statuses of the highest rank are shown, merged if several nodes have it.
    pub rank: u64,
    /// The display of the job. This crate does not know its format.
    pub content: Value,
}

/// The state of a node that is written to ZooKeeper, from which other nodes continue if it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// When everything that the node held was last written completely, in milliseconds since 1970 by the
    /// node's own clock. `None` if it never was.
    pub written_ms: Option<u64>,
    /// Whether the node holds nothing; `written_ms` is then the time since when.
    pub empty: bool,
    /// Whether it holds more than it writes, because that is too large: its loss starts a new attempt.
    pub unprotected: bool,
    /// The size of everything that it held at its last write, if known.
    pub bytes: Option<u64>,
}

impl<F> NodeFigures<F> {
    /// Returns the time since the node last wrote its held tasks, at the time of the report, in milliseconds:
    /// the work of that time would have been lost with the node. `None` if more would have been lost, or if
    /// it is unknown.
    pub fn unwritten_ms(&self) -> Option<u64> {
        let ledger = self.ledger.filter(|ledger| !ledger.unprotected)?;
        let since = ledger.written_ms?;
        Some(if ledger.empty { 0 } else { self.at_ms.saturating_sub(since) })
    }
}

/// A task that does not check whether it should stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// The task.
    pub task: String,
    /// When it was asked to stop, in milliseconds since 1970 by the node's own clock.
    pub since_ms: u64,
}

/// An event of a node in a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEvent {
    /// The time, in milliseconds since 1970 by the node's own clock.
    pub at_ms: u64,
    /// The kind of event.
    pub kind: EventKind,
    /// Details about it.
    pub detail: String,
}

/// The kinds of events of a node in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The node became a member.
    Joined,
    /// The node enrolled in an attempt.
    TakesPart,
    /// The node received its first task.
    FirstTask,
    /// The node became the leader.
    Leads,
    /// The node improved a variable.
    Improved,
    /// The node detected lost nodes.
    Lost,
    /// The node continues the work that a lost node had recorded.
    Continues,
    /// A task panicked on the node.
    Panicked,
    /// The node has set a task aside.
    SetAside,
    /// The node closed the job.
    Closed,
    /// The node was asked to leave.
    ToldToLeave,
    /// The node has left cleanly.
    Left,
    /// The node left at its deadline, before all its tasks were handed to other nodes.
    Abandoned,
    /// An event that this version does not know.
    #[serde(other)]
    Other,
}

/// Writes a node's figures for a job, replacing its previous ones.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the job no longer exists.
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

/// Decodes a node's figures, from the content of their znode.
///
/// # Errors
/// [`Error::Garbled`] if the content is malformed.
pub fn decode<F: serde::de::DeserializeOwned>(path: &str, content: &[u8]) -> Result<NodeFigures<F>> {
    record::read(path, content)
}

/// Returns every node's figures for a job, with the node's name. Unreadable figures are omitted.
///
/// # Errors
/// Any error from the store.
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
    // All figures are requested before the first answer is awaited.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> NodeFigures<()> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn report_is_read_by_older_and_newer_programs() {
        let said = NodeFigures {
            pool: Some(PoolNow { workers: 2, busy: 1, queued: 3, waiting: 4, hungry: 0 }),
            best: Some(Best { value: -1.5, sense: Sense::Max, name: "incumbent".to_owned() }),
            givers: Some(Givers { most: vec![StolenFrom { node: "n1".to_owned(), tasks: 2 }], rest: 1 }),
            process: Some(ProcessNow { load: Some(0.5), ..ProcessNow::default() }),
            latencies: Some(Latencies::default()),
            cut_off: vec!["n2".to_owned()],
            ..NodeFigures::<()>::default()
        };
        let mut written = serde_json::to_value(&said).unwrap();
        assert_eq!(parse(&written.to_string()), said);
        for name in ["pool", "best", "givers", "process", "latencies", "cut_off"] {
            assert!(written.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        assert_eq!(parse(&written.to_string()), NodeFigures::default());
    }

    #[test]
    fn reports_without_a_ledger_can_be_read() {
        let json = r#"{"attempt":1,"figures":null,"requests":{},"last":false,"at_ms":9}"#;
        let report = parse(&json.replace("{}", &serde_json::to_string(&Requests::default()).unwrap()));
        assert_eq!((report.ledger, report.unwritten_ms()), (None, None));
        let read: Ledger = serde_json::from_str(r#"{"written_ms":7}"#).unwrap();
        assert_eq!(read, Ledger { written_ms: Some(7), ..Ledger::default() });
        let report = NodeFigures { ledger: Some(read), ..report };
        assert_eq!(parse(&serde_json::to_string(&report).unwrap()), report);
        assert_eq!(report.unwritten_ms(), Some(2));
    }
}
