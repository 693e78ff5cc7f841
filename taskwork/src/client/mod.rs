//! The interface to a cluster for programs outside of it: submitting jobs, watching them, reading their
//! results, inspecting the nodes.
//!
//! ```no_run
//! # use serde::{Deserialize, Serialize};
//! # use taskwork::{Context, Outcome, Task};
//! # #[derive(Serialize, Deserialize)]
//! # struct Count { open: Vec<u32> }
//! # impl Task for Count {
//! #     type Shared = ();
//! #     type Output = u64;
//! #     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome { Outcome::Complete }
//! #     fn split(&mut self, _: &()) -> Option<Self> { None }
//! # }
//! use taskwork::{Client, Job, Node, Release};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let release = Release::this_build("leaves", "1.0")?;
//! let client = Client::builder("zk1:2181,zk2:2181").cluster("demo").release(release).connect().await?;
//!
//! // Any process can be a node; others may be on other machines.
//! let mut node = Node::builder(&client).task::<Count>().workers(2).serve()?;
//!
//! let submitted = client.submit(Job::new(Count { open: vec![20] }, ())).await?;
//! let report = submitted.result().await?;
//! println!("{} leaves", report.output);
//!
//! node.drain();
//! node.ended().await?;
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A client outlives its sessions with ZooKeeper: requests that fail because no server answers are retried,
//! in a new session if the old one has expired, until the client's [patience](ClientBuilder::patience) is
//! exhausted. [`blocking`] is the same without `async`. The command line of every program, and the command
//! `taskwork`, are built on this module.

pub mod agents;
pub mod blocking;
mod certificate;
mod connection;
pub mod doctor;
mod error;
mod jobs;
mod nodes;
mod observer;
mod orders;
mod overview;
pub(crate) mod provider;
pub mod records;
mod result;
pub mod scaling;
mod submitted;

use std::{
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::Rng as _;
use zk::{
    ClusterPaths, Labels, Store,
    job::share::{PRIORITY_RANGE, WEIGHT_MAX},
};

pub use self::{
    connection::Outage,
    error::{ClientError, ErrorKind},
    jobs::{Answer, JobDetails, NodeWork},
    nodes::AskedToLeave,
    observer::Observer,
    overview::{JobEntry, Overview},
    submitted::{ProgressStream, Submitted},
};
pub use crate::{release::ReleaseError, view::Stage};
pub use zk::{
    Connect, Credentials, CredentialsError, SecretError, Tls,
    job::{JobState, Share},
    read_secret, read_text,
    suggestion::SUGGESTION_BYTES_MAX,
};

use self::{
    connection::{Connection, OutageObserver},
    provider::Provider,
};
use crate::{
    id::JobId,
    job::Job,
    node::Address,
    release::Release,
    report::JobError,
    shell::submit::{Draft, Root, SharedData, Submission, job_id},
    task::Task,
    wire::{codec::EncodeError, large},
};

/// The default maximum duration of an outage of ZooKeeper.
const PATIENCE: Duration = Duration::from_secs(30);

/// The maximum length of a job's name, in characters.
const NAME_CHARS_MAX: usize = 200;

/// A builder for a [`Client`].
pub struct ClientBuilder {
    connect: Connect,
    cluster: String,
    release: Option<Release>,
    submitter: String,
    patience: Option<Duration>,
    trusts_network: bool,
    listen: SocketAddr,
    advertise: Option<Address>,
    observer: Option<OutageObserver>,
}

/// A cluster as seen by a program outside of it. Clones share one session.
///
/// [`close`](Self::close) ends the session; otherwise the servers keep it until its timeout.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    cluster: ClusterPaths,
    release: Option<Release>,
    submitter: Arc<str>,
    patience: Option<Duration>,
    trusts_network: bool,
    listen: SocketAddr,
    advertise: Option<Address>,
}

/// The id and the key of a job, and the providers of its shared data, if that is large, and of its program, if that
/// travels with it.
type NewlySubmitted = (JobId, String, Vec<Provider>);

/// A job with everything of the program's own types encoded.
struct EncodedJob {
    kind: String,
    task_type: &'static str,
    name: Option<String>,
    attempts_max: u32,
    crashes_max: u32,
    require: Labels,
    after: Vec<JobId>,
    stays_open: bool,
    weight: u32,
    priority: i32,
    exclusive: bool,
    brings_program: bool,
    start_values: Vec<(String, Vec<u8>)>,
    shared: Vec<Bytes>,
    root: Root,
}

/// Checks the requirements of a job.
fn share(weight: u32, priority: i32, exclusive: bool) -> Result<Share, ClientError> {
    let given = NonZeroU32::new(weight).filter(|weight| weight.get() <= WEIGHT_MAX);
    let weight = given.ok_or_else(|| ClientError::Invalid {
        reason: format!("a job's weight must be from 1 to {WEIGHT_MAX}, not {weight}"),
    })?;
    if !PRIORITY_RANGE.contains(&priority) {
        let (least, most) = (PRIORITY_RANGE.start(), PRIORITY_RANGE.end());
        let reason = format!("a job's priority must be from {least} to {most}, not {priority}");
        return Err(ClientError::Invalid { reason });
    }
    Ok(Share { weight, priority, exclusive })
}

/// The maximum number of jobs that a job can wait for.
const AFTER_MAX: usize = 100;

/// A type-erased future. A function that returns one is compiled with this crate; the body of an `async fn` is
/// compiled wherever it is awaited, which may be in every program.
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl ClientBuilder {
    /// Sets the name of the cluster, by default `default`; several clusters can share a ZooKeeper ensemble. A name has
    /// 1 to 60 letters, digits, dots, `-` or `_`.
    #[must_use]
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// Sets the release that jobs are submitted for and nodes run. A client without one can still inspect a
    /// cluster and manage its jobs.
    #[must_use]
    pub fn release(mut self, release: Release) -> Self {
        self.release = Some(release);
        self
    }

    /// Sets the submitter of jobs, for display only.
    #[must_use]
    pub fn submitter(mut self, submitter: impl Into<String>) -> Self {
        self.submitter = submitter.into();
        self
    }

    /// Sets the duration of an outage of ZooKeeper after which requests fail, by default 30 s; `None` means no
    /// limit.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
        self
    }

    /// Allows credentials to be sent unencrypted, and nodes without credentials to accept connections from other
    /// machines. Only for a trusted network.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.trusts_network = true;
        self
    }

    /// Sets the address to listen on for nodes that fetch the shared data of a job too large for ZooKeeper; by
    /// default the loopback interface at any free port.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the address at which nodes reach this process, if it differs from the one that it
    /// [listens](Self::listen) on.
    #[must_use]
    pub fn advertise(mut self, address: Address) -> Self {
        self.advertise = Some(address);
        self
    }

    /// Calls `tell` while an outage of ZooKeeper lasts and when it is over, on a thread of the runtime, so it
    /// must not block.
    #[must_use]
    pub fn on_outage(mut self, tell: impl Fn(Outage) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(tell));
        self
    }

    /// Connects, for at most [`Connect::connect_timeout`]. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If a setting is invalid, or no server answers.
    pub async fn connect(self) -> Result<Client, ClientError> {
        if self.connect.exposes_credentials() && !self.trusts_network {
            let hosts = &self.connect.hosts;
            let reason = format!(
                "the credentials would be sent to {hosts} in the clear, readable by anyone on the network: use \
                 TLS, or permit it with ClientBuilder::insecure"
            );
            return Err(ClientError::Invalid { reason });
        }
        let invalid = |error: zk::NameError| ClientError::Invalid { reason: error.to_string() };
        let cluster = ClusterPaths::new(&self.cluster).map_err(invalid)?;
        Ok(Client {
            connection: Arc::new(Connection::open(self.connect, self.observer).await?),
            cluster,
            release: self.release,
            submitter: self.submitter.into(),
            patience: self.patience,
            trusts_network: self.trusts_network,
            listen: self.listen,
            advertise: self.advertise,
        })
    }
}

impl Client {
    /// Creates a builder for a client of the ZooKeeper servers at `hosts`: `host:port,host:port/chroot`.
    pub fn builder(hosts: impl Into<String>) -> ClientBuilder {
        Self::builder_of(Connect::new(hosts))
    }

    /// Creates a builder with further connection settings: credentials, TLS, other timeouts.
    pub fn builder_of(connect: Connect) -> ClientBuilder {
        ClientBuilder {
            connect,
            cluster: "default".to_owned(),
            release: None,
            submitter: "unknown".to_owned(),
            patience: Some(PATIENCE),
            trusts_network: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            observer: None,
        }
    }

    /// Returns a client on the same session with another maximum duration of an outage; `None` means no limit.
    #[must_use]
    pub fn with_patience(&self, patience: Option<Duration>) -> Self {
        Self { patience, ..self.clone() }
    }

    /// Returns a client on the same session with another release.
    pub(crate) fn with_release(&self, release: Release) -> Self {
        Self { release: Some(release), ..self.clone() }
    }

    /// Submits a job to the nodes that run the client's [release](ClientBuilder::release). The submission is
    /// retried until its outcome is known, and takes effect only once.
    ///
    /// Shared data of more than 64 MiB, at most 8 GiB, is not stored in ZooKeeper. Instead this process joins the
    /// cluster as a member without workers, from which nodes fetch the data, until the returned value is dropped;
    /// nodes that have the data pass it on to others. See [`Submitted::handed_over`], and [`ClientBuilder::listen`]. It
    /// provides the program in the same way, if that [travels](Job::bring_program) with the job.
    ///
    /// # Errors
    /// If the client has no release, the job cannot be encoded or has an invalid name, or ZooKeeper was
    /// unavailable for too long: then it is unknown whether the job was submitted.
    pub async fn submit<T: Task>(&self, job: Job<T>) -> Result<Submitted<T>, ClientError> {
        let started = Instant::now();
        let encoded = |error: EncodeError| ClientError::Job(JobError::Encode(error));
        let job = EncodedJob {
            kind: job.kind.into_owned(),
            task_type: std::any::type_name::<T>(),
            name: job.name,
            attempts_max: job.attempts_max,
            crashes_max: job.crashes_max,
            require: job.require,
            after: job.after,
            stays_open: job.stays_open,
            weight: job.weight,
            priority: job.priority,
            exclusive: job.exclusive,
            brings_program: job.brings_program,
            start_values: Job::<T>::encoded_values(job.start_values).map_err(encoded)?,
            shared: large::encode(&*job.shared).map_err(encoded)?,
            root: Root::new(job.root).map_err(encoded)?,
        };
        let (id, key, providers) = self.submit_encoded(job).await?;
        Ok(Submitted::new(self.clone(), id, key, started).with_providers(providers))
    }

    /// The part of [`submit`](Self::submit) that does not depend on the type of task. Boxed here, it is
    /// compiled once, and not in every program.
    fn submit_encoded(&self, job: EncodedJob) -> BoxFuture<'_, Result<NewlySubmitted, ClientError>> {
        Box::pin(async move {
            let release = self.release()?;
            let name = job.name.as_deref().unwrap_or_else(|| release.program());
            check_name(name)?;
            if job.after.len() > AFTER_MAX {
                let reason =
                    format!("a job can wait for at most {AFTER_MAX} others, not for {}", job.after.len());
                return Err(ClientError::Invalid { reason });
            }
            let share = share(job.weight, job.priority, job.exclusive)?;
            // They were submitted before this job, so no two jobs can wait for each other.
            for job in &job.after {
                self.record(job).await?;
            }
            let after: Vec<String> = job.after.iter().map(|job| job.0.clone()).collect();
            self.ask(|store| async move { self.cluster.prepare(&*store).await }).await?;
            let provider = self.bring(&job.shared).await?;
            let stored = if provider.is_none() { job.shared.concat() } else { Vec::new() };
            let shared = match &provider {
                Some(provider) => SharedData::With(provider.member(), provider.name()),
                None => SharedData::Stored(&stored),
            };
            let program = if job.brings_program { Some(self.bring_program().await?) } else { None };
            let (program, brought) = program.unzip();
            let order = Submission {
                release: release.inner(),
                kind: &job.kind,
                task_type: job.task_type,
                name,
                submitter: &self.submitter,
                attempts_max: job.attempts_max.max(1),
                crashes_max: if job.crashes_max == 1 { 2 } else { job.crashes_max },
                require: &job.require,
                after: &after,
                stays_open: job.stays_open,
                share,
                shared,
                brought: brought.as_ref(),
                start_values: &job.start_values,
            };
            let draft = Draft::new(&job.root, &order);
            let (new, key) = (draft.job(), format!("{:032x}", rand::rng().random::<u128>()));
            let mut submission = zk::job::Submission::new(&new, &key);
            let trying = self.connection.trying();
            let id = loop {
                match submission.go_on(&*self.connection.store(), &self.cluster).await {
                    Ok(id) => {
                        self.connection.record_answer();
                        break id;
                    }
                    Err(error) => self.connection.recover(&trying, self.patience, error.into()).await?,
                }
            };
            Ok((job_id(&self.cluster, &id)?, key, provider.into_iter().chain(program).collect()))
        })
    }

    /// Returns a job that was submitted earlier or elsewhere.
    ///
    /// # Errors
    /// If there is no such job, it has another type of task, or ZooKeeper was unavailable for too long.
    pub async fn submitted<T: Task>(&self, job: &JobId) -> Result<Submitted<T>, ClientError> {
        let (record, here) = (self.record(job).await?, std::any::type_name::<T>());
        if !record.task_type.is_empty() && record.task_type != here {
            let reason = format!("has tasks of type {}, not {here}", record.task_type);
            return Err(ClientError::WrongState { job: job.clone(), reason });
        }
        Ok(Submitted::new(self.clone(), job.clone(), record.key, Instant::now()))
    }

    /// Closes the session, so that the servers need not wait for its timeout. Other clones open a new one when
    /// they need it.
    pub async fn close(&self) {
        self.connection.close().await;
    }

    /// Returns the name of the cluster.
    pub fn cluster_name(&self) -> &str {
        self.cluster.name()
    }

    /// Returns the addresses of the ZooKeeper servers, as configured.
    pub fn hosts(&self) -> &str {
        &self.connection.connect.hosts
    }

    /// Waits for `doing`, but no longer than ZooKeeper may be unavailable. For waiting for events, when no request
    /// would notice an outage.
    pub(crate) async fn attended<R>(
        &self,
        doing: impl Future<Output = Result<R, ClientError>>,
    ) -> Result<R, ClientError> {
        tokio::select! {
            biased;
            done = doing => done,
            error = self.connection.watch_over(self.patience) => Err(error),
        }
    }

    /// Retries a request until there is an answer. It must be idempotent.
    pub(crate) async fn ask<R, E: Into<JobError>, F: Future<Output = Result<R, E>>>(
        &self,
        ask: impl FnMut(Arc<dyn Store>) -> F,
    ) -> Result<R, ClientError> {
        self.connection.ask(self.patience, ask).await
    }

    pub(crate) fn cluster(&self) -> &ClusterPaths {
        &self.cluster
    }

    pub(crate) fn connection_settings(&self) -> &Connect {
        &self.connection.connect
    }

    pub(crate) fn trusts_network(&self) -> bool {
        self.trusts_network
    }

    /// Returns the release that jobs are submitted for and nodes run.
    pub(crate) fn release(&self) -> Result<&Release, ClientError> {
        self.release.as_ref().ok_or_else(|| ClientError::Invalid {
            reason: "the client has no release, so it cannot submit jobs or run a node: set \
                one with ClientBuilder::release"
                .to_owned(),
        })
    }
}

fn check_name(name: &str) -> Result<(), ClientError> {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        let reason = format!(
            "the name of a job must have 1 to {NAME_CHARS_MAX} characters, without control characters"
        );
        return Err(ClientError::Invalid { reason });
    }
    Ok(())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("hosts", &self.hosts())
            .field("cluster", &self.cluster_name())
            .finish_non_exhaustive()
    }
}
