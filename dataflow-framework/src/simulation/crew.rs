//! The workers of a simulated node: each runs one call after another, which take virtual time.

use std::sync::Arc;

use super::Simulated;
use crate::node::{Continues, Queue};

/// Starts a worker.
pub(crate) fn start(simulated: &Arc<Simulated>, queue: &Arc<Queue>) {
    tokio::spawn(work(Arc::clone(simulated), Arc::clone(queue)));
}

async fn work(simulated: Arc<Simulated>, queue: Arc<Queue>) {
    while let Some(next) = queue.next_in_time().await {
        let Some(begun) = next.begin() else { continue };
        simulated.call_runs(begun.task(), begun.call()).await;
        if begun.run() == Continues::Elsewhere {
            return;
        }
    }
    queue.ends_thread();
}
