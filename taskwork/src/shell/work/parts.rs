//! The start and the end of a node's part in a job.

use tokio::time;
use zk::{Session, job::JobRecord};

use super::{Active, Closing, End, Intent, Opening, SeatJobs, reporting::closed_with};
use crate::{
    config::Limits,
    core::Departure,
    id::JobId,
    report::JobError,
    shell::{
        clock::unix_ms,
        coordination::{Visibility, claim_of},
        driver::Ended,
        node::{OpenPool, Part, RunningNode, SharedData, Stopping, open_pool},
        seat::Seat,
    },
};

impl SeatJobs<'_> {
    /// Starts to open a job's pool.
    pub(super) async fn open(&mut self, job: JobId, record: Box<JobRecord>) {
        let setup = self.setup;
        let kind = match setup.kinds.find(&record.kind, &record.task_type) {
            Ok(kind) => kind,
            Err(reason) => return self.fail_job(&job, &reason.to_string()).await,
        };
        let mut limits = setup.limits.clone();
        limits.crashes_max = record.crashes_max;
        let pool = Box::pin(open_pool(self.seat, kind, &job, &limits, SharedData::Stored(record.clone())));
        self.opening = Some(Opening { job, record, limits, pool });
    }

    pub(super) fn begin(&mut self, job: JobId, record: &JobRecord, limits: Limits, (pool, offer): OpenPool) {
        if let Some(retry) = &mut self.retry {
            retry.succeeded();
        }
        let share = record.share;
        let part = Part {
            job: job.clone(),
            require: record.require.clone(),
            claim: claim_of(share),
            pool,
            offer,
            limits,
            visibility: Visibility::Public,
        };
        let running = RunningNode::start(self.seat, part);
        tracing::info!(
            node = %self.seat.node, %job, name = record.name, jobs = self.active.len() + 1,
            "the node works on a job"
        );
        if self.active.is_empty() {
            self.expect_report();
        }
        self.active.push(Active { job, share, running, since: time::Instant::now(), resigns: false });
    }

    pub(super) async fn on_open_failed(&mut self, job: &JobId, error: &JobError) {
        if let JobError::Coordination(error) = error {
            match &error.0 {
                zk::Error::NoNode { .. } => return,
                zk::Error::SessionExpired => {
                    self.end = self.end.take().or(Some(End::Expired));
                    return;
                }
                error if error.is_transient() => {
                    return self.pause("reading the job's data", error.clone());
                }
                _ => {}
            }
        }
        self.fail_job(job, &error.to_string()).await;
    }

    /// Fails a job that cannot be run by this node or any other.
    pub(super) async fn fail_job(&mut self, job: &JobId, reason: &str) {
        let node = self.seat.node;
        tracing::error!(%node, %job, reason, "the job cannot be run");
        match zk::job::fail(&*self.seat.store, &self.seat.cluster, &job.0, reason, unix_ms()).await {
            Err(zk::Error::SessionExpired) => {
                self.end = self.end.take().or(Some(End::Expired));
                return;
            }
            // A skipped job would never complete.
            Err(error) if error.is_transient() => {
                return self.pause("failing the job", error);
            }
            Err(error) => tracing::warn!(%node, %job, %error, "the failure of the job could not be recorded"),
            Ok(()) => {}
        }
        self.queue.pass(job.0.clone());
    }

    /// Handles the end of the node's part in the job at this index.
    pub(super) async fn on_ended(&mut self, place: usize) {
        let running = &mut self.active[place].running;
        let (ended, suspended) = (running.ended().await, running.was_suspended());
        match ended {
            Ended::JobOver | Ended::ShutDown => {}
            Ended::Departed(Departure::Clean) => {
                if suspended && self.intent == Intent::Stay {
                    self.rested.insert(self.active[place].job.0.clone());
                }
            }
            Ended::Departed(Departure::Abandoned) => {
                let Active { job, running, .. } = self.active.remove(place);
                let stopping = running.stop(self.seat).await;
                let why = abandoned_why(self.seat, &job, &stopping);
                let _ = stopping.done().await;
                self.end = self.end.take().or(Some(End::Abandoned { why }));
                return;
            }
            Ended::Departed(Departure::Expelled) | Ended::BrokenDown => {
                let is_expelled = ended != Ended::BrokenDown;
                let end = if is_expelled { End::Expired } else { End::BrokenDown };
                self.end = self.end.take().or(Some(end));
                self.opening = None;
                // The node is not a member, or soon will not be: further work would not count.
                self.stop(place, ended).await;
                while !self.active.is_empty() {
                    self.stop(0, ended).await;
                }
                return;
            }
        }
        self.stop(place, ended).await;
    }

    /// Ends the node's part in the job at this index. Its workers may still run.
    pub(super) async fn stop(&mut self, place: usize, ended: Ended) {
        let Active { job, running, .. } = self.active.remove(place);
        let stopping = running.stop(self.seat).await;
        self.closing.push(Closing { job, ended, stopping, since: time::Instant::now(), overdue: false });
    }

    /// Handles workers that have not returned from a job within the time limit.
    pub(super) async fn on_workers_overdue(&mut self, place: usize) {
        let Closing { job, stopping, overdue, .. } = &mut self.closing[place];
        let tasks = stopping.running_tasks().join(", ");
        let is_last = std::mem::replace(overdue, true) || self.intent == Intent::Leave;
        if !is_last {
            tracing::info!(
                node = %self.seat.node, %job, tasks,
                "the job is over for this node, but some of its tasks have not stopped yet; the node waits for them"
            );
            return;
        }
        tracing::error!(
            node = %self.seat.node, %job, tasks,
            "a task does not check whether it should stop (Context::migrate); its thread lingers until it \
             returns"
        );
        let closing = self.closing.remove(place);
        self.finish(closing).await;
        self.is_stuck = true;
        // Without any worker, the other jobs would only wait.
        if self.seat.crew.available() == 0 && !self.active.is_empty() {
            self.set_intent(Intent::Renew);
            self.retire_all();
        }
    }

    pub(super) async fn finish(&mut self, closing: Closing) {
        let Closing { job, ended, stopping, .. } = closing;
        let figures = stopping.done().await;
        closed_with(self.seat.node, &job, ended, &figures);
    }
}

/// Returns the obstacle because of which a node abandoned its tasks.
fn abandoned_why(seat: &Seat, job: &JobId, stopping: &Stopping) -> String {
    let tasks = stopping.running_tasks();
    if !tasks.is_empty() {
        let tasks = tasks.join(", ");
        return format!("job {job}: task {tasks} does not check whether it should stop (Context::migrate)");
    }
    if *seat.store.session().borrow() != Session::Connected {
        return format!("job {job}: ZooKeeper does not answer");
    }
    format!("job {job}: other nodes, or ZooKeeper, have not answered in time")
}
