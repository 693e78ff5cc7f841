//! Direct calls: messages between gateways and nodes, without a job for each call.
//!
//! ```text
//!   gateway: request ──▶ Caller ──call──▶ Callee :node ──▶ runtime
//!                          ▲ ◀─accepted, busy─┘              │
//!                          └──────answer, until settled ◀────┘
//! ```
//!
//! One job of a cluster and store, the *service job*, stays open. Its root completes at once; its companion runs on every
//! node with the store and on every gateway, and is a [`Caller`] and a [`Callee`]. Gateways lack the label of other jobs,
//! and have no slots. Membership comes from the runtime, which reads it in ZooKeeper; the messages need no ZooKeeper.

mod callee;
mod caller;
mod companion;
mod keeper;
mod message;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Hooks, Job, JobId, Labels, Outcome, Task, companion::Companion};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

use crate::progress::DirectCalls;

pub(crate) use self::{caller::Ended, keeper::keep, message::Spec};

pub(crate) const KIND: &str = "direct";

/// The interval of checks for a companion and a node.
const CHECK: Duration = Duration::from_millis(50);

/// The maximum time that a call waits for a first node, also after a loss.
const WAIT: Duration = Duration::from_secs(10);

/// The maximum number of repetitions of an idempotent call after losses of nodes.
const LOSSES_MAX: u32 = 2;

/// The root of the service job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Direct;

impl Direct {
    pub(crate) fn job(label: Labels) -> Job<Self> {
        Job::new(Self, ()).kind(KIND).name("direct calls").require(label).stay_open()
    }
}

impl Task for Direct {
    type Shared = ();
    type Output = u64;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|_| {
        let (requests, requested) = mpsc::unbounded_channel();
        let calls = Arc::new(DirectCalls::default());
        let its = Arc::downgrade(&calls);
        Some(Companion::new(calls, |cx| companion::run(cx, requests, requested, its)))
    });

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

/// A call of this process.
#[derive(Debug)]
struct Request {
    spec: Spec,
    /// Closed when the request is gone.
    reply: oneshot::Sender<Ended>,
}

type Requests = mpsc::UnboundedSender<Request>;

/// The running companions of this process. There are several while a second service job is being cancelled.
static COMPANIONS: Mutex<BTreeMap<JobId, Requests>> = Mutex::new(BTreeMap::new());

fn companions() -> MutexGuard<'static, BTreeMap<JobId, Requests>> {
    COMPANIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a call on a node. Dropping the future cancels it.
pub(crate) async fn call(mut spec: Spec, is_idempotent: bool) -> Ended {
    let (mut first_until, end) =
        (Instant::now() + WAIT, Instant::now() + Duration::from_millis(spec.limit_ms));
    let mut losses = 0;
    loop {
        let first = companions().values().next().cloned();
        let (reply, ended) = oneshot::channel();
        let request = Request { spec: spec.clone(), reply };
        if first.is_some_and(|first| first.send(request).is_ok()) {
            match ended.await.unwrap_or(Ended::Unknown) {
                Ended::NoNode => {}
                Ended::Unknown if is_idempotent && losses < LOSSES_MAX && Instant::now() < end => {
                    losses += 1;
                    first_until = Instant::now() + WAIT;
                }
                ended => return ended,
            }
        }
        if Instant::now() >= first_until {
            return Ended::NoNode;
        }
        // There may be another node, or another service job.
        sleep(CHECK).await;
        let left = end.saturating_duration_since(Instant::now());
        spec.limit_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    }
}
