//! A whole cluster within this process: the znode tree, the nodes, the submitter.
//!
//! Nothing is simplified for it: the job is submitted, claimed, run, accounted for and closed as it would be on many
//! machines, over the tree in memory instead of a server. Only with a single node nothing listens and nothing is
//! encrypted, since there is nobody to talk to.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use rand::Rng;
use tokio::{runtime, time};
use zk::{ClusterPaths, MemoryTree, Store, job};

use super::{clock::unix_ms, node::NodeSetup, node::RunningNode};
use crate::{
    config::Limits,
    envelope::Envelope,
    figures::Figures,
    id::{JobId, NodeId, TaskId},
    job::{JobError, Observer, Progress, Report, Stopper, Values, variables_of},
    pool::{Entry, Signals, Source, merge},
    task::Task,
    wire::codec,
};

/// What an embedded run is made of.
pub(crate) struct Setup<T: Task> {
    pub(crate) root: T,
    pub(crate) shared: Arc<T::Shared>,
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) start_values: Vec<(String, Vec<u8>)>,
    pub(crate) stopper: Stopper,
    pub(crate) progress: Option<Observer>,
    pub(crate) started: Instant,
}

/// The name of the cluster within the process; nobody else can see it.
const CLUSTER: &str = "embedded";

/// Runs a job to its end.
pub(crate) fn run<T: Task>(setup: Setup<T>) -> Result<Report<T>, JobError> {
    let io_threads = if setup.nodes == 1 { 1 } else { 2 };
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(io_threads)
        .thread_name("taskwork-io")
        .enable_all()
        .build()
        .map_err(JobError::Thread)?;
    runtime.block_on(run_on(MemoryTree::new(), setup))
}

/// Runs a job to its end over this tree.
pub(crate) async fn run_on<T: Task>(tree: MemoryTree, setup: Setup<T>) -> Result<Report<T>, JobError> {
    let mut observer = setup.progress;
    let started = setup.started;
    let cluster = ClusterPaths::new(CLUSTER).expect("the name is well formed");
    let store = tree.connect();
    cluster.prepare(&*store).await?;
    let root = Entry::new(TaskId::ROOT, setup.root).seal()?;
    let job = submit(&*store, &cluster, &root, &setup.start_values).await?;

    let mut nodes = Vec::new();
    let starting = async {
        for _ in 0..setup.nodes {
            let listen = (setup.nodes > 1).then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            nodes.push(
                RunningNode::start(NodeSetup::<T> {
                    node: NodeId(rand::rng().random_range(1..=u64::MAX)),
                    store: tree.connect(),
                    cluster: cluster.clone(),
                    job: job.clone(),
                    shared: Arc::clone(&setup.shared),
                    workers: setup.workers,
                    limits: setup.limits.clone(),
                    listen,
                })
                .await?,
            );
        }
        Ok::<_, JobError>(())
    };
    let outcome = match starting.await {
        Err(error) => Err(error),
        Ok(()) => {
            tokio::select! {
                state = wait_for_end(Arc::clone(&store) as Arc<dyn Store>, &cluster, &job) => state,
                () = setup.stopper.stopped() => stop(&*store, &cluster, &job).await,
                () = observe::<T>(observer.as_mut(), &nodes, &*store, &cluster, &job, started) => {
                    unreachable!("an observer watches until the job ends")
                }
            }
        }
    };
    let mut figures = Figures::default();
    for node in nodes {
        figures += node.shut_down().await;
    }
    let record = outcome?;
    report(&*store, &cluster, &job, &record, figures, started).await
}

async fn submit(
    store: &dyn Store,
    cluster: &ClusterPaths,
    root: &Envelope,
    variables: &[(String, Vec<u8>)],
) -> Result<JobId, JobError> {
    let new_job = job::NewJob {
        program: "embedded",
        program_version: env!("CARGO_PKG_VERSION"),
        name: "embedded",
        shared: &[],
        root_id: &root.id.to_string(),
        root: &codec::encode(root)?,
        variables,
        attempts_max: 1,
        submitter: "embedded",
        now_ms: unix_ms(),
    };
    Ok(JobId(job::submit(store, cluster, &new_job).await?))
}

async fn wait_for_end(
    store: Arc<dyn Store>,
    cluster: &ClusterPaths,
    job: &JobId,
) -> Result<job::JobRecord, JobError> {
    let mut watch = job::JobWatch::open(store, cluster, &job.0).await?;
    loop {
        let record = watch.next().await?;
        if record.state.is_over() {
            return Ok(record);
        }
    }
}

async fn stop(store: &dyn Store, cluster: &ClusterPaths, job: &JobId) -> Result<job::JobRecord, JobError> {
    job::cancel(store, cluster, &job.0, "stopped", unix_ms()).await?;
    Ok(job::read(store, cluster, &job.0).await?.0)
}

/// Tells the observer regularly, for ever.
async fn observe<T: Task>(
    observer: Option<&mut Observer>,
    nodes: &[RunningNode],
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &JobId,
    started: Instant,
) {
    let Some(observer) = observer else { return std::future::pending().await };
    let mut ticks = time::interval(observer.every.max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        let mut figures = Figures::default();
        for node in nodes {
            figures += node.figures();
        }
        let variables = read_variables::<T>(store, cluster, job).await;
        (observer.tell)(&Progress { figures, elapsed: started.elapsed(), variables });
    }
}

/// The variables as they stand in the tree.
async fn read_variables<T: Task>(store: &dyn Store, cluster: &ClusterPaths, job: &JobId) -> Values {
    let table = variables_of::<T>();
    let signals = Signals::default();
    for slot in 0..table.len() {
        if let Ok((bytes, _)) = store.get(&cluster.job(&job.0).var(table.name(slot))).await
            && let Err(error) = table.offer_encoded(slot, &bytes, Source::Znode, &signals)
        {
            tracing::warn!(variable = table.name(slot), %error, "the value of a variable cannot be read");
        }
    }
    Values { table }
}

async fn report<T: Task>(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &JobId,
    record: &job::JobRecord,
    figures: Figures,
    started: Instant,
) -> Result<Report<T>, JobError> {
    if record.state == job::JobState::Failed {
        let reason = record.reason.clone().unwrap_or_else(|| "for a reason that was not recorded".to_owned());
        return Err(JobError::Failed { reason });
    }
    let finished = record.state == job::JobState::Done;
    let read_error = |error: &dyn std::fmt::Display| JobError::Result { reason: error.to_string() };
    let output = if finished {
        let result = job::result(store, cluster, &job.0).await?;
        codec::decode(&result).map_err(|e| read_error(&e))?
    } else {
        let outputs = job::outputs(store, &cluster.job(&job.0).attempt(record.attempt)).await?;
        let outputs: Vec<Vec<u8>> = outputs.into_iter().map(|(_, output)| output).collect();
        merge(&outputs).map_err(|e| read_error(&e))?
    };
    let variables = read_variables::<T>(store, cluster, job).await;
    Ok(Report { output, finished, figures, elapsed: started.elapsed(), variables })
}
