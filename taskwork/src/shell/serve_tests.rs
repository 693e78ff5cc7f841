//! A node process over a tree in memory that loses requests: the node waits out temporary failures.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    runtime,
    sync::{mpsc, watch},
    time,
};
use zk::{
    ClusterPaths, CreateMode, Fate, Faults, MemoryTree, Release, Store,
    figures::{EventKind, NodeFigures},
    job::{self, JobState, JobWatch, Share},
    membership::{self, Member},
    tree::SessionId,
};

use super::{
    errors::{SeatError, ServeError},
    kinds::Kinds,
    platform::{Connecting, Endpoint, Platform, listen},
    serve::{Brought, ServeSetup, serve},
    submit::{Draft, Root, SharedData, Submission},
};
use crate::{
    config::Limits,
    context::Context,
    id::NodeId,
    task::{Outcome, Task},
    view::fixtures,
};

/// The maximum duration of each step of a test.
const SOON: Duration = Duration::from_secs(30);

/// A tree in memory whose first sessions expire immediately.
struct InMemory {
    tree: MemoryTree,
    expired: u64,
    connected: AtomicU64,
    /// The latest session.
    session: Arc<Mutex<Option<SessionId>>>,
}

impl Platform for InMemory {
    fn connect(&self) -> Connecting<'_> {
        let store = self.tree.connect();
        *self.session.lock().unwrap() = Some(store.id());
        if self.connected.fetch_add(1, Relaxed) < self.expired {
            self.tree.expire(store.id());
        }
        Box::pin(async { Ok(store as Arc<dyn Store>) })
    }

    fn new_id(&self) -> NodeId {
        NodeId(1 + self.connected.load(Relaxed))
    }

    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError> {
        listen(node, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), None)
    }
}

/// Loses one request after a number of successful ones.
struct LosesOne {
    after: u32,
    fate: Fate,
}

impl Faults for LosesOne {
    fn judge(&mut self, _: SessionId, _: &'static str, _: &str) -> Fate {
        let left = self.after.checked_sub(1);
        let fate = if self.after == 0 { self.fate } else { Fate::Answered };
        self.after = left.unwrap_or(u32::MAX);
        fate
    }
}

fn cluster() -> ClusterPaths {
    ClusterPaths::new("test").unwrap()
}

fn release() -> Release {
    Release { program: "none".to_owned(), version: "1".to_owned() }
}

fn setup(tree: &MemoryTree, expired: u64, kinds: Kinds) -> ServeSetup {
    setup_with(tree, expired, kinds, Arc::default())
}

fn setup_with(
    tree: &MemoryTree,
    expired: u64,
    kinds: Kinds,
    session: Arc<Mutex<Option<SessionId>>>,
) -> ServeSetup {
    let platform = InMemory { tree: tree.clone(), expired, connected: AtomicU64::new(0), session };
    ServeSetup {
        platform: Box::new(platform),
        cluster: cluster(),
        release: release(),
        kinds,
        workers: 1,
        memory_bytes: 0,
        labels: zk::Labels::default(),
        near: None,
        limits: Limits::default(),
        brought: Brought::default(),
        pulse: Arc::default(),
        report_every: None,
        jobs: watch::Sender::default(),
    }
}

/// Serves until there is a member, then asks the node to leave.
fn serve_until_a_member(tree: &MemoryTree, expired: u64) -> Result<(), ServeError> {
    let setup = setup(tree, expired, Kinds::default());
    let (request, leave) = mpsc::channel(1);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let serving = serve(&setup, leave);
        tokio::pin!(serving);
        let member = async {
            while tree.paths_below(&cluster().members()).len() < 2 {
                time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = &mut serving => return ended,
            member = time::timeout(SOON, member) => member.expect("it becomes a member"),
        }
        request.send(None).await.unwrap();
        time::timeout(SOON, serving).await.expect("it leaves")
    })
}

#[test]
fn request_lost_at_the_start_is_retried() {
    // Covers the folders, the member, and the reads after joining.
    for after in 0..12 {
        for fate in [Fate::LostBefore, Fate::LostAfter] {
            let tree = MemoryTree::new();
            tree.set_faults(LosesOne { after, fate });
            let served = serve_until_a_member(&tree, 0);
            assert!(served.is_ok(), "{fate:?} after {after}: {served:?}");
        }
    }
}

#[test]
fn session_expired_at_the_start_is_replaced() {
    let served = serve_until_a_member(&MemoryTree::new(), 2);
    assert!(served.is_ok(), "{served:?}");
}

#[test]
fn leave_requests_of_departed_nodes_are_removed() {
    let tree = MemoryTree::new();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gone = cluster().drain("n0000000000000007");
    runtime.block_on(async {
        let operator = tree.connect();
        cluster().prepare(&*operator).await.unwrap();
        operator.create(&gone, b"", CreateMode::Persistent).await.unwrap();
    });
    serve_until_a_member(&tree, 0).unwrap();
    assert_eq!(tree.paths_below(&cluster().drains()).len(), 1, "the folder alone");
}

/// Completes at once, or runs until it is asked to stop.
#[derive(Serialize, Deserialize)]
struct Work {
    is_endless: bool,
}

impl Task for Work {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, context: &mut Context<'_, Self>) -> Outcome {
        if !self.is_endless {
            return Outcome::Complete;
        }
        while !context.migrate() {
            std::thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

async fn submit(store: &Arc<dyn Store>, is_endless: bool) -> String {
    let order = Submission {
        release: &release(),
        kind: "work",
        task_type: "",
        name: "",
        submitter: "",
        attempts_max: 1,
        crashes_max: 3,
        require: zk::Labels::NONE,
        after: &[],
        stays_open: false,
        share: Share::default(),
        shared: SharedData::Stored(&[]),
        brought: None,
        start_values: &[],
    };
    let root = Root::new(Work { is_endless }).unwrap();
    job::submit(&**store, &cluster(), &Draft::new(&root, &order).job()).await.unwrap()
}

/// Serves while a script runs with a connection of an operator, and leaves afterwards.
fn serve_during(tree: &MemoryTree, setup: &ServeSetup, script: impl AsyncFnOnce(Arc<dyn Store>)) {
    let (tell, leave) = mpsc::channel(1);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let operator: Arc<dyn Store> = tree.connect();
        cluster().prepare(&*operator).await.unwrap();
        let script = async {
            script(operator).await;
            tell.send(None).await.unwrap();
        };
        let both = async { tokio::join!(serve(setup, leave), script) };
        let (served, ()) = time::timeout(SOON, both).await.expect("it leaves");
        served.unwrap();
    });
}

/// The node works on another job while the first one is suspended.
#[test]
fn node_of_suspended_job_keeps_its_name() {
    let tree = MemoryTree::new();
    let mut kinds = Kinds::default();
    kinds.add::<Work>("work");
    let setup = setup(&tree, 0, kinds);
    let mut jobs = setup.jobs.subscribe();
    serve_during(&tree, &setup, async |operator| {
        let endless = submit(&operator, true).await;
        jobs.wait_for(|jobs| *jobs == 1).await.unwrap();
        let names = tree.paths_below(&cluster().members());
        job::suspend(&*operator, &cluster(), &endless, 0).await.unwrap();
        jobs.wait_for(|jobs| *jobs == 0).await.unwrap();
        let short = submit(&operator, false).await;
        let mut watch = JobWatch::open(Arc::clone(&operator), &cluster(), &short).await.unwrap();
        while watch.next().await.unwrap().state != JobState::Done {}
        assert_eq!(tree.paths_below(&cluster().members()), names);
    });
}

/// Waits until there is another member than these.
async fn another_member(tree: &MemoryTree, before: &[String]) -> String {
    loop {
        let new = tree.paths_below(&cluster().members()).into_iter().find(|path| {
            path.len() > cluster().members().len() && !before.iter().any(|node| path.ends_with(node.as_str()))
        });
        if let Some(path) = new {
            return path.rsplit('/').next().unwrap().to_owned();
        }
        time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn cordoned_node_stays_cordoned_under_its_new_id() {
    let tree = MemoryTree::new();
    let mut kinds = Kinds::default();
    kinds.add::<Work>("work");
    let session = Arc::default();
    let setup = setup_with(&tree, 0, kinds, Arc::clone(&session));
    serve_during(&tree, &setup, async |operator| {
        let first = another_member(&tree, &[]).await;
        membership::cordon(&*operator, &cluster(), &first).await.unwrap();
        // All tasks of this thread react before it continues.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let lost: SessionId = session.lock().unwrap().unwrap();
        tree.expire(lost);
        let second = another_member(&tree, std::slice::from_ref(&first)).await;
        while operator.exists(&cluster().cordon(&second)).await.unwrap().is_none() {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(operator.exists(&cluster().cordon(&first)).await.unwrap(), None, "it is removed");
        let short = submit(&operator, false).await;
        let mut watch = JobWatch::open(Arc::clone(&operator), &cluster(), &short).await.unwrap();
        assert_eq!(watch.next().await.unwrap().state, JobState::Running);
        membership::uncordon(&*operator, &cluster(), &second).await.unwrap();
        while watch.next().await.unwrap().state != JobState::Done {}
    });
    assert_eq!(tree.paths_below(&cluster().cordons()).len(), 1, "the folder alone");
}

/// Loses the answer to the next request about a znode.
struct LosesAnswer {
    path: String,
    lost: Arc<AtomicU64>,
}

impl Faults for LosesAnswer {
    fn judge(&mut self, _: SessionId, _: &'static str, path: &str) -> Fate {
        let is_meant = path == self.path && self.lost.fetch_add(1, Relaxed) == 0;
        if is_meant { Fate::LostAfter } else { Fate::Answered }
    }
}

/// Returns the details of the losses that the nodes of a job report.
async fn losses(store: &dyn Store, job: &str) -> Vec<String> {
    let folder = cluster().job(job).figures();
    let mut losses = Vec::new();
    for node in store.children(&folder).await.unwrap_or_default() {
        let (content, _) = store.get(&format!("{folder}/{node}")).await.unwrap();
        let report: NodeFigures<serde_json::Value> = zk::figures::decode(&node, &content).unwrap();
        let lost = report.timeline.into_iter().filter(|event| event.kind == EventKind::Lost);
        losses.extend(lost.map(|event| event.detail));
    }
    losses
}

#[test]
fn lost_node_is_reported_once_despite_an_outage() {
    const LOST: &str = "n00000000000000ff";
    let tree = MemoryTree::new();
    let mut kinds = Kinds::default();
    kinds.add::<Work>("work");
    let setup = setup(&tree, 0, kinds);
    let mut jobs = setup.jobs.subscribe();
    serve_during(&tree, &setup, async |operator| {
        let job = submit(&operator, true).await;
        jobs.wait_for(|jobs| *jobs == 1).await.unwrap();
        let attempt = cluster().job(&job).attempt(1);
        let lose = async |node: &str| {
            operator.create(&attempt.output(node), b"", CreateMode::Persistent).await.unwrap();
            let member = Member {
                program: release().program,
                program_version: release().version,
                address: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1)),
                fingerprint: "0".repeat(64),
                ..fixtures::member(node)
            };
            membership::join(&*operator, &cluster(), &member).await.unwrap();
            operator.delete(&cluster().member(node), None).await.unwrap();
        };
        let reported = async |node: &str| {
            while !losses(&*operator, &job).await.iter().any(|detail| detail.contains(node)) {
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        lose(LOST).await;
        reported(LOST).await;
        let lost = Arc::<AtomicU64>::default();
        tree.set_faults(LosesAnswer { path: attempt.outputs(), lost: Arc::clone(&lost) });
        lose("n00000000000000fe").await;
        reported("n00000000000000fe").await;
        assert!(lost.load(Relaxed) > 1, "the leader has read again after the outage");
        let losses = losses(&*operator, &job).await;
        let of_first = losses.iter().filter(|detail| detail.contains(LOST)).count();
        assert_eq!(of_first, 1, "{losses:?}");
    });
}
