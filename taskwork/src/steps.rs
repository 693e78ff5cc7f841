//! The steps of a steal as log events, from the request to the running task on both nodes: with
//! `--log taskwork::steals=trace`.
//!
//! ```text
//!   thief                              victim
//!     asked ── sent ────────── arrived ── heard
//!                                          │ split (if no task was queued)
//!     came ─── arrived ─────────── sent ── granted
//!      │
//!     begun
//! ```

use crate::{core::Message, id::NodeId};

/// The target of these events.
const TARGET: &str = "taskwork::steals";

/// Logs that a node's driver sends or has received a message, if that is a step of a steal.
pub(crate) fn handled(message: &Message, peer: NodeId, sent: bool) {
    let (step, request) = match (message, sent) {
        (Message::Steal { request }, true) => ("asked", *request),
        (Message::Steal { request }, false) => ("heard", *request),
        (Message::Grant { request: Some(request), .. }, true) => ("granted", *request),
        (Message::Grant { request: Some(request), .. }, false) => ("came", *request),
        _ => return,
    };
    tracing::trace!(target: TARGET, step, %peer, request);
}

/// Logs that a message of some size was handed to the connection with a peer.
pub(crate) fn sent(peer: NodeId, bytes: usize) {
    tracing::trace!(target: TARGET, step = "sent", %peer, bytes);
}

/// Logs that a message of some size has arrived from a peer, and waits for the driver.
pub(crate) fn arrived(peer: NodeId, bytes: usize) {
    tracing::trace!(target: TARGET, step = "arrived", %peer, bytes);
}

/// Logs that a worker has split off a task while a thief waits.
pub(crate) fn split() {
    tracing::trace!(target: TARGET, step = "split");
}

/// Logs that a worker starts the first task of a grant.
pub(crate) fn begun() {
    tracing::trace!(target: TARGET, step = "begun");
}
