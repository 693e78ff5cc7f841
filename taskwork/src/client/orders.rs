//! Changes of the state and the share of jobs, and the removal of their records.

use rand::Rng as _;
use zk::job::{self, JobRecord, NewShare, Retried, Share};

use super::{Client, ClientError, Stage, jobs::not_that, share};
use crate::{id::JobId, shell::clock::unix_ms};

impl Client {
    /// Cancels a job that is not over.
    ///
    /// # Errors
    /// If there is no such job, it is over already, or ZooKeeper was unavailable for too long.
    pub async fn cancel(&self, job: &JobId, reason: &str) -> Result<(), ClientError> {
        if self.record(job).await?.state.is_over() {
            return Err(ClientError::WrongState { job: job.clone(), reason: "is over already".to_owned() });
        }
        let now_ms = unix_ms();
        self.ask(|store| async move { job::cancel(&*store, self.cluster(), &job.0, reason, now_ms).await })
            .await
    }

    /// Finishes adding tasks to a job that [stays open](crate::Job::stay_open): the job is done when all its tasks are
    /// complete. Idempotent.
    ///
    /// # Errors
    /// If there is no such job, it was not submitted as one that stays open, or ZooKeeper was unavailable for
    /// too long.
    pub async fn finish(&self, job: &JobId) -> Result<(), ClientError> {
        let record = self.record(job).await?;
        if self.ask(|store| async move { job::finish(&*store, self.cluster(), &job.0).await }).await? {
            return Ok(());
        }
        Err(not_that(job, &record, "it was not submitted as one that stays open"))
    }

    /// Suspends a job: its tasks are parked, and its nodes work on other jobs.
    ///
    /// # Errors
    /// If there is no such job, it is neither running nor queued, only the nodes that work on it have its shared data
    /// ([`submit`](Self::submit)), or ZooKeeper was unavailable for too long.
    pub async fn suspend(&self, job: &JobId) -> Result<(), ClientError> {
        let record = self.record(job).await?;
        if !self.keeps_data(&record).await? {
            let reason = "cannot be suspended: its submitter has exited, so only the nodes that work on it have its \
                          data, and no node would keep it";
            return Err(ClientError::WrongState { job: job.clone(), reason: reason.to_owned() });
        }
        let now_ms = unix_ms();
        let suspended =
            self.ask(|store| async move { job::suspend(&*store, self.cluster(), &job.0, now_ms).await });
        if suspended.await? {
            return Ok(());
        }
        Err(not_that(job, &record, "only a running or queued job can be suspended"))
    }

    /// Resumes a suspended job.
    ///
    /// # Errors
    /// If there is no such job, it was not suspended, or ZooKeeper was unavailable for too long.
    pub async fn resume(&self, job: &JobId) -> Result<(), ClientError> {
        let record = self.record(job).await?;
        let now_ms = unix_ms();
        let resumed =
            self.ask(|store| async move { job::resume(&*store, self.cluster(), &job.0, now_ms).await });
        if resumed.await? {
            return Ok(());
        }
        Err(not_that(job, &record, "only a suspended job can be resumed"))
    }

    /// Changes the weight or the priority of a job that runs, is queued or is suspended. Its nodes apply it at once, without an
    /// interruption. Returns the share of the job from now on. Idempotent.
    ///
    /// # Errors
    /// If there is no such job, it is in another state, a value is out of range, or ZooKeeper was unavailable for too
    /// long.
    pub async fn set_share(
        &self,
        job: &JobId,
        weight: Option<u32>,
        priority: Option<i32>,
        by: &str,
    ) -> Result<Share, ClientError> {
        let of = self.record(job).await?.share;
        let checked = share(weight.unwrap_or(1), priority.unwrap_or(of.priority), of.exclusive)?;
        let new = NewShare { weight: weight.map(|_| checked.weight), priority };
        let now_ms = unix_ms();
        let set = self.ask(|store| async move {
            job::set_share(&*store, self.cluster(), &job.0, new, by, now_ms).await
        });
        let record = set.await?;
        if record.state.accepts_share() {
            return Ok(record.share);
        }
        let remedy = if record.state.is_over() {
            "only a job that is not over can be changed; submit another one with these values"
        } else {
            "it can be changed once it is submitted; try again"
        };
        Err(not_that(job, &record, remedy))
    }

    /// Retries the tasks that a job has [set aside](crate::Report::set_aside): the job runs again with these tasks
    /// alone, and keeps the output of the others. Returns their number.
    ///
    /// # Errors
    /// If there is no such job, it is not over with tasks set aside, or ZooKeeper was unavailable for too
    /// long.
    pub async fn retry(&self, job: &JobId) -> Result<usize, ClientError> {
        let record = self.record(job).await?;
        let key = &format!("{:032x}", rand::rng().random::<u128>());
        let retried =
            self.ask(|store| async move { job::retry(&*store, self.cluster(), &job.0, key).await }).await?;
        match retried {
            Retried::Begun(tasks) => Ok(tasks),
            Retried::Not(state) => {
                let record = JobRecord { state, ..record };
                Err(not_that(job, &record, "only an incomplete job can be retried"))
            }
        }
    }

    /// Removes all data of jobs that are over, or that were not completely submitted; with `force`, also of jobs
    /// with a submission in progress. If one of the jobs cannot be removed, none is.
    ///
    /// # Errors
    /// If there is no such job, one is not over, or ZooKeeper was unavailable for too long.
    pub async fn forget(&self, jobs: &[JobId], force: bool) -> Result<(), ClientError> {
        let overview = self.overview().await?;
        for job in jobs {
            self.check_forgettable(job, overview.job(&job.0).map(|entry| entry.stage), force)?;
        }
        for job in jobs {
            self.ask(|store| async move { job::forget(&*store, self.cluster(), &job.0).await }).await?;
        }
        Ok(())
    }

    fn check_forgettable(&self, job: &JobId, stage: Option<Stage>, force: bool) -> Result<(), ClientError> {
        let wrong =
            |reason: &str| Err(ClientError::WrongState { job: job.clone(), reason: reason.to_owned() });
        match stage {
            None => Err(self.no_job(job)),
            Some(Stage::Submitting) if !force => wrong(
                "is being submitted; if its submitter is gone, forget it after ten minutes, or with --force",
            ),
            // An unreadable job can still be removed.
            Some(
                Stage::Submitting
                | Stage::Abandoned
                | Stage::Done
                | Stage::Incomplete
                | Stage::Failed
                | Stage::Cancelled
                | Stage::Unreadable,
            ) => Ok(()),
            Some(Stage::Running | Stage::Queued | Stage::Waiting | Stage::NoNodes | Stage::Suspended) => {
                wrong("is not over: cancel it first")
            }
        }
    }
}
