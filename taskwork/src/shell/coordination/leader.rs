//! The leader's tasks: it closes the job when every task is accounted for, and starts a new attempt after the
//! loss of a node that had not written all of its holdings.
//!
//! A leader has no state of its own: all its decisions are based on the tree, so any other node can take over.
//! Its writes carry its fence, so writes of a leader that was deposed without noticing have no effect.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use zk::{
    AttemptPaths, Store as _, accounting,
    election::{Candidate, Fence},
    figures::EventKind,
    job::{self, Closing, JobState, JobWatch, LeadError, NewAttempt},
    quarantine::{self, AboutTask},
    tidy,
};

use super::Coordination;
use crate::{holdings::Holdings, id::Attempt, pool::Merged, shell::clock::unix_ms, wire::codec};

/// The reasons for which a leader stops leading an attempt.
enum Stopped {
    /// The job is over, with or without a result.
    JobOver,
    /// Another attempt has started, or the job's state has changed: read it again.
    Changed,
}

/// The interval at which the leader looks for lost nodes without an event: a node that came and went while the
/// leader was disconnected causes none.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The maximum number of tasks set aside that a result names. The job's record names the first one, `quarantine/`
/// all of them.
const SET_ASIDE_SHOWN_MAX: usize = 100;

/// The lost nodes that this node, as leader, has found to be completely written, with their attempts. Kept during outages and
/// suspensions, so that each is reported once.
type Judged = BTreeSet<(Attempt, String)>;

/// The state of the node's candidate in the tree.
#[derive(Debug, Default)]
pub(crate) enum Standing {
    /// This job has created no candidate.
    #[default]
    No,
    /// The creation was requested; its outcome is unknown.
    Entering,
    Entered(Candidate),
}

/// Returns whether a node held more than these holdings contain, or may have.
fn is_unprotected(held: &[u8]) -> bool {
    codec::decode::<Holdings>(held).map_or(true, |held| held.unprotected)
}

/// Returns why the result of a job is incomplete; `None` if it is complete.
fn incomplete_reason(set_aside: &[(String, AboutTask)]) -> Option<String> {
    let (task, about) = set_aside.first()?;
    let what = match set_aside.len() {
        1 => format!("task {task} was set aside after it had failed on {} nodes in a row", about.crashes),
        more => format!("{more} tasks were set aside, the first of them {task}"),
    };
    let said =
        if about.reason.is_empty() { String::new() } else { format!("; it last said: {}", about.reason) };
    Some(what + &said)
}

/// The reasons for which a leader stops leading.
enum Led {
    /// Another node leads.
    Deposed,
    /// There is nothing left to lead.
    Over,
}

impl Coordination {
    /// Stands for election, and leads when elected. When this returns, the candidate remains until the node
    /// [withdraws](Self::withdraw) it.
    pub(super) async fn stand_for_election(self: Arc<Self>) {
        let node = self.node.to_string();
        let mut standing = self.standing.lock().await;
        let (mut retry, mut judged) = (self.retry(), Judged::default());
        loop {
            *standing = Standing::Entering;
            let enter = || Candidate::enter(self.store(), &self.cluster, &self.job.0, &node);
            let Some(mut candidate) = self.persist("standing for election", enter).await else { return };
            let elected = candidate.elected().await;
            *standing = Standing::Entered(candidate);
            match elected {
                Ok(fence) => {
                    retry.succeeded();
                    tracing::info!("this node leads");
                    self.has_led.store(true, Relaxed);
                    self.timeline.note(EventKind::Leads, "");
                    let led = tokio::select! {
                        biased;
                        led = self.lead(&fence, &mut judged) => led,
                        never = self.take_suggestions() => match never {},
                    };
                    match led {
                        Led::Deposed => {}
                        Led::Over => {
                            if !self.wait_until_retried().await {
                                return;
                            }
                        }
                    }
                }
                Err(zk::Error::NoNode { path }) => {
                    tracing::warn!(path, "the node's candidate is gone; it stands for election again");
                }
                Err(error) if retry.again(&*self.store, "waiting to be elected", &error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Removes the candidate after the election loop has stopped. If the node has led and the job is over, also
    /// removes the data that the job no longer needs.
    pub(crate) async fn withdraw(&self) {
        let standing = &mut *self.standing.lock().await;
        let entered: &Standing = standing;
        self.persist("withdrawing from the election", || self.withdraw_candidate(entered)).await;
        *standing = Standing::No;
        if self.has_led.load(Relaxed)
            && let Err(error) = job::release(&*self.store, &self.cluster, &self.job.0).await
        {
            // The cleanup of another node removes it later.
            tracing::debug!(%error, "data that the job no longer needs could not be removed yet");
        }
    }

    async fn withdraw_candidate(&self, standing: &Standing) -> zk::Result<()> {
        match standing {
            Standing::No => Ok(()),
            Standing::Entered(candidate) => candidate.withdraw().await,
            // Finds the candidate of a request with an unknown outcome.
            Standing::Entering => {
                let node = self.node.to_string();
                Candidate::enter(self.store(), &self.cluster, &self.job.0, &node).await?.withdraw().await
            }
        }
    }

    /// Waits until a suspended job is resumed; returns false if it never will be.
    async fn wait_until_resumed(&self) -> bool {
        self.wait_to_leave(JobState::Suspended).await
    }

    /// Waits until an incomplete job is retried; returns false if it never will be. The node may have missed that
    /// the job was over.
    async fn wait_until_retried(&self) -> bool {
        self.wait_to_leave(JobState::Incomplete).await
    }

    /// Waits until the job leaves this state; returns false if the job is over then.
    async fn wait_to_leave(&self, left: JobState) -> bool {
        let open = || JobWatch::open(self.store(), &self.cluster, &self.job.0);
        let Some(mut watch) = self.persist("watching the job", open).await else { return false };
        let mut retry = self.retry();
        loop {
            match watch.next().await {
                Ok(record) if record.state == left => retry.succeeded(),
                Ok(record) => return !record.state.is_over(),
                Err(zk::Error::NoNode { .. }) => return false,
                Err(error) if retry.again(&*self.store, "reading the job", &error).await => {}
                Err(_) => return false,
            }
        }
    }

    /// Leads until there is a reason to stop.
    async fn lead(&self, fence: &Fence, judged: &mut Judged) -> Led {
        let mut retry = self.retry();
        loop {
            let (record, _) = match job::read(&*self.store, &self.cluster, &self.job.0).await {
                Ok(read) => read,
                // The job is over and was removed.
                Err(zk::Error::NoNode { .. }) => return Led::Over,
                Err(error) if retry.again(&*self.store, "reading the job's record", &error).await => continue,
                Err(_) => return Led::Over,
            };
            match record.state {
                state if state.is_over() => return Led::Over,
                JobState::Suspended if self.wait_until_resumed().await => continue,
                JobState::Suspended => return Led::Over,
                _ => {}
            }
            match self.lead_attempt(fence, Attempt(record.attempt), record.stays_open, judged).await {
                Ok(Stopped::Changed) => retry.succeeded(),
                Err(LeadError::Store(error)) if retry.again(&*self.store, "leading", &error).await => {}
                Err(LeadError::Deposed) => return Led::Deposed,
                Ok(Stopped::JobOver) | Err(LeadError::Store(_)) => return Led::Over,
            }
        }
    }

    async fn lead_attempt(
        &self,
        fence: &Fence,
        attempt: Attempt,
        stays_open: bool,
        judged: &mut Judged,
    ) -> Result<Stopped, LeadError> {
        let paths = self.job_paths().attempt(attempt.0);
        let mut watch = JobWatch::open(self.store(), &self.cluster, &self.job.0).await?;
        self.tidy(fence, attempt).await;
        let empty = accounting::wait_until_empty(&*self.store, &paths);
        let settled = self.settle(fence, &paths);
        tokio::pin!(empty, settled);
        let mut is_settled = !stays_open;
        loop {
            let lost = self.lost_for_good(attempt, &paths, judged).await?;
            if !lost.is_empty() {
                return self.start_new_attempt(fence, attempt, &lost).await;
            }
            tokio::select! {
                biased;
                done = &mut empty => {
                    done?;
                    return self.close(fence, attempt).await;
                }
                done = &mut settled, if !is_settled => {
                    done?;
                    is_settled = true;
                }
                () = self.member_gone.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => self.tidy(fence, attempt).await,
                record = watch.next() => {
                    let record = record?;
                    if record.state.is_over() {
                        return Ok(Stopped::JobOver);
                    }
                    if record.attempt != attempt.0 || record.state == JobState::Suspended {
                        return Ok(Stopped::Changed);
                    }
                }
            }
        }
    }

    /// Starts the root tasks that were added to the job before this attempt; returns when no more can be added.
    async fn settle(&self, fence: &Fence, attempt: &AttemptPaths) -> Result<(), LeadError> {
        let job = self.job_paths();
        loop {
            let (open, changed) = self.store.exists_and_watch(&job.open()).await?;
            job::settle(&*self.store, fence, &job, attempt).await?;
            if open.is_none() {
                return Ok(());
            }
            // If the session has ended, the next request fails.
            changed.await;
        }
    }

    /// Returns the lost nodes that had not written all of their holdings, so that no other node can continue from
    /// them. Holdings that were completely written are left for hungry nodes to claim.
    async fn lost_for_good(
        &self,
        attempt: Attempt,
        paths: &AttemptPaths,
        judged: &mut Judged,
    ) -> zk::Result<Vec<String>> {
        let (mut lost_for_good, mut continued) = (Vec::new(), Vec::new());
        for node in job::lost(&*self.store, &self.cluster, paths).await? {
            let key = (attempt, node.clone());
            if judged.contains(&key) {
                continue;
            }
            let held = accounting::held(&*self.store, paths, &node).await?;
            if held.is_some_and(|held| is_unprotected(&held)) {
                lost_for_good.push(node);
                continue;
            }
            tracing::warn!(%node, "a node was lost; others continue from its last write");
            judged.insert(key);
            continued.push(node);
        }
        // One event for all of them: a new leader reports all earlier losses, and few events are kept.
        if !continued.is_empty() {
            let names = continued.join(", ");
            self.timeline.note(EventKind::Lost, format!("{names}; others continue from what was written"));
        }
        Ok(lost_for_good)
    }

    /// Removes obsolete data. A failed removal is retried at the next call.
    async fn tidy(&self, fence: &Fence, attempt: Attempt) {
        let (store, job) = (&*self.store, self.job_paths());
        let tidied = async {
            tidy::earlier_attempts(store, fence, &job, attempt.0).await?;
            tidy::left_behind(store, fence, &self.cluster, &job.attempt(attempt.0)).await
        };
        if let Err(error) = tidied.await {
            tracing::debug!(%error, "obsolete data could not be removed yet");
        }
    }

    /// Starts a new attempt: tasks were lost with nodes, so the current attempt cannot complete.
    async fn start_new_attempt(
        &self,
        fence: &Fence,
        attempt: Attempt,
        lost: &[String],
    ) -> Result<Stopped, LeadError> {
        tracing::warn!(%attempt, ?lost, "nodes were lost; a new attempt starts");
        let names = lost.join(", ");
        self.timeline
            .note(EventKind::Lost, format!("{names}; held more than was written: a new attempt starts"));
        let begun =
            job::new_attempt(&*self.store, fence, &self.cluster, &self.job.0, attempt.0, lost, unix_ms())
                .await?;
        Ok(match begun {
            NewAttempt::GaveUp => Stopped::JobOver,
            NewAttempt::Started(_) | NewAttempt::NotCurrent => Stopped::Changed,
        })
    }

    /// Returns the variables as JSON, for display.
    pub(super) fn shown_variables(&self) -> serde_json::Value {
        if !self.visibility.is_public() {
            return serde_json::Value::Null;
        }
        let variables = self.pool.variables();
        (0..variables.len()).map(|slot| (variables.name(slot).to_owned(), variables.shown(slot))).collect()
    }

    /// Closes the job once all tasks are complete: merges the outputs and writes the result.
    async fn close(&self, fence: &Fence, attempt: Attempt) -> Result<Stopped, LeadError> {
        let outputs = job::outputs(&*self.store, &self.job_paths().attempt(attempt.0)).await?;
        let outputs: Vec<Vec<u8>> = outputs.into_iter().map(|(_, output)| output).collect();
        let set_aside = quarantine::list(&*self.store, &self.job_paths().attempt(attempt.0)).await?;
        let outcome = match Arc::clone(&self.pool).merge(outputs, self.visibility.is_public()).await {
            Ok(Merged { encoded: result, shown: output, failure }) => {
                let mut shown = serde_json::json!({ "output": output, "variables": self.shown_variables() });
                if !set_aside.is_empty() {
                    let tasks = set_aside
                        .iter()
                        .take(SET_ASIDE_SHOWN_MAX)
                        .map(|(task, AboutTask { crashes, reason, .. })| {
                            serde_json::json!({ "task": task, "crashes": crashes, "reason": reason })
                        });
                    shown["set_aside"] = tasks.collect();
                }
                job::Outcome { result, shown, failure, incomplete: incomplete_reason(&set_aside) }
            }
            Err(fault) => {
                job::fail(&*self.store, &self.cluster, &self.job.0, &fault.to_string(), unix_ms()).await?;
                return Ok(Stopped::JobOver);
            }
        };
        let closing =
            job::close(&*self.store, fence, &self.cluster, &self.job.0, attempt.0, &outcome, unix_ms())
                .await?;
        if closing == Closing::Closed {
            tracing::info!(%attempt, failure = outcome.failure, "the job is over");
            self.timeline.note(EventKind::Closed, format!("attempt {attempt}"));
        }
        Ok(match closing {
            Closing::Closed | Closing::AlreadyOver => Stopped::JobOver,
            Closing::NotCurrent => Stopped::Changed,
        })
    }
}
