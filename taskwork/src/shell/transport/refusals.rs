//! Log lines about refused connections: not one for each, or a flood of connections would flood the log too.

use std::{fmt, net::SocketAddr, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::lock;
use crate::id::NodeId;

/// Logs refusals, and counts those that it does not log.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    /// The number of refusals since the last line.
    untold: u64,
    lines: u64,
}

impl Refusals {
    /// Records a refused connection, and logs it unless a line was written recently.
    pub(super) fn note(&self, node: NodeId, remote: SocketAddr, reason: impl fmt::Display, every: Duration) {
        let mut told = lock(&self.0);
        if told.at.is_some_and(|at| at.elapsed() < every) {
            told.untold += 1;
            return;
        }
        let others = std::mem::take(&mut told.untold);
        (told.at, told.lines) = (Some(Instant::now()), told.lines + 1);
        drop(told);
        tracing::warn!(
            %node, %remote, %reason, others,
            "a connection was refused, and so many others since this was last said"
        );
    }

    /// Returns the number of lines, and the number of refusals since the last one.
    #[cfg(test)]
    pub(super) fn told(&self) -> (u64, u64) {
        let told = lock(&self.0);
        (told.lines, told.untold)
    }
}
