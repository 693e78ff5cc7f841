//! Coordination over a tree of znodes: membership, election, shared variables and exact accounting of tasks.
//!
//! | module | question it answers |
//! |---|---|
//! | [`membership`] | which nodes are there |
//! | [`election`] | which node leads |
//! | [`variable`] | what is the best value that any node knows |
//! | [`accounting`] | is every task complete |
//! | [`quarantine`] | which tasks does a job go on without |
//! | [`job`] | which attempt at a job is current, and how did the job end |
//! | [`queue`] | which job comes next |
//! | [`journal`] | what of a job has happened once and must not happen again |
//! | [`mail`] | what does a node send to another one that the network does not reach |
//! | [`figures`] | what each node has done for a job |
//! | [`suggestion`] | what does a user suggest to a running job |
//! | [`question`] | what does a user want to know of a running job |
//! | [`scaling`] | which controller decides how many machines there are |
//! | [`tidy`] | which znodes are no longer needed |
//! | [`housekeeping`] | which jobs that are over are released or forgotten |
//!
//! The recipes are written against [`Store`], a small trait with ZooKeeper's interface and nothing more.
//! [`Connect`] opens a store over a real ZooKeeper; [`MemoryTree`] is a store within this process, over the
//! pure [`tree::Tree`], and injects faults for tests; [`durable::open`] gives one that survives the process.
//!
//! Transient failures are retried according to [`retry`].
//!
//! Every error states whether the operation [may have taken effect](Error::effect) nevertheless. Every recipe
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
