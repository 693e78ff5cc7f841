//! The connector to Kubernetes against a small Kubernetes on this machine, which runs each pod as a process:
//! nodes of a real program that work on a real job over a real ZooKeeper.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod api;
mod calls;
mod jobs;
mod kubelet;
mod small;
mod world;

use taskwork_scale::connector::{Calling, Key, Refusal};

/// Waits for the result of a call.
fn done<T>(call: Calling<'_, T>) -> Result<T, Refusal> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(call)
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}
