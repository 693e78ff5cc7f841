//! Coordination over a tree of znodes: membership, election, shared variables and exact accounting of tasks.
//!
//! | module | provides |
//! |---|---|
//! | [`membership`] | the nodes of a cluster |
//! | [`election`] | the leader of a job |
//! | [`variable`] | the best value that any node has found |
//! | [`accounting`] | the tasks that are not complete, and the nodes that hold them |
//! | [`quarantine`] | the tasks that a job excludes because nodes were lost with them |
//! | [`job`] | records, attempts and results of jobs |
//! | [`queue`] | the next job of a node |
//! | [`journal`] | events of a job that happen once and must not be repeated |
//! | [`mail`] | messages between nodes with a broken network |
//! | [`figures`] | the work of each node for a job |
//! | [`suggestion`] | suggestions of users to a running job |
//! | [`question`] | questions of users about a running job |
//! | [`scaling`] | the controller that decides how many machines there are |
//! | [`tidy`] | removal of unneeded znodes while a job runs |
//! | [`housekeeping`] | release and removal of jobs that are over |
//!
//! The recipes are written against [`Store`], a small trait with ZooKeeper's interface and nothing more.
//! [`Connect`] opens a store over a real ZooKeeper; [`MemoryTree`] is a store within this process, over the
//! pure [`tree::Tree`], and injects faults for tests; [`durable::open`] gives one that survives the process.
//!
//! # A fence
//!
//! A leader may lose its lead without noticing, for example while its process is stopped. Its writes contain a fence,
//! so that they fail then:
//!
//! ```
//! use zk::{ClusterPaths, CreateMode, MemoryTree, Op, Store, election::{Candidate, Fence}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tree = MemoryTree::new(); // in place of a ZooKeeper
//! let (first, second) = (tree.connect(), tree.connect());
//! let cluster = ClusterPaths::new("demo")?;
//! cluster.prepare(&*first).await?;
//! first.create("/result", b"", CreateMode::Persistent).await?;
//! let write = |fence: &Fence, data: &[u8]| {
//!     vec![fence.check(), Op::Set { path: "/result".to_owned(), data: data.to_vec(), version: None }]
//! };
//!
//! let mut candidate = Candidate::enter(first.clone(), &cluster, "j-0000000001", "n1").await?;
//! let mut next = Candidate::enter(second.clone(), &cluster, "j-0000000001", "n2").await?;
//! let fence = candidate.elected().await?;
//! first.multi(write(&fence, b"by n1")).await?;
//!
//! candidate.withdraw().await?; // or its session expires
//! let newer = next.elected().await?;
//! second.multi(write(&newer, b"by n2")).await?;
//! assert!(first.multi(write(&fence, b"by n1, too late")).await.is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! Transient failures are retried according to [`retry`].
//!
//! Every error states whether the operation nevertheless [may have taken effect](Error::effect). Every recipe
//! can be called again when the outcome is unknown, and takes effect once.

mod error;
mod store;
pub mod retry;
mod release;
mod labels;
mod paths;
mod record;
mod chunks;
mod blob;
mod histogram;
mod counted;
pub mod tree;
mod memory;
pub mod durable;
mod secret;
mod connect;
mod losses;
mod session;
mod watches;
mod client;
pub mod membership;
pub mod election;
pub mod variable;
pub mod accounting;
pub mod quarantine;
mod resign;
pub mod job;
pub mod queue;
pub mod figures;
pub mod journal;
pub mod mail;
pub mod suggestion;
pub mod question;
pub mod scaling;
pub mod tidy;
pub mod housekeeping;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(test)]
mod recipes_tests;
#[cfg(test)]
mod testing;

pub use crate::{
    chunks::{CHUNK_BYTES_MAX, CHUNKED_BYTES_MAX},
    client::ServerStore,
    connect::{Connect, ConnectError, Credentials, CredentialsError, Tls},
    counted::{Counted, Latencies, Requests},
    error::{Effect, Error, Result},
    histogram::Histogram,
    labels::{LABEL_BYTES_MAX, LABELS_MAX, LabelError, Labels},
    memory::{EVENTS_MAX, Fate, Faults, MemoryStore, MemoryTree},
    paths::{
        AttemptPaths, ClusterPaths, JobPaths, NAME_BYTES_MAX, NameError, is_name, job_number, parked_id,
    },
    release::Release,
    resign::resign,
    secret::{SecretError, read_secret, read_text},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version, WatchEvent},
};
