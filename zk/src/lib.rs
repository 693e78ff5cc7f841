//! PLACEHOLDER by the lead so that taskwork compiles; the zk helper replaces every file here.
#![allow(clippy::all, missing_docs, missing_debug_implementations)]
pub mod accounting;
pub mod election;
pub mod error;
pub mod job;
pub mod membership;
pub mod memory;
pub mod paths;
pub mod store;
pub mod tree;
pub mod variable;
pub use {
    error::{Effect, Error, Result},
    memory::{MemoryStore, MemoryTree},
    paths::*,
    store::*,
};
