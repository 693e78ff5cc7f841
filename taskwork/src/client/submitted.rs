//! A submitted job, as seen by its submitter.

use std::{
    fmt,
    future::poll_fn,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures_core::Stream;
use tokio::time;
use zk::{
    Store,
    job::{self, Added, JobRecord},
};

use super::{Answer, BoxFuture, Client, ClientError, provider::Provider};
use crate::{
    id::{JobId, TaskId},
    pool::VariableTable,
    report::{JobError, Progress, RawReport, Report, variables_of},
    shell::submit::{Root, Tracked},
    task::Task,
};

/// A job on a cluster. Awaiting it returns its [result](Self::result). Dropping it does not affect the job.
pub struct Submitted<T: Task> {
    job: AnyJob,
    of: PhantomData<fn() -> T>,
}

/// A submitted job with any type of task. Its futures are boxed, so that they are compiled with this crate and
/// not in every program.
struct AnyJob {
    client: Client,
    id: JobId,
    /// The key in the job's record, which no other job has.
    key: String,
    started: Instant,
    variables: fn() -> VariableTable,
    /// The providers of the shared data, if that is large, and of the program, if that travels with the job, if the job
    /// was submitted here.
    providers: Vec<Provider>,
}

/// A stream of progress reports of a job, until it is over. An error is reported if ZooKeeper was unavailable for too
/// long, or no longer has the job.
pub struct ProgressStream<'a> {
    of: &'a AnyJob,
    every: Duration,
    /// The next report.
    report: BoxFuture<'a, Result<Progress, ClientError>>,
    /// The future of the job's end; `None` once it has completed.
    end: Option<BoxFuture<'a, Result<(JobRecord, Duration), ClientError>>>,
}

impl<T: Task> Submitted<T> {
    pub(super) fn new(client: Client, id: JobId, key: String, started: Instant) -> Self {
        let variables = variables_of::<T>;
        Self { job: AnyJob { client, id, key, started, variables, providers: Vec::new() }, of: PhantomData }
    }

    pub(super) fn with_providers(mut self, providers: Vec<Provider>) -> Self {
        self.job.providers = providers;
        self
    }

    /// Returns the id of the job, with which a program elsewhere can [find](Client::submitted) it.
    pub fn id(&self) -> &JobId {
        &self.job.id
    }

    /// Returns the client, whose [patience](Client::with_patience) applies to this job.
    pub fn client(&self) -> &Client {
        &self.job.client
    }

    /// Returns the same job with another client, for example one with more patience.
    #[must_use]
    pub fn by(mut self, client: Client) -> Self {
        self.job.client = client;
        self
    }

    /// Returns whether members fetch from this process: the job's shared data, because it is too large to be stored in
    /// ZooKeeper, or its program, because that [travels](crate::Job::bring_program) with it.
    pub fn brings_data(&self) -> bool {
        !self.job.providers.is_empty()
    }

    /// Waits until so many nodes have fetched the job's shared data from this process, or the job is over; returns
    /// immediately if the data is in ZooKeeper. Of a program that travels with the job, so many of the agents that have the
    /// labels which the job requires must have it, or all of them, if there are fewer, or the first one, if there is none.
    /// An agent that refuses the submitter counts, although it never fetches the program. While the job waits for
    /// [others](crate::Job::after), no agent fetches its program. After that the process may exit: other nodes get the data
    /// from those that have it. If all of these leave or are lost before that, the job waits forever.
    ///
    /// # Errors
    /// As [`result`](Self::result), if the job is over first.
    pub async fn handed_over(&self, nodes: usize) -> Result<(), ClientError> {
        self.job.handed_over(nodes).await
    }

    /// Stops providing the job's shared data, and leaves the cluster. Otherwise this process remains a member until
    /// this value is dropped, or its session has expired.
    pub async fn withdraw_data(&mut self) {
        for provider in self.job.providers.drain(..) {
            provider.leave().await;
        }
    }

    /// Waits until the job is over and returns its report. It can be called repeatedly, and the future can
    /// be dropped.
    ///
    /// If the job was cancelled, the report has [`finished`](Report::finished) false and the output committed
    /// by then.
    ///
    /// # Errors
    /// If the job has failed or was [forgotten](ClientError::Forgotten), or ZooKeeper was unavailable for too
    /// long.
    pub async fn result(&self) -> Result<Report<T>, ClientError> {
        Ok(self.job.result().await?.decode()?)
    }

    /// Returns a stream of the job's progress: one report immediately, and then one per period.
    pub fn progress(&self, every: Duration) -> ProgressStream<'_> {
        let report = self.job.progress_at(Instant::now());
        ProgressStream { of: &self.job, every, report, end: Some(self.job.end()) }
    }

    /// Cancels the job, unless it is over, and waits until that is recorded. Its [result](Self::result) then is
    /// the output committed so far.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long, or has no such job.
    pub async fn cancel(&self, reason: &str) -> Result<(), ClientError> {
        self.job.cancel(reason).await
    }

    /// Suspends the job: its tasks are parked, and its nodes work on other jobs.
    ///
    /// # Errors
    /// As [`Client::suspend`].
    pub async fn suspend(&self) -> Result<(), ClientError> {
        self.job.check_key().await?;
        self.job.client.suspend(&self.job.id).await
    }

    /// Resumes the job after it was suspended.
    ///
    /// # Errors
    /// As [`Client::resume`].
    pub async fn resume(&self) -> Result<(), ClientError> {
        self.job.check_key().await?;
        self.job.client.resume(&self.job.id).await
    }

    /// Adds a root task to the job, which must [stay open](crate::Job::stay_open), and returns the task's id. The
    /// task is added once, even if requests are retried; the job's output includes the task's output.
    ///
    /// # Errors
    /// If the job is over, was not submitted as one that stays open, or adding was [finished](Client::finish); if
    /// 10,000 tasks were added; if the task cannot be encoded; or if ZooKeeper was unavailable for too long: then
    /// it is unknown whether the task was added.
    pub async fn add(&self, task: T) -> Result<TaskId, ClientError> {
        let encoded = |error| ClientError::Job(JobError::Encode(error));
        self.job.add(Root::added(task).map_err(encoded)?).await
    }

    /// Finishes adding tasks to the job.
    ///
    /// # Errors
    /// As [`Client::finish`].
    pub async fn finish(&self) -> Result<(), ClientError> {
        self.job.check_key().await?;
        self.job.client.finish(&self.job.id).await
    }

    /// Passes a suggestion, such as a solution, to the job while it runs. Its program checks it.
    ///
    /// # Errors
    /// As [`Client::inject`].
    pub async fn inject(&self, said: serde_json::Value, timeout: Duration) -> Result<Answer, ClientError> {
        self.job.check_key().await?;
        self.job.client.inject(&self.job.id, said, timeout).await
    }
}

impl AnyJob {
    fn add(&self, root: Root) -> BoxFuture<'_, Result<TaskId, ClientError>> {
        Box::pin(async move {
            self.check_key().await?;
            let (client, root) = (&self.client, &root);
            let added = client.ask(|store| async move {
                job::add(&*store, client.cluster(), &self.id.0, root.id(), root.bytes()).await
            });
            match added.await? {
                Added::Added => Ok(root.task()),
                Added::Not(why) => Err(ClientError::WrongState {
                    job: self.id.clone(),
                    reason: format!("accepts no task: {why}"),
                }),
            }
        })
    }

    fn handed_over(&self, nodes: usize) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            if self.providers.is_empty() {
                return Ok(());
            }
            let handed_over = async {
                for provider in &self.providers {
                    if provider.is_for_agents() {
                        let record =
                            self.client.ask(|store| async move { self.tracked(store).record().await });
                        let record = record.await.map_err(|error| self.forgotten(error))?;
                        self.client.program_handed_over(provider, &record, nodes).await?;
                    } else {
                        provider.taken_by(|takers| takers.len() >= nodes).await;
                    }
                }
                Ok(())
            };
            tokio::select! {
                biased;
                handed_over = handed_over => handed_over,
                end = self.end() => end.map(drop),
            }
        })
    }

    /// Waits until the job is over; returns the final record and the duration of the job.
    fn end(&self) -> BoxFuture<'_, Result<(JobRecord, Duration), ClientError>> {
        Box::pin(async move {
            let ended = self.client.ask(|store| async move { self.tracked(store).end().await });
            let record = self.client.attended(ended).await.map_err(|error| self.forgotten(error))?;
            Ok((record, self.started.elapsed()))
        })
    }

    /// Waits until the job is over, and reads the result.
    fn result(&self) -> BoxFuture<'_, Result<RawReport, ClientError>> {
        Box::pin(async move {
            let (record, took) = &self.end().await?;
            let read = self.client.ask(|store| async move {
                let tracked = self.tracked(store);
                tracked.set_took(*took);
                tracked.outcome(record, (self.variables)()).await
            });
            read.await.map_err(|error| self.forgotten(error))
        })
    }

    fn cancel<'a>(&'a self, reason: &'a str) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let stopped = self.client.ask(|store| async move { self.tracked(store).stop(reason).await });
            stopped.await.map(drop).map_err(|error| self.forgotten(error))
        })
    }

    fn progress_at(&self, due: Instant) -> BoxFuture<'_, Result<Progress, ClientError>> {
        Box::pin(async move {
            time::sleep_until(due.into()).await;
            let read = self
                .client
                .ask(|store| async move { self.tracked(store).progress((self.variables)()).await });
            read.await.map_err(|error| self.forgotten(error))
        })
    }

    /// Fails if ZooKeeper was replaced by an empty one, in which another job has the same id.
    fn check_key(&self) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            let read = self.client.ask(|store| async move { self.tracked(store).record().await });
            read.await.map(drop).map_err(|error| self.forgotten(error))
        })
    }

    fn tracked(&self, store: Arc<dyn Store>) -> Tracked {
        Tracked::new(store, self.client.cluster().clone(), self.id.clone(), self.started).with_key(&self.key)
    }

    /// Converts an error: a missing znode means that the job was forgotten. No partial report is ever
    /// returned.
    fn forgotten(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Job(JobError::Coordination(error))
                if matches!(error.0, zk::Error::NoNode { .. }) =>
            {
                ClientError::Forgotten { job: self.id.clone() }
            }
            other => other,
        }
    }
}

impl ProgressStream<'_> {
    /// Returns the next report; `None` once the job is over. It is the same as `StreamExt::next`.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long, or no longer has the job.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no report.
    pub async fn next(&mut self) -> Option<Result<Progress, ClientError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for ProgressStream<'_> {
    type Item = Result<Progress, ClientError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let Some(end) = &mut this.end else { return Poll::Ready(None) };
        if let Poll::Ready(ended) = end.as_mut().poll(cx) {
            this.end = None;
            return Poll::Ready(ended.err().map(Err));
        }
        let progress = ready!(this.report.as_mut().poll(cx));
        this.report = this.of.progress_at(Instant::now() + this.every);
        Poll::Ready(Some(progress))
    }
}

impl<T: Task> IntoFuture for Submitted<T> {
    type Output = Result<Report<T>, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Waits until the job is over, as [`result`](Self::result) does.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.result().await })
    }
}

impl fmt::Debug for ProgressStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream")
            .field("job", &self.of.id)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl<T: Task> fmt::Debug for Submitted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("job", &self.job.id).finish_non_exhaustive()
    }
}
