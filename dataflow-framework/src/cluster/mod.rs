//! A program whose calls run on the nodes of a cluster.
//!
//! The program is the only task of a job of the runtime (`main_task.rs`), so it is claimed, moved and started again by
//! the recipes that there are. The node on which it runs is the *head*. Everything else is done by the companions of
//! the job (`workflow_node.rs`), one on each node:
//!
//! ```text
//!            head                             another node
//!   program ─► graph ──── order: assign ────────► site ─► threads
//!                ▲  └──── order: forget ────────►  ▲ │
//!                └─────── news: ended, copied ─────┘ │
//!                         ask, piece ◄───────────────┴──► any other node
//! ```
//!
//! Orders and news go on a line that loses nothing ([`Line`](crate::core::Line)). Data goes from the node that has it
//! to the one that needs it, never by way of the head.
//!
//! When a node is lost, the graph has made again what only that had. When the head is lost, or told to leave, the task
//! moves to another node, where the program begins anew; the other nodes notice that by the *run* in every message,
//! and forget what they have.

mod companion;
mod following;
mod journaling;
mod leading;
mod main_task;
mod message;
mod workflow_node;
mod witness;

pub use self::main_task::{Main, Program, Returned};

/// Decodes bytes from another node as a companion does; see [`fuzzing`](crate::fuzzing).
pub(crate) fn check_messages(bytes: &[u8]) -> bool {
    message::check(bytes)
}

/// Returns encoded messages, each with a name.
pub(crate) fn example_messages() -> Vec<(&'static str, Vec<u8>)> {
    message::examples()
}
