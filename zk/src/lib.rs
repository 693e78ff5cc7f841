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
