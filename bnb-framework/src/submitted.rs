//! A search on a cluster, as seen by its submitter.

use std::{fmt, pin::Pin};

use taskwork::{
    ClientError, JobId,
    client::{ProgressStream, Submitted},
};

use crate::{
    problem::Problem,
    search::SearchTask,
    solver::{Observer, Progress, RunSettings, Solved},
};

/// A search on a cluster, returned by [`Solver::submit`](crate::Solver::submit). Awaiting it returns its
/// [result](Self::solved). Dropping it does not affect the search.
pub struct SubmittedSearch<P: Problem> {
    submitted: Submitted<SearchTask<P>>,
    settings: RunSettings<P>,
}

impl<P: Problem> SubmittedSearch<P> {
    pub(crate) fn new(submitted: Submitted<SearchTask<P>>, settings: RunSettings<P>) -> Self {
        Self { submitted, settings }
    }

    /// Returns the id of the job.
    pub fn id(&self) -> &JobId {
        self.submitted.id()
    }

    /// Returns the job, which can be cancelled, suspended, resumed and given a solution.
    pub fn job(&self) -> &Submitted<SearchTask<P>> {
        &self.submitted
    }

    /// Waits for the end of the search, and returns its result. Meanwhile the observer receives the progress,
    /// and the stopper cancels the search. This can be called again, and the future can be dropped before the
    /// end.
    ///
    /// # Errors
    /// As for [`Submitted::result`].
    pub async fn solved(&mut self) -> Result<Solved<P>, ClientError> {
        let Self { submitted, settings } = self;
        let stopping = async {
            settings.stopper.stopped().await;
            match submitted.cancel("stopped by its submitter").await {
                // The result has the solutions found until then.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        let report = tokio::select! {
            biased;
            report = submitted.result() => report?,
            error = stopping => return Err(error),
            () = tell(submitted, settings.observer.as_mut()) => unreachable!("nobody stops telling"),
        };
        Ok(Solved::from_report(&report, &settings.options))
    }
}

impl<P: Problem> IntoFuture for SubmittedSearch<P> {
    type Output = Result<Solved<P>, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Waits for the end of the search, as [`solved`](Self::solved) does.
    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move { self.solved().await })
    }
}

/// Reports the progress of the search to an observer, forever.
async fn tell<P: Problem>(submitted: &Submitted<SearchTask<P>>, observer: Option<&mut Observer<P>>) {
    if let Some(Observer { every, tell }) = observer {
        let mut stream: ProgressStream<'_> = submitted.progress(*every);
        while let Some(read) = stream.next().await {
            // An error that is temporary is gone at the next read; the result reports any other.
            if let Ok(progress) = read {
                tell(&Progress::from_progress(&progress));
            }
        }
    }
    std::future::pending::<()>().await;
}

impl<P: Problem> fmt::Debug for SubmittedSearch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submitted.fmt(f)
    }
}
