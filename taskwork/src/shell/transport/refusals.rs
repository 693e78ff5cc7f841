//! Rate-limited log lines about refused connections: otherwise a flood of connections would flood the log.

use std::{fmt, net::SocketAddr, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::locks::lock;
use crate::id::NodeId;

/// Logs refusals, and counts those that are not logged.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<LogState>);

#[derive(Debug, Default)]
struct LogState {
    at: Option<Instant>,
    /// The number of refusals since the last line.
    unlogged: u64,
    lines: u64,
}

impl Refusals {
    /// Records a refused connection, and logs it unless a line was written recently.
    pub(super) fn note(&self, node: NodeId, remote: SocketAddr, reason: impl fmt::Display, every: Duration) {
        let mut state = lock(&self.0);
        if state.at.is_some_and(|at| at.elapsed() < every) {
            state.unlogged += 1;
            return;
        }
        let others = std::mem::take(&mut state.unlogged);
        (state.at, state.lines) = (Some(Instant::now()), state.lines + 1);
        drop(state);
        tracing::warn!(
            %node, %remote, %reason, others,
            "a connection was refused; others is the number of refusals since the previous line"
        );
    }

    /// Returns the number of lines, and the number of refusals since the last one.
    #[cfg(test)]
    pub(super) fn logged(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.lines, state.unlogged)
    }
}
