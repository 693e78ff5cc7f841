//! A submitted job, as seen by its submitter.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time;
use zk::{Store, job::JobRecord};

use super::{Answer, Client, ClientError};
use crate::{
    id::JobId,
    report::{JobError, Progress, Report},
    shell::submit::Tracked,
    task::Task,
};

/// A job on a cluster. Dropping it does not affect the job.
pub struct Submitted<T: Task> {
    client: Client,
    job: JobId,
    started: Instant,
    of: PhantomData<fn() -> T>,
}

/// A stream of progress reports of a job, until it is over.
pub struct ProgressStream<'a, T: Task> {
    of: &'a Submitted<T>,
    every: Duration,
    /// The time of the next report.
    due: Instant,
    /// The future of the job's end; `None` once it has completed.
    end: Option<Ending<'a>>,
}

type Ending<'a> = Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send + 'a>>;

impl<T: Task> Submitted<T> {
    pub(super) fn new(client: Client, job: JobId, started: Instant) -> Self {
        Self { client, job, started, of: PhantomData }
    }

    /// Returns the id of the job, by which a program elsewhere can [find](Client::submitted) it again.
    pub fn id(&self) -> &JobId {
        &self.job
    }

    /// Returns the client, whose [patience](Client::with_patience) applies to this job.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the same job with another client, such as a more patient one.
    #[must_use]
    pub fn by(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// Waits for the end of the job and returns its report. It can be called repeatedly, and the future can
    /// be dropped.
    ///
    /// If the job was cancelled, the report has [`finished`](Report::finished) false and the output committed
    /// by then.
    ///
    /// # Errors
    /// If the job has failed or was [forgotten](ClientError::Forgotten), or ZooKeeper was unavailable for too
    /// long.
    pub async fn result(&self) -> Result<Report<T>, ClientError> {
        let (record, took) = &self.ended().await?;
        self.client
            .ask(|store| async move {
                let tracked = self.tracked(store);
                tracked.set_took(*took);
                tracked.outcome::<T>(record).await
            })
            .await
            .map_err(|error| self.forgotten(error))
    }

    /// Returns a stream of the job's progress, with one report at once and then one per period.
    pub fn progress(&self, every: Duration) -> ProgressStream<'_, T> {
        let end = Box::pin(async { self.ended().await.map(drop) });
        ProgressStream { of: self, every, due: Instant::now(), end: Some(end) }
    }

    /// Cancels the job, unless it is over, and waits until that is recorded. Its [result](Self::result) is
    /// the output committed by then.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long, or has no such job.
    pub async fn cancel(&self, reason: &str) -> Result<(), ClientError> {
        let cancelled = self.client.ask(|store| async move { self.tracked(store).stop(reason).await }).await;
        cancelled.map(drop).map_err(|error| self.forgotten(error))
    }

    /// Suspends the job: its tasks are parked, and its nodes take the next job.
    ///
    /// # Errors
    /// As [`Client::suspend`].
    pub async fn suspend(&self) -> Result<(), ClientError> {
        self.client.suspend(&self.job).await
    }

    /// Resumes the job after it was suspended.
    ///
    /// # Errors
    /// As [`Client::resume`].
    pub async fn resume(&self) -> Result<(), ClientError> {
        self.client.resume(&self.job).await
    }

    /// Passes a suggestion, such as a solution, to the job while it runs. Its program checks it.
    ///
    /// # Errors
    /// As [`Client::inject`].
    pub async fn inject(&self, said: serde_json::Value, timeout: Duration) -> Result<Answer, ClientError> {
        self.client.inject(&self.job, said, timeout).await
    }

    /// Waits for the end; returns the final record and the duration of the job.
    async fn ended(&self) -> Result<(JobRecord, Duration), ClientError> {
        let ended = self.client.ask(|store| async move { self.tracked(store).end().await });
        let record = self.client.attended(ended).await.map_err(|error| self.forgotten(error))?;
        Ok((record, self.started.elapsed()))
    }

    async fn progress_now(&self) -> Result<Progress, ClientError> {
        let read = self.client.ask(|store| async move { self.tracked(store).progress::<T>().await });
        read.await.map_err(|error| self.forgotten(error))
    }

    fn tracked(&self, store: Arc<dyn Store>) -> Tracked {
        Tracked::new(store, self.client.cluster().clone(), self.job.clone(), self.started)
    }

    /// Converts an error: a missing znode means that the job was forgotten. No partial report is ever
    /// returned.
    fn forgotten(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Job(JobError::Coordination(error))
                if matches!(error.0, zk::Error::NoNode { .. }) =>
            {
                ClientError::Forgotten { job: self.job.clone() }
            }
            other => other,
        }
    }
}

impl<T: Task> ProgressStream<'_, T> {
    /// Returns the current progress of the job; `None` once it is over.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long, or no longer has the job.
    ///
    /// # Cancellation safety
    /// Dropping the future loses only that report.
    pub async fn next(&mut self) -> Option<Result<Progress, ClientError>> {
        let end = self.end.as_mut()?;
        let read = async {
            time::sleep_until(self.due.into()).await;
            self.of.progress_now().await
        };
        tokio::select! {
            biased;
            ended = end => {
                self.end = None;
                ended.err().map(Err)
            }
            progress = read => {
                self.due = Instant::now() + self.every;
                Some(progress)
            }
        }
    }
}

impl<T: Task> fmt::Debug for ProgressStream<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream")
            .field("of", self.of)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl<T: Task> fmt::Debug for Submitted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("job", &self.job).finish_non_exhaustive()
    }
}
