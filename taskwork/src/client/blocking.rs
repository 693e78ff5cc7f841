//! A blocking client, for programs without their own tokio runtime.

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Runtime;

use super::{Answer, ClientBuilder, ClientError, Overview};
use crate::{
    id::{JobId, NodeId, TaskId},
    job::Job,
    node::{NodeBuilder, NodeError},
    report::{Progress, Report},
    task::Task,
};

/// A [`Client`](super::Client) with its own thread for its connections.
///
/// # Panics
/// Its methods panic within a tokio runtime, where the asynchronous client must be used.
#[derive(Clone)]
pub struct Client {
    client: super::Client,
    runtime: Arc<Runtime>,
}

/// A [`Submitted`](super::Submitted) job.
pub struct Submitted<T: Task> {
    submitted: super::Submitted<T>,
    runtime: Arc<Runtime>,
}

/// A [`Node`](crate::Node) within this process.
#[derive(Debug)]
pub struct Node {
    node: crate::Node,
    runtime: Arc<Runtime>,
}

impl Client {
    /// Connects. See [`ClientBuilder::connect`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`]; and if no thread could be started.
    pub fn connect(builder: ClientBuilder) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Invalid {
            reason: format!("no thread could be started: {error}"),
        })?;
        let client = runtime.block_on(builder.connect())?;
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// Returns the asynchronous client, for operations without a blocking variant: see [`block_on`](Self::block_on).
    pub fn inner(&self) -> &super::Client {
        &self.client
    }

    /// Runs a future of the asynchronous client: `client.block_on(client.inner().job(&id))`.
    pub fn block_on<R>(&self, future: impl Future<Output = R>) -> R {
        self.runtime.block_on(future)
    }

    /// Submits a job. See [`Client::submit`](super::Client::submit).
    ///
    /// # Errors
    /// As there.
    pub fn submit<T: Task>(&self, job: Job<T>) -> Result<Submitted<T>, ClientError> {
        let submitted = self.block_on(self.client.submit(job))?;
        Ok(Submitted { submitted, runtime: Arc::clone(&self.runtime) })
    }

    /// Starts a node within this process. See [`NodeBuilder::serve`].
    ///
    /// # Errors
    /// As there.
    pub fn serve(&self, node: NodeBuilder) -> Result<Node, NodeError> {
        let _entered = self.runtime.enter();
        Ok(Node { node: node.serve()?, runtime: Arc::clone(&self.runtime) })
    }

    /// Returns the cluster as it is now. See [`Client::overview`](super::Client::overview).
    ///
    /// # Errors
    /// As there.
    pub fn overview(&self) -> Result<Overview, ClientError> {
        self.block_on(self.client.overview())
    }

    /// Asks a node to leave. See [`Client::drain`](super::Client::drain).
    ///
    /// # Errors
    /// As there.
    pub fn drain(&self, node: NodeId) -> Result<(), ClientError> {
        self.block_on(self.client.drain(node))
    }

    /// Ends the session.
    pub fn close(self) {
        self.block_on(self.client.close());
    }
}

impl<T: Task> Submitted<T> {
    /// Returns the id of the job.
    pub fn id(&self) -> &JobId {
        self.submitted.id()
    }

    /// Waits until the job is over. See [`Submitted::result`](super::Submitted::result).
    ///
    /// # Errors
    /// As there.
    pub fn result(&self) -> Result<Report<T>, ClientError> {
        self.runtime.block_on(self.submitted.result())
    }

    /// Calls `tell` with the progress of the job, immediately and then periodically, until it is over.
    ///
    /// # Errors
    /// As [`ProgressStream::next`](super::ProgressStream::next).
    pub fn watch(&self, every: Duration, mut tell: impl FnMut(&Progress)) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let mut stream = self.submitted.progress(every);
            while let Some(progress) = stream.next().await {
                tell(&progress?);
            }
            Ok(())
        })
    }

    /// Cancels the job. See [`Submitted::cancel`](super::Submitted::cancel).
    ///
    /// # Errors
    /// As there.
    pub fn cancel(&self, reason: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.submitted.cancel(reason))
    }

    /// Suspends the job. See [`Client::suspend`](super::Client::suspend).
    ///
    /// # Errors
    /// As there.
    pub fn suspend(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.submitted.suspend())
    }

    /// Resumes the job. See [`Client::resume`](super::Client::resume).
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.submitted.resume())
    }

    /// Adds a root task to the job. See [`Submitted::add`](super::Submitted::add).
    ///
    /// # Errors
    /// As there.
    pub fn add(&self, task: T) -> Result<TaskId, ClientError> {
        self.runtime.block_on(self.submitted.add(task))
    }

    /// Finishes adding tasks to the job. See [`Submitted::finish`](super::Submitted::finish).
    ///
    /// # Errors
    /// As there.
    pub fn finish(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.submitted.finish())
    }

    /// Passes a suggestion to the job. See [`Client::inject`](super::Client::inject).
    ///
    /// # Errors
    /// As there.
    pub fn inject(&self, suggestion: serde_json::Value, timeout: Duration) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.submitted.inject(suggestion, timeout))
    }
}

impl Node {
    /// Asks the node to leave. See [`Node::drain`](crate::Node::drain).
    pub fn drain(&self) {
        self.node.drain();
    }

    /// Waits until the node has exited. See [`Node::ended`](crate::Node::ended).
    ///
    /// # Errors
    /// As there.
    pub fn ended(&mut self) -> Result<(), NodeError> {
        self.runtime.block_on(self.node.ended())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

impl<T: Task> fmt::Debug for Submitted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submitted.fmt(f)
    }
}
