//! A node process over a tree in memory that loses requests: the node waits out temporary failures.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime,
    sync::{mpsc, watch},
    time,
};
use zk::{ClusterPaths, CreateMode, Fate, Faults, MemoryTree, Release, Store, tree::SessionId};

use super::{
    kinds::Kinds,
    platform::{Connecting, Endpoint, Platform, listen},
    seat::SeatError,
    serve::{Brought, ServeError, ServeSetup, serve},
};
use crate::{config::Limits, id::NodeId};

/// The maximum duration of each step of a test.
const SOON: Duration = Duration::from_secs(30);

/// A tree in memory whose first sessions expire immediately.
struct InMemory {
    tree: MemoryTree,
    expired: u64,
    connected: AtomicU64,
}

impl Platform for InMemory {
    fn connect(&self) -> Connecting<'_> {
        let store = self.tree.connect();
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

/// Serves until there is a member, then asks the node to leave.
fn serve_until_a_member(tree: &MemoryTree, expired: u64) -> Result<(), ServeError> {
    let platform = InMemory { tree: tree.clone(), expired, connected: AtomicU64::new(0) };
    let setup = ServeSetup {
        platform: Box::new(platform),
        cluster: cluster(),
        release: Release { program: "none".to_owned(), version: "1".to_owned() },
        kinds: Kinds::default(),
        workers: 1,
        memory_bytes: 0,
        labels: zk::Labels::default(),
        near: None,
        limits: Limits::default(),
        brought: Brought::default(),
        pulse: Arc::default(),
        report_every: None,
        jobs: watch::Sender::default(),
    };
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
    for after in 0..10 {
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
