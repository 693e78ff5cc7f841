//! The companion of a job of calls: each node displays its part, passes resources to others, and stops its calls before it
//! leaves.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use taskwork::{
    companion::{Companion, CompanionContext, CompanionEvent, JobStatus, Rescue, StatusProvider},
    display::{Field, JobDisplay, Unit},
};
use tokio::{sync::watch, time::timeout_at};

use crate::{
    host::Host,
    progress::{Progress, Running},
    resource::Peers,
    tally::Tally,
};

/// The calls of a job on this node.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// All calls of the job.
    total: u64,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    progress: Progress,
    /// Whether the node leaves the job, so that calls stop at their next checkpoints and none starts.
    is_leaving: AtomicBool,
    /// The number of frames with a call that is expected to stop.
    stoppable: watch::Sender<u64>,
}

/// Calls of a frame, which run until this value is dropped.
#[derive(Debug)]
pub(super) struct RunningCalls {
    _running: Running,
    /// Whether one of them is expected to stop.
    is_stoppable: bool,
    counts: Arc<Counts>,
}

impl Calls {
    /// Returns a companion that provides the status, and stops calls with checkpoints before the node leaves.
    pub(super) fn companion(total: u64) -> Companion {
        let calls = Arc::new(Self { total, counts: Arc::default() });
        let (provider, counts): (Weak<Self>, _) = (Arc::downgrade(&calls), calls.counts());
        Companion::new(calls, async move |mut cx: CompanionContext| {
            cx.set_status_provider(provider);
            let peers = Host::current().map(|host| Peers::join(&cx, &host.resources, &host.store));
            while let Some(event) = cx.next().await {
                if let Some(peers) = &peers {
                    peers.on_event(&event);
                }
                if let CompanionEvent::Rescue(rescue) = event {
                    counts.leave(&rescue).await;
                }
            }
            if let Some(peers) = &peers {
                peers.leave();
            }
            Ok(())
        })
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Counts {
    /// Counts calls that have results.
    pub(super) fn add(&self, tally: &Tally) {
        let failed = tally.failed.values().sum::<u64>();
        self.progress.add(tally.ended.saturating_sub(failed), failed);
    }

    pub(super) fn run(self: &Arc<Self>, calls: u64) -> RunningCalls {
        RunningCalls { _running: self.progress.run(calls), is_stoppable: false, counts: Arc::clone(self) }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    pub(super) fn set_leaving(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    /// Waits until calls with checkpoints have stopped. Others are lost with the node.
    async fn leave(&self, rescue: &Rescue) {
        self.set_leaving();
        let mut stoppable = self.stoppable.subscribe();
        if timeout_at(rescue.until(), stoppable.wait_for(|frames| *frames == 0)).await.is_err() {
            tracing::warn!(
                "calls have not reached their next checkpoints in time: they continue from the last ones"
            );
        }
    }
}

impl RunningCalls {
    pub(super) fn expect_stop(&mut self) {
        if !std::mem::replace(&mut self.is_stoppable, true) {
            self.counts.stoppable.send_modify(|frames| *frames += 1);
        }
    }
}

impl Drop for RunningCalls {
    fn drop(&mut self) {
        if self.is_stoppable {
            self.counts.stoppable.send_modify(|frames| *frames -= 1);
        }
    }
}

impl StatusProvider for Calls {
    fn status(&self) -> Option<JobStatus> {
        // Unlike the counts, it is not the sum over the nodes.
        let total = JobDisplay::new().value(Field::new("calls", "calls", Unit::Number, self.total));
        Some(JobStatus { rank: 0, display: self.counts.progress.shown(total) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ErrorKind;

    #[test]
    fn status_counts_calls_of_this_node() {
        let calls = Calls { total: 100, counts: Arc::default() };
        let running = calls.counts().run(7);
        let mut tally = Tally::default();
        for failed in [None, None, Some(ErrorKind::User)] {
            tally.count(failed);
        }
        calls.counts.add(&tally);
        let counted = || {
            let display = calls.status().unwrap().display;
            ["calls", "done", "failed", "running"].map(|name| display.count_of(name).unwrap())
        };
        assert_eq!(counted(), [100, 2, 1, 7]);
        drop(running);
        assert_eq!(counted(), [100, 2, 1, 0]);
    }
}
