//! Turns the job's record into events: the current attempt, the parked tasks, the end of the job.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use tokio::task::JoinSet;
use tracing::Instrument as _;
use zk::{
    Store as _,
    job::{JobState, JobWatch, Share},
    parked_id,
};

use super::{Coordination, leaving::Leaving};
use crate::{
    core::Event,
    id::{Attempt, NodeId, TaskId},
    pool::{Claim, Workplace as _},
};

/// Returns the claim on the workers of a node that follows from the share of a job.
pub(crate) fn claim_of(share: Share) -> Claim {
    Claim { weight: share.weight.get(), priority: share.priority }
}

impl Coordination {
    pub(super) async fn follow_job(self: Arc<Self>) {
        let open = || JobWatch::open(self.store(), &self.cluster, &self.job.0);
        let Some(mut watch) = self.persist("watching the job", open).await else { return };
        let (mut current, mut of_attempt, mut retry) = (None, JoinSet::new(), self.retry());
        loop {
            let record = match watch.next().await {
                Ok(record) => record,
                // The job was cancelled and removed before this node saw it.
                Err(zk::Error::NoNode { .. }) => {
                    of_attempt.abort_all();
                    self.notify_driver(Event::JobOver).await;
                    return;
                }
                Err(error) if retry.again(&*self.store, "reading the job", &error).await => continue,
                Err(_) => return,
            };
            retry.succeeded();
            let claim = claim_of(record.share);
            self.pool.set_claim(claim);
            if let Some(companion) = &self.companion {
                companion.places.set_claim(claim);
            }
            if record.state.is_over() {
                of_attempt.abort_all();
                self.notify_driver(Event::JobOver).await;
                return;
            }
            if record.state == JobState::Suspended && !self.suspended.swap(true, Relaxed) {
                tracing::info!("the job is suspended; its tasks are parked");
                self.leave(Leaving::Rest);
            }
            let attempt = Attempt(record.attempt);
            if record.state.is_running() && current.replace(attempt) != Some(attempt) {
                self.attempt.store(attempt.0, Relaxed);
                tracing::info!(%attempt, "an attempt starts");
                self.notify_driver(Event::Attempt { attempt }).await;
                if let Some(host) = &self.companion {
                    host.desk.attempt(attempt.0);
                }
                of_attempt.abort_all();
                of_attempt.spawn(Arc::clone(&self).follow_parked(attempt).in_current_span());
                of_attempt.spawn(Arc::clone(&self).follow_mail(attempt).in_current_span());
                of_attempt.spawn(Arc::clone(&self).follow_left(attempt).in_current_span());
            }
        }
    }

    /// Reports the nodes that have left an attempt cleanly, now and at each change. They may remain members, but no
    /// longer take part in the job.
    async fn follow_left(self: Arc<Self>, attempt: Attempt) {
        let path = self.job_paths().attempt(attempt.0).left();
        let mut reported = BTreeSet::from([self.node]);
        loop {
            let reading = || self.store.children_and_watch(&path);
            let Some((names, changed)) = self.persist("reading who has left", reading).await else { return };
            let left: Vec<NodeId> = names.iter().filter_map(|name| name.parse().ok()).collect();
            for node in left {
                if reported.insert(node) {
                    if let Some(host) = &self.companion {
                        host.desk.left(node);
                    }
                    self.notify_driver(Event::Left { node, clean_in: Some(attempt) }).await;
                }
            }
            changed.await;
        }
    }

    /// Reports the parked tasks of an attempt, now and at each change.
    async fn follow_parked(self: Arc<Self>, attempt: Attempt) {
        let path = self.job_paths().attempt(attempt.0).parked();
        loop {
            let reading = || self.store.children_and_watch(&path);
            let Some((names, changed)) = self.persist("reading the parked tasks", reading).await else {
                return;
            };
            let tasks: Vec<TaskId> = names.iter().filter_map(|name| parked_id(name).parse().ok()).collect();
            self.notify_driver(Event::Parked { attempt, tasks }).await;
            // A watch can end although its session continues: then the tasks are read again. If the session
            // has ended, reading fails.
            changed.await;
        }
    }
}
