//! Tells the driver to leave the job, after the companion of the job has rescued what it has.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use tokio::{
    sync::mpsc,
    time::{self, Duration, Instant},
};

use super::Coordination;
use crate::core::Event;

/// How the node is told to leave the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// By its deadline; a second time, at once.
    Drain,
    /// However long it takes.
    Retire,
    /// However long it takes: the job is suspended.
    Rest,
}

/// The maximum number of requests to leave that wait. Further ones say nothing new.
pub(crate) const LEAVINGS_MAX: usize = 8;

impl Coordination {
    /// Asks the node to leave the job. Does not wait.
    pub(crate) fn leave(&self, leaving: Leaving) {
        let _ = self.leavings.try_send(leaving);
    }

    pub(super) async fn pass_on_leavings(self: Arc<Self>, mut leavings: mpsc::Receiver<Leaving>) {
        let mut was_asked = false;
        while let Some(leaving) = leavings.recv().await {
            let since = self.clock.now_ms();
            let mut all = vec![leaving];
            if !std::mem::replace(&mut was_asked, true) {
                self.rescue(&mut all, &mut leavings).await;
            }
            for leaving in all {
                match leaving {
                    Leaving::Drain => {
                        self.told_to_drain_ms.fetch_min(since, Relaxed);
                        self.drain.notify_one();
                    }
                    Leaving::Retire => self.tell(Event::Retire).await,
                    Leaving::Rest => self.tell(Event::Rest).await,
                }
            }
        }
    }

    /// Lets the companion rescue what it has, until its time is up, or the node is told to leave at once. Adds further
    /// requests to leave to `all`.
    async fn rescue(&self, all: &mut Vec<Leaving>, leavings: &mut mpsc::Receiver<Leaving>) {
        let Some(host) = &self.companion else { return };
        let mut until = Instant::now() + self.rescue_time(all[0]);
        let mut rescued = pin!(host.desk.rescue(until));
        loop {
            let further = tokio::select! {
                biased;
                () = &mut rescued => return,
                () = time::sleep_until(until) => {
                    tracing::warn!("the companion of the job has not rescued what it has in time");
                    return;
                }
                Some(further) = leavings.recv() => further,
            };
            let is_second = further == Leaving::Drain && all.contains(&further);
            until = until.min(Instant::now() + self.rescue_time(further));
            all.push(further);
            if is_second {
                return;
            }
        }
    }

    /// Returns the time that a companion has: half of that until the node's deadline, if there is one.
    fn rescue_time(&self, leaving: Leaving) -> Duration {
        let rescue_ms = match leaving {
            Leaving::Drain => self.rescue_ms.min(self.drain_deadline_ms / 2),
            Leaving::Retire | Leaving::Rest => self.rescue_ms,
        };
        Duration::from_millis(rescue_ms)
    }
}
