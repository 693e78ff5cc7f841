//! A job on a cluster, seen by whoever has submitted it.

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

/// A job on a cluster. Dropping it does nothing to the job.
pub struct Submitted<T: Task> {
    client: Client,
    job: JobId,
    started: Instant,
    of: PhantomData<fn() -> T>,
}

/// Tells again and again how a job gets on, until it is over.
pub struct ProgressStream<'a, T: Task> {
    of: &'a Submitted<T>,
    every: Duration,
    /// When it is read next.
    due: Instant,
    /// Waits for the end of the job; `None` once it has come.
    end: Option<Ending<'a>>,
}

type Ending<'a> = Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send + 'a>>;

impl<T: Task> Submitted<T> {
    pub(super) fn new(client: Client, job: JobId, started: Instant) -> Self {
        Self { client, job, started, of: PhantomData }
    }

    /// Returns the id of the job, which is all that a program elsewhere needs to [find](Client::submitted) it
    /// again.
    pub fn id(&self) -> &JobId {
        &self.job
    }

    /// Returns the client, which is [patient](Client::with_patience) for as long as this job waits for it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The same job by another client, such as one that is more patient.
    #[must_use]
    pub fn by(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// Waits for the end of the job and returns what it has produced. It can be called again, and dropped
    /// before its end.
    ///
    /// If the job was cancelled, the report has [`finished`](Report::finished) false and what was committed
    /// by then.
    ///
    /// # Errors
    /// If the job has failed or was [forgotten](ClientError::Forgotten), or ZooKeeper was away for too long.
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

    /// Returns how the job gets on, at once and then regularly until it is over.
    pub fn progress(&self, every: Duration) -> ProgressStream<'_, T> {
        let end = Box::pin(async { self.ended().await.map(drop) });
        ProgressStream { of: self, every, due: Instant::now(), end: Some(end) }
    }

    /// Stops the job, if it is not over, and waits until that is recorded. Its [result](Self::result) is what
    /// was committed by then.
    ///
    /// # Errors
    /// If ZooKeeper was away for too long, or has no such job.
    pub async fn cancel(&self, reason: &str) -> Result<(), ClientError> {
        let cancelled = self.client.ask(|store| async move { self.tracked(store).stop(reason).await }).await;
        cancelled.map(drop).map_err(|error| self.forgotten(error))
    }

    /// Puts the job aside: its tasks are parked, and its nodes take the next job.
    ///
    /// # Errors
    /// As [`Client::suspend`].
    pub async fn suspend(&self) -> Result<(), ClientError> {
        self.client.suspend(&self.job).await
    }

    /// Lets the job go on after it was put aside.
    ///
    /// # Errors
    /// As [`Client::resume`].
    pub async fn resume(&self) -> Result<(), ClientError> {
        self.client.resume(&self.job).await
    }

    /// Tells the job something while it runs, such as a solution. Its program checks it.
    ///
    /// # Errors
    /// As [`Client::inject`].
    pub async fn inject(&self, said: serde_json::Value, timeout: Duration) -> Result<Answer, ClientError> {
        self.client.inject(&self.job, said, timeout).await
    }

    /// Waits for the end; returns what is recorded then, and how long the job took.
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

    /// What was there and is not there any more was forgotten: a report is never of a part.
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
    /// Returns how the job gets on now; `None` once it is over.
    ///
    /// # Errors
    /// If ZooKeeper was away for too long, or has no such job any more.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing but the reading.
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
