//! Coordination over a tree of znodes: who is there, who leads, what is the best value, is everything done.
//!
//! | recipe | answers |
//! |---|---|
//! | [`membership`] | which nodes are there |
//! | [`election`] | which one leads |
//! | [`variable`] | what is the best value that anybody knows |
//! | [`accounting`] | is every task complete |
//! | [`job`] | which attempt at a job is to be worked on, how it ended |
//! | [`queue`] | which job comes next |
//! | [`mail`] | what does one node say to another that the network does not reach |
//! | [`figures`] | what each node has done for a job |
//! | [`suggestion`] | what does a user say to a job that is at work |
//! | [`tidy`] | what means nothing any more |
//!
//! The recipes are written on [`Store`], a small trait that has ZooKeeper's interface and no more.
//! [`Connect`] opens one over a real ZooKeeper; [`MemoryTree`] is one within this process, over the pure
//! [`tree::Tree`], and injects faults for tests.
//!
//! What fails for the moment is tried again as [`retry`] says.
//!
//! Every error says whether the operation [may have happened](Error::effect) all the same; every recipe can
//! be called again when it does not know, and does what it does once.

mod error;
mod store;
pub mod retry;
mod release;
mod paths;
mod record;
mod chunks;
mod blob;
mod counted;
pub mod tree;
mod memory;
mod connect;
mod losses;
mod session;
mod watches;
mod client;
pub mod membership;
pub mod election;
pub mod variable;
pub mod accounting;
pub mod job;
pub mod queue;
pub mod figures;
pub mod mail;
pub mod suggestion;
pub mod tidy;
#[cfg(test)]
mod recipes_tests;
#[cfg(test)]
mod testing;

pub use crate::{
    chunks::{CHUNK_BYTES_MAX, CHUNKED_BYTES_MAX},
    client::ServerStore,
    connect::{Connect, ConnectError, Credentials, CredentialsError, Tls},
    counted::{Counted, Requests},
    error::{Effect, Error, Result},
    memory::{EVENTS_MAX, Fate, Faults, MemoryStore, MemoryTree},
    paths::{
        AttemptPaths, ClusterPaths, JobPaths, NAME_BYTES_MAX, NameError, is_name, job_number, parked_id,
    },
    release::Release,
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version, WatchEvent},
};
