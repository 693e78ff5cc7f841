//! A whole cluster in this process: the znode tree, the nodes and the submitter.
//!
//! Nothing is simplified: the job is submitted, claimed, run, accounted for and closed as on many machines. Only the
//! tree is in memory instead of on a server, or in memory and on disk (`kept.rs`). A single node has no endpoint
//! and no encryption, since it has no peers.

use std::{
    future::{Future as _, poll_fn},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use rand::Rng;
use tokio::{
    runtime,
    sync::watch,
    task::JoinSet,
    time::{self, MissedTickBehavior},
};
use zk::{
    ClusterPaths, Labels, MemoryTree, Release,
    job::{self, JobRecord},
};

use super::{
    clock::unix_ms,
    coordination::{Resigned, Visibility},
    driver::Ended,
    errors::SeatError,
    kept::{self, Kept},
    node::{NotOpened, Part, RunningNode, SharedData, open_pool},
    platform,
    seat::{Seat, SeatSetup},
    submit::{self, Draft, Root, Submission, Tracked},
};
use crate::{
    companion::highest,
    config::{LEDGER_BYTES_MAX, Limits},
    core::Departure,
    erased::Kind,
    figures::Figures,
    id::NodeId,
    pool::{Claim, Crew, VariableTable},
    report::{JobError, Observer, Progress, RawReport, Stopper},
};

pub(crate) struct Setup {
    pub(crate) root: Root,
    /// Opens the pools of the nodes, and contains the shared data.
    pub(crate) kind: Box<dyn Kind>,
    pub(crate) variables: fn() -> VariableTable,
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) start_values: Vec<(String, Vec<u8>)>,
    pub(crate) stopper: Stopper,
    /// The requested number of nodes, if it can change.
    pub(crate) scale: Option<watch::Receiver<Option<usize>>>,
    pub(crate) progress: Option<Observer>,
    /// The directory of the tree; `None` for a tree in memory only.
    pub(crate) kept: Option<Kept>,
    pub(crate) started: Instant,
}

/// The interval at which holdings are written if there are several nodes.
const LEDGER_INTERVAL_MS: u64 = 50;

/// The name of the cluster, which is not visible outside the process.
const CLUSTER: &str = "embedded";

/// The address on which nodes of this process listen, at any port.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns the release of the nodes of this process.
fn release() -> Release {
    Release { program: "embedded".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// Runs a job to completion. Within another runtime it uses a new thread and waits for it.
pub(crate) fn run(setup: Setup) -> Result<RawReport, JobError> {
    if runtime::Handle::try_current().is_err() {
        return run_here(setup);
    }
    let running = thread::Builder::new().name("taskwork".to_owned()).spawn(move || run_here(setup));
    running.map_err(JobError::Thread)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_here(setup: Setup) -> Result<RawReport, JobError> {
    // Single-threaded: waking another thread takes longer.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(JobError::Thread)?;
    let tree = setup.kept.as_ref().map_or_else(|| Ok(MemoryTree::new()), Kept::open)?;
    let done = runtime.block_on(run_on(&tree, setup));
    // A full disk ends all sessions, which then is the cause of most errors.
    done.map_err(|error| tree.failure().map_or(error, JobError::from))
}

/// Runs a job to completion on this tree.
pub(crate) async fn run_on(tree: &MemoryTree, setup: Setup) -> Result<RawReport, JobError> {
    let Setup {
        root,
        kind,
        variables,
        nodes,
        workers,
        limits,
        start_values,
        stopper,
        scale,
        progress,
        kept,
        started,
    } = setup;
    let cluster = ClusterPaths::new(CLUSTER).expect("the name is well formed");
    let store = tree.connect();
    cluster.prepare(&*store).await?;
    let order = Submission {
        release: &release(),
        kind: "embedded",
        task_type: kind.task_type(),
        name: "embedded",
        submitter: "embedded",
        attempts_max: if kept.is_some() { kept::ATTEMPTS_MAX } else { 1 },
        crashes_max: limits.crashes_max,
        require: Labels::NONE,
        after: &[],
        // No other process could add tasks.
        stays_open: false,
        share: job::Share::default(),
        // All nodes are in this process and share the data directly.
        shared: submit::SharedData::Stored(&[]),
        brought: None,
        start_values: &start_values,
    };
    let draft = Draft::new(&root, &order);
    let (submitted, over) = match &kept {
        None => (Tracked::submit(store, cluster, &draft, started).await?, None),
        Some(kept) => kept.find(store, cluster, &draft, started).await?,
    };
    if let Some(record) = over {
        return submitted.report(&record, &Figures::default(), variables()).await;
    }
    let alone = nodes == 1 && scale.is_none();
    let limits = limits_here(&limits, alone, kept.is_some());
    let mut fleet = Fleet {
        tree,
        submitted: &submitted,
        kind: &*kind,
        variables,
        workers,
        limits,
        alone,
        nodes: Vec::new(),
        resigned: Arc::default(),
        leaving: JoinSet::new(),
        figures: Figures::default(),
    };
    let outcome = async {
        fleet.resize(nodes).await?;
        fleet.watch_over(&stopper, scale, progress, kept.as_ref()).await
    };
    let outcome = outcome.await;
    let figures = fleet.end().await;
    submitted.report(&outcome?, &figures, variables()).await
}

/// Returns the limits of nodes in this process. Without a directory nothing survives the process, and a node is not
/// lost without the process.
fn limits_here(limits: &Limits, alone: bool, is_kept: bool) -> Limits {
    let mut limits = limits.clone();
    if is_kept {
        // A disk accepts larger holdings than ZooKeeper.
        limits.ledger_bytes_max = LEDGER_BYTES_MAX;
    } else if alone {
        limits.ledger_interval_ms = 0;
    } else {
        // Tasks are interrupted and written as on a cluster, but more often, so that a short test reveals a program
        // that does not support it. A panic fails the job immediately: the ledger does not outlive the process.
        limits.ledger_interval_ms = limits.ledger_interval_ms.min(LEDGER_INTERVAL_MS);
        limits.crashes_max = 0;
    }
    limits
}

/// The nodes of this process.
struct Fleet<'a> {
    tree: &'a MemoryTree,
    submitted: &'a Tracked,
    kind: &'a dyn Kind,
    variables: fn() -> VariableTable,
    workers: usize,
    limits: Limits,
    /// Whether there will never be a second node, so that none listens.
    alone: bool,
    nodes: Vec<EmbeddedNode>,
    resigned: Resigned,
    /// Nodes that were asked to leave.
    leaving: JoinSet<Figures>,
    /// The sum of the figures of the nodes that have left.
    figures: Figures,
}

struct EmbeddedNode {
    seat: Seat,
    running: RunningNode,
}

impl EmbeddedNode {
    /// Leaves the cluster: hands over the unfinished tasks and stops.
    async fn leave(mut self) -> Figures {
        // An embedded run has no deadline for leaving.
        self.running.retire();
        let ended = self.running.ended().await;
        tracing::debug!(node = %self.seat.node, ?ended, "a node has left");
        self.end().await
    }

    /// Waits until the node of a suspended job has parked its tasks, and stops it. Its seat is given up immediately:
    /// nodes that have granted it tasks take them back once it is not a member.
    async fn rest(mut self) -> Figures {
        let ended = self.running.ended().await;
        if !matches!(ended, Ended::JobOver | Ended::Departed(Departure::Clean)) {
            tracing::warn!(node = %self.seat.node, ?ended, "a node could not park its tasks");
        }
        self.end().await
    }

    async fn end(mut self) -> Figures {
        let figures = self.running.finish(&mut self.seat).await;
        self.seat.give_up().await;
        figures
    }
}

impl Fleet<'_> {
    /// Starts nodes or lets the newest ones leave, to reach the given number.
    async fn resize(&mut self, nodes: usize) -> Result<(), JobError> {
        for node in self.nodes.drain(nodes.min(self.nodes.len())..) {
            self.leaving.spawn(node.leave());
        }
        while self.nodes.len() < nodes {
            let Tracked { cluster, job, .. } = self.submitted;
            let node = NodeId(rand::rng().random_range(1..=u64::MAX));
            let broken = |error: SeatError| JobError::Node(Box::new(error));
            let endpoint =
                if self.alone { None } else { Some(platform::listen(node, LOOPBACK, None).map_err(broken)?) };
            let seat = SeatSetup {
                node,
                store: self.tree.connect(),
                cluster: cluster.clone(),
                release: release(),
                workers: self.workers,
                crew: Crew::start(self.workers).map_err(JobError::Thread)?,
                memory_bytes: 0,
                labels: Labels::default(),
                near: None,
                records_read_max: self.limits.records_read_max,
                endpoint,
                brought: Vec::new(),
                resigned: Some(Arc::clone(&self.resigned)),
                pulse: Arc::default(),
                probe: Arc::new(platform::Process),
                is_cordoned: false,
            };
            let mut seat = Seat::take(seat).await.map_err(broken)?;
            let opened = open_pool(&mut seat, self.kind, job, &self.limits, SharedData::InKind).await;
            let (pool, offer) = opened.map_err(|error| match error {
                NotOpened::Failed(error) => error,
                NotOpened::Absent(_) => unreachable!("the kind has the data"),
            })?;
            let part = Part {
                job: job.clone(),
                require: Labels::default(),
                claim: Claim::default(),
                pool,
                offer,
                limits: self.limits.clone(),
                visibility: Visibility::Private,
            };
            let running = RunningNode::start(&seat, part);
            self.nodes.push(EmbeddedNode { seat, running });
        }
        Ok(())
    }

    /// Waits until the job is over. Until then it reports progress, scales and stops as requested. A job with a
    /// directory is suspended instead of stopped, and also when its time limit is reached.
    async fn watch_over(
        &mut self,
        stopper: &Stopper,
        mut scale: Option<watch::Receiver<Option<usize>>>,
        mut observer: Option<Observer>,
        kept: Option<&Kept>,
    ) -> Result<JobRecord, JobError> {
        let time_limit = kept.and_then(|kept| kept.time_limit);
        let submitted = self.submitted;
        let mut ticks =
            time::interval(observer.as_ref().map_or(FAR, |observer| observer.every.max(TICK_MIN)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (end, time_up) = (submitted.end(), time_up(submitted.started, time_limit));
        tokio::pin!(end, time_up);
        loop {
            tokio::select! {
                record = &mut end => return record,
                () = stopper.stopped() => {
                    let stopped = submitted.stop("stopped");
                    return if kept.is_some() { self.suspend().await } else { stopped.await };
                }
                () = &mut time_up => return self.suspend().await,
                nodes = next_size(scale.as_mut()) => self.resize(nodes).await?,
                place = next_expelled(&mut self.nodes) => {
                    let (node, nodes) = (self.nodes.remove(place), self.nodes.len() + 1);
                    self.leaving.spawn(node.end());
                    self.resize(nodes).await?;
                }
                _ = ticks.tick() => {
                    if let Some(observer) = &mut observer {
                        (observer.tell)(&self.progress().await?);
                    }
                }
            }
        }
    }

    /// Suspends the job and waits until its nodes have parked all of its tasks.
    async fn suspend(&mut self) -> Result<JobRecord, JobError> {
        let Tracked { store, cluster, job: id, .. } = self.submitted;
        // The job may also be over by now, as its record shows.
        job::suspend(&**store, cluster, &id.0, unix_ms()).await?;
        for node in self.nodes.drain(..) {
            self.leaving.spawn(node.rest());
        }
        self.all_left().await;
        Ok(job::read(&**store, cluster, &id.0).await?.0)
    }

    async fn progress(&self) -> Result<Progress, JobError> {
        let mut figures = Figures::default();
        for node in &self.nodes {
            figures += node.running.figures();
        }
        let variables = self.submitted.variables((self.variables)()).await?;
        let display = highest(self.nodes.iter().filter_map(|node| Some((true, node.running.status()?))));
        let (nodes, elapsed) = (self.nodes.len(), self.submitted.started.elapsed());
        Ok(Progress { figures, nodes, display, elapsed, variables })
    }

    /// Stops all nodes and returns the sum of all figures, including those of earlier nodes.
    async fn end(mut self) -> Figures {
        for node in self.nodes.drain(..) {
            self.leaving.spawn(node.end());
        }
        self.all_left().await;
        self.figures
    }

    /// Waits for the nodes that were asked to leave.
    async fn all_left(&mut self) {
        while let Some(ended) = self.leaving.join_next().await {
            match ended {
                Ok(done) => self.figures += done,
                Err(error) => tracing::error!(%error, "a node has panicked while leaving"),
            }
        }
    }
}

/// The interval of ticks if there is no observer.
const FAR: Duration = Duration::from_secs(3600);
/// The minimum interval of progress reports.
const TICK_MIN: Duration = Duration::from_millis(1);

/// Waits until the time limit is reached, if there is one.
async fn time_up(started: Instant, limit: Option<Duration>) {
    match limit.and_then(|limit| started.checked_add(limit)) {
        Some(end) => time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until a node has lost its membership without a request to leave, and returns its index. In this process,
/// only a panic has this effect: sessions cannot be lost in another way.
async fn next_expelled(nodes: &mut [EmbeddedNode]) -> usize {
    poll_fn(|cx| {
        for (place, node) in nodes.iter_mut().enumerate() {
            let ended = pin!(node.running.ended());
            if let Poll::Ready(Ended::Departed(Departure::Expelled) | Ended::BrokenDown) = ended.poll(cx) {
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for the next requested number of nodes.
async fn next_size(scale: Option<&mut watch::Receiver<Option<usize>>>) -> usize {
    if let Some(scale) = scale {
        // Fails when every `Scaler` has been dropped.
        while scale.changed().await.is_ok() {
            if let Some(nodes) = *scale.borrow_and_update() {
                return nodes;
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{
        context::Context,
        local::Shares,
        report::variables_of,
        task::{Outcome, Task},
    };

    /// Counts the leaves of a binary tree.
    #[derive(Serialize, Deserialize)]
    struct Leaves {
        open: Vec<u32>,
    }

    impl Task for Leaves {
        type Shared = ();
        type Output = u64;

        fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
            while let Some(&height) = self.open.last() {
                if cx.migrate() {
                    return Outcome::Migrate;
                }
                self.open.pop();
                match height {
                    0 => *cx.output() += 1,
                    _ => self.open.extend([height - 1, height - 1]),
                }
                cx.potential_split(self);
            }
            Outcome::Complete
        }

        fn split(&mut self, (): &()) -> Option<Self> {
            (self.open.len() > 1).then(|| Self { open: vec![self.open.remove(0)] })
        }
    }

    #[test]
    fn znodes_of_finished_jobs_are_bounded() {
        for round in 0..10 {
            let tree = MemoryTree::new();
            let setup = Setup {
                root: Root::new(Leaves { open: vec![18] }).unwrap(),
                kind: Box::new(Shares::<Leaves>::new(&()).unwrap()),
                variables: variables_of::<Leaves>,
                nodes: 4,
                workers: 1 + round % 2,
                limits: Limits::default(),
                start_values: Vec::new(),
                stopper: Stopper::default(),
                scale: None,
                progress: None,
                kept: None,
                started: Instant::now(),
            };
            let runtime =
                runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let report = runtime.block_on(run_on(&tree, setup)).unwrap();
            assert_eq!(report.decode::<Leaves>().unwrap().output, 1 << 18);
            let attempt = ClusterPaths::new(CLUSTER).unwrap().job("j-0000000000").attempt(1);
            let below = |folder: String| tree.paths_below(&folder).len() - 1;
            assert_eq!((below(attempt.list()), below(attempt.parked())), (0, 0), "no task is left");
            assert!(below(attempt.txns()) <= 2 * 4, "at most two transaction ids of a node");
            assert!((1..=4).contains(&below(attempt.outputs())), "one output of a node");
            let cluster = ClusterPaths::new(CLUSTER).unwrap();
            assert_eq!(
                (below(cluster.members()), below(cluster.election())),
                (0, 0),
                "every session has ended"
            );
        }
    }
}
