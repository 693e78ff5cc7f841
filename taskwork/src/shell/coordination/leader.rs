//! The leader's part: it ends the job when every task is accounted for, and begins a new attempt when a node
//! was lost.
//!
//! A leader holds nothing of its own: everything it decides by is in the tree, so any other node can go on
//! where it stopped. Whatever it writes carries its fence, so a leader that was deposed without knowing
//! changes nothing.

use std::{sync::Arc, time::Duration};

use zk::{
    accounting,
    election::{Candidate, Fence},
    figures::EventKind,
    job::{self, Closing, JobState, JobWatch, LeadError, NewAttempt},
    tidy,
};

use super::Coordination;
use crate::{id::Attempt, shell::clock::unix_ms};

/// Why a leader has stopped leading this attempt.
enum Stopped {
    /// The job is over, one way or another.
    JobOver,
    /// There is another attempt, or the job's state has changed: look again.
    Changed,
}

/// How often the leader looks for lost nodes although nothing says so: who came and went while it was cut off
/// is told by nobody.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What there may be in the tree of the node as a candidate.
#[derive(Debug, Default)]
pub(crate) enum Standing {
    /// Nothing by this job.
    #[default]
    No,
    /// It was to enter, and may have.
    Entering,
    Entered(Candidate),
}

/// Why a leader leads no more.
enum Led {
    /// Another node leads.
    Deposed,
    /// The job is put aside: others of the program may be at work on the next, and need a leader there.
    PutAside,
    /// There is nothing left to lead.
    Over,
}

impl Coordination {
    /// Stands for election, and leads when elected. The candidate stays when the job is over: the node takes
    /// the next one at once, and stands there as it stood here. Whoever cannot take it
    /// [withdraws](Self::withdraw).
    pub(super) async fn stand_for_election(self: Arc<Self>) {
        let node = self.node.to_string();
        let mut standing = self.standing.lock().await;
        let mut retry = self.retry();
        loop {
            *standing = Standing::Entering;
            let enter = || Candidate::enter(self.store(), &self.cluster, &self.release, &node);
            let Some(mut candidate) = self.persist("standing for election", enter).await else { return };
            let elected = candidate.elected().await;
            *standing = Standing::Entered(candidate);
            match elected {
                Ok(fence) => {
                    retry.succeeded();
                    tracing::info!("this node leads");
                    self.timeline.note(EventKind::Leads, "");
                    let led = tokio::select! {
                        biased;
                        led = self.lead(&fence) => led,
                        never = self.take_suggestions() => match never {},
                    };
                    match led {
                        Led::Deposed => {}
                        Led::Over => return,
                        Led::PutAside => {
                            self.step_down(&mut standing).await;
                            if !self.goes_on().await {
                                return;
                            }
                        }
                    }
                }
                Err(error) if retry.again(&*self.store, "waiting to be elected", &error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Stands for election no more, once the loop that does has ended.
    pub(crate) async fn withdraw(&self) {
        self.step_down(&mut *self.standing.lock().await).await;
    }

    async fn step_down(&self, standing: &mut Standing) {
        let entered: &Standing = standing;
        self.persist("standing for election no more", || self.take_back(entered)).await;
        *standing = Standing::No;
    }

    async fn take_back(&self, standing: &Standing) -> zk::Result<()> {
        match standing {
            Standing::No => Ok(()),
            Standing::Entered(candidate) => candidate.withdraw().await,
            // What an answer that was not waited for has left behind is taken up.
            Standing::Entering => {
                let node = self.node.to_string();
                Candidate::enter(self.store(), &self.cluster, &self.release, &node).await?.withdraw().await
            }
        }
    }

    /// Waits until a job that was put aside is at work again; false if that will not be.
    async fn goes_on(&self) -> bool {
        let open = || JobWatch::open(self.store(), &self.cluster, &self.job.0);
        let Some(mut watch) = self.persist("watching the job", open).await else { return false };
        let mut retry = self.retry();
        loop {
            match watch.next().await {
                Ok(record) if record.state == JobState::Suspended => retry.succeeded(),
                Ok(record) => return !record.state.is_over(),
                Err(zk::Error::NoNode { .. }) => return false,
                Err(error) if retry.again(&*self.store, "reading the job", &error).await => {}
                Err(_) => return false,
            }
        }
    }

    /// Leads until there is a reason to stop.
    async fn lead(&self, fence: &Fence) -> Led {
        let mut retry = self.retry();
        loop {
            let (record, _) = match job::read(&*self.store, &self.cluster, &self.job.0).await {
                Ok(read) => read,
                // It is over and forgotten.
                Err(zk::Error::NoNode { .. }) => return Led::Over,
                Err(error) if retry.again(&*self.store, "reading the job's record", &error).await => continue,
                Err(_) => return Led::Over,
            };
            match record.state {
                state if state.is_over() => return Led::Over,
                JobState::Suspended => return Led::PutAside,
                _ => {}
            }
            match self.lead_attempt(fence, Attempt(record.attempt)).await {
                Ok(Stopped::Changed) => retry.succeeded(),
                Err(LeadError::Store(error)) if retry.again(&*self.store, "leading", &error).await => {}
                Err(LeadError::Deposed) => return Led::Deposed,
                Ok(Stopped::JobOver) | Err(LeadError::Store(_)) => return Led::Over,
            }
        }
    }

    async fn lead_attempt(&self, fence: &Fence, attempt: Attempt) -> Result<Stopped, LeadError> {
        let paths = self.job_paths().attempt(attempt.0);
        let mut watch = JobWatch::open(self.store(), &self.cluster, &self.job.0).await?;
        self.tidy(fence, attempt).await;
        let empty = accounting::wait_until_empty(&*self.store, &paths);
        tokio::pin!(empty);
        loop {
            let lost = job::lost(&*self.store, &self.cluster, &paths).await?;
            if !lost.is_empty() {
                return self.begin_anew(fence, attempt, &lost).await;
            }
            tokio::select! {
                biased;
                done = &mut empty => {
                    done?;
                    return self.close(fence, attempt).await;
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

    /// Removes what means nothing any more. What fails is done the next time.
    async fn tidy(&self, fence: &Fence, attempt: Attempt) {
        let (store, job) = (&*self.store, self.job_paths());
        let tidied = async {
            tidy::earlier_attempts(store, fence, &job, attempt.0).await?;
            tidy::left_behind(store, fence, &job.attempt(attempt.0)).await
        };
        if let Err(error) = tidied.await {
            tracing::debug!(%error, "what means nothing any more stays for now");
        }
    }

    /// Some nodes were lost with what they held: the attempt cannot end any more.
    async fn begin_anew(
        &self,
        fence: &Fence,
        attempt: Attempt,
        lost: &[String],
    ) -> Result<Stopped, LeadError> {
        tracing::warn!(%attempt, ?lost, "nodes were lost; a new attempt begins");
        self.timeline.note(EventKind::Lost, lost.join(", "));
        let begun =
            job::new_attempt(&*self.store, fence, &self.cluster, &self.job.0, attempt.0, lost, unix_ms())
                .await?;
        Ok(match begun {
            NewAttempt::GaveUp => Stopped::JobOver,
            NewAttempt::Started(_) | NewAttempt::NotCurrent => Stopped::Changed,
        })
    }

    /// The variables as people can read them.
    fn shown_variables(&self) -> serde_json::Value {
        if !self.visibility.is_public() {
            return serde_json::Value::Null;
        }
        let variables = self.pool.variables();
        (0..variables.len()).map(|slot| (variables.name(slot).to_owned(), variables.shown(slot))).collect()
    }

    /// Every task is complete: the outputs are merged and the result is written.
    async fn close(&self, fence: &Fence, attempt: Attempt) -> Result<Stopped, LeadError> {
        let outputs = job::outputs(&*self.store, &self.job_paths().attempt(attempt.0)).await?;
        let outputs: Vec<Vec<u8>> = outputs.into_iter().map(|(_, output)| output).collect();
        let outcome = match Arc::clone(&self.pool).merge(outputs, self.visibility.is_public()).await {
            Ok((result, output)) => {
                let shown = serde_json::json!({ "output": output, "variables": self.shown_variables() });
                job::Outcome { result, shown }
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
            tracing::info!(%attempt, "the job is done");
            self.timeline.note(EventKind::Closed, format!("attempt {attempt}"));
        }
        Ok(match closing {
            Closing::Closed | Closing::AlreadyOver => Stopped::JobOver,
            Closing::NotCurrent => Stopped::Changed,
        })
    }
}
