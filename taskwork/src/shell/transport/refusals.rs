//! What is said of connections that were refused: not a line for each, or who floods a node floods its log
//! too.

use std::{fmt, net::SocketAddr, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::lock;
use crate::id::NodeId;

/// Says it, and counts what it does not say.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    /// How many were refused since.
    untold: u64,
    lines: u64,
}

impl Refusals {
    /// A connection was refused. Says so, unless that was done a moment ago.
    pub(super) fn note(&self, node: NodeId, remote: SocketAddr, reason: impl fmt::Display, every: Duration) {
        let mut told = lock(&self.0);
        if told.at.is_some_and(|at| at.elapsed() < every) {
            told.untold += 1;
            return;
        }
        let others = std::mem::take(&mut told.untold);
        (told.at, told.lines) = (Some(Instant::now()), told.lines + 1);
        drop(told);
        tracing::warn!(%node, %remote, %reason, others, "a connection was refused, and so many others since this was last said");
    }

    /// How many lines it has said, and of how many refusals it has said nothing yet.
    #[cfg(test)]
    pub(super) fn told(&self) -> (u64, u64) {
        let told = lock(&self.0);
        (told.lines, told.untold)
    }
}
