//! A program whose calls run on the nodes of a cluster.
//!
//! The program is the only task of a job of the runtime (`main_task.rs`), so the existing recipes claim, move
//! and restart it. Its node is the *coordinator*. Everything else is the work of the companions of
//! the job (`workflow_node.rs`), one on each node:
//!
//! ```text
//!         coordinator                         another node
//!   program ─► graph ──── order: assign ────────► executor ─► threads
//!                ▲  └──── order: forget ────────►  ▲ │
//!                └─────── news: ended, copied ─────┘ │
//!                         ask, answer ◄──────────────┴──► any other node
//! ```
//!
//! Orders and news travel on a line that loses nothing ([`Line`](crate::core::Line)). Data travels directly
//! from its owner to the node that needs it, never through the coordinator.
//!
//! When a node is lost, the graph recomputes the data that only it had. When the coordinator is lost or asked
//! to leave, the task moves to another node, where the program restarts; the other nodes detect that by the
//! *run* in every message, and drop their assignments.

mod companion;
mod following;
mod journaling;
mod leading;
mod main_task;
mod message;
mod output;
mod status;
mod workflow_node;

pub use self::main_task::{Given, Main, Program, Returned, RunOptions};

/// Decodes bytes from another node like a companion; see [`fuzzing`](crate::fuzzing).
pub(crate) fn check_messages(bytes: &[u8]) -> bool {
    message::check(bytes)
}

/// Returns encoded messages, each with a name.
pub(crate) fn example_messages() -> Vec<(&'static str, Vec<u8>)> {
    message::examples()
}
