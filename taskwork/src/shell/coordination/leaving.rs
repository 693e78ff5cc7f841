//! Requests to leave the job. The companion first rescues its state, then the driver leaves.

use std::{pin::pin, sync::Arc};

use tokio::{
    sync::mpsc,
    time::{self, Duration, Instant},
};

use super::Coordination;
use crate::core::Event;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Within a deadline; a second request means immediately.
    Drain { deadline_ms: u64 },
    /// Without a time limit.
    Retire,
    /// Like `Retire`, but the companion gets less time, since another job waits.
    GiveWay,
    /// Without a time limit, because the job is suspended.
    Rest,
}

/// A request to leave, with its time on the node's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaveRequest {
    pub(crate) leaving: Leaving,
    pub(crate) at_ms: u64,
}

/// A request to leave within a deadline, which counts from `at_ms` on the node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at_ms: u64,
    pub(crate) deadline_ms: u64,
}

/// The maximum number of queued requests to leave. Further requests are dropped as redundant.
pub(crate) const LEAVE_REQUESTS_MAX: usize = 8;

impl Coordination {
    /// Requests that the node leaves the job. Does not wait.
    pub(crate) fn leave(&self, leaving: Leaving) {
        let _ = self.leave_requests.try_send(LeaveRequest { leaving, at_ms: self.clock.now_ms() });
    }

    pub(super) async fn forward_leave_requests(
        self: Arc<Self>,
        mut leave_requests: mpsc::Receiver<LeaveRequest>,
    ) {
        let mut was_asked = false;
        while let Some(request) = leave_requests.recv().await {
            let mut all = vec![request];
            if !std::mem::replace(&mut was_asked, true) {
                self.rescue(&mut all, &mut leave_requests).await;
            }
            for LeaveRequest { leaving, at_ms } in all {
                match leaving {
                    Leaving::Drain { deadline_ms } => {
                        // A full channel means that the driver has enough such requests already.
                        let _ = self.drain.try_send(Deadline { at_ms, deadline_ms });
                    }
                    Leaving::Retire | Leaving::GiveWay => self.notify_driver(Event::Retire).await,
                    Leaving::Rest => self.notify_driver(Event::Rest).await,
                }
            }
        }
    }

    /// Lets the companion rescue its state until its time is up or the node receives a second request to leave
    /// within a deadline. Adds further requests to `all`.
    async fn rescue(&self, all: &mut Vec<LeaveRequest>, leave_requests: &mut mpsc::Receiver<LeaveRequest>) {
        let Some(host) = &self.companion else { return };
        let mut until = Instant::now() + self.rescue_time(all[0].leaving);
        let mut rescued = pin!(host.desk.rescue(until));
        while all.len() < LEAVE_REQUESTS_MAX {
            let further = tokio::select! {
                biased;
                () = &mut rescued => return,
                () = time::sleep_until(until) => {
                    tracing::warn!("the companion of the job did not rescue its state in time");
                    return;
                }
                Some(further) = leave_requests.recv() => further,
            };
            let drains = |request: &LeaveRequest| matches!(request.leaving, Leaving::Drain { .. });
            let is_second = drains(&further) && all.iter().any(drains);
            until = until.min(Instant::now() + self.rescue_time(further.leaving));
            all.push(further);
            if is_second {
                return;
            }
        }
    }

    /// Returns the companion's time limit: at most half of the time until the deadline.
    fn rescue_time(&self, leaving: Leaving) -> Duration {
        let rescue_ms = match leaving {
            Leaving::Drain { deadline_ms } => self.rescue_ms.min(deadline_ms / 2),
            Leaving::GiveWay => self.rescue_ms.min(self.drain_deadline_ms / 2),
            Leaving::Retire | Leaving::Rest => self.rescue_ms,
        };
        Duration::from_millis(rescue_ms)
    }
}
