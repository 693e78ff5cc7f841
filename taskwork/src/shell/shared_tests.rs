//! Large shared data of a job among nodes on the loopback interface, over a tree in memory that counts the reads of
//! each session.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{task::JoinSet, time};
use zk::{
    ClusterPaths, Fate, Faults, Labels, MemoryTree, Release, Store,
    job::{self, NewJob},
    tree::SessionId,
};

use super::{
    platform::{Process, listen},
    seat::{Seat, SeatSetup},
    shared::{self, ReadError, Shared, Source},
    transport::bulk::Object,
};
use crate::{
    id::{JobId, NodeId},
    pool::Crew,
};

/// The maximum duration of each step of a test.
const SOON: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;

/// The number of chunks of shared data that each session has read.
#[derive(Clone, Default)]
struct Readers(Arc<Mutex<BTreeMap<SessionId, usize>>>);

impl Faults for Readers {
    fn judge(&mut self, session: SessionId, _: &'static str, path: &str) -> Fate {
        if path.contains("/shared/") {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session).or_default() += 1;
        }
        Fate::Answered
    }
}

struct Stage {
    tree: MemoryTree,
    job: JobId,
    readers: Readers,
    content: Vec<u8>,
}

fn cluster() -> ClusterPaths {
    ClusterPaths::new("test").unwrap()
}

fn release() -> Release {
    Release { program: "none".to_owned(), version: "1".to_owned() }
}

impl Stage {
    /// Submits a job with this number of bytes of shared data, and a name for them.
    async fn new(bytes: usize, name: impl FnOnce(&[u8]) -> String) -> Self {
        Self::with(bytes, name, None).await
    }

    /// Submits a job with shared data that only a member holds.
    async fn brought(bytes: usize, by: u64) -> Self {
        Self::with(bytes, shared::name, Some(NodeId(by))).await
    }

    async fn with(bytes: usize, name: impl FnOnce(&[u8]) -> String, by: Option<NodeId>) -> Self {
        let tree = MemoryTree::new();
        let operator = tree.connect();
        cluster().prepare(&*operator).await.unwrap();
        let content: Vec<u8> = (0..bytes as u64 / 8).flat_map(u64::to_le_bytes).collect();
        let new = NewJob {
            program: "none",
            program_version: "1",
            kind: "",
            task_type: "",
            name: "a job",
            shared: if by.is_none() { &content } else { &[] },
            shared_name: &name(&content),
            shared_from: &by.map(|node| node.to_string()).unwrap_or_default(),
            brought: None,
            root_id: "n0000000000000000-0",
            root: b"",
            variables: &[],
            attempts_max: 1,
            crashes_max: 0,
            require: Labels::NONE,
            after: &[],
            stays_open: false,
            share: job::Share::default(),
            submitter: "me",
            now_ms: 0,
        };
        let job = job::submit(&*operator, &cluster(), &new).await.unwrap().parse().unwrap();
        let readers = Readers::default();
        tree.set_faults(readers.clone());
        Self { tree, job, readers, content }
    }

    async fn seat(&self, node: u64) -> Seat {
        self.seat_with(node, 1, Vec::new()).await
    }

    /// Takes a seat without workers that provides the data.
    async fn provider(&self, node: u64) -> Seat {
        let pieces = self.content.chunks(MIB).map(Bytes::copy_from_slice);
        self.seat_with(node, 0, vec![Object::new(pieces)]).await
    }

    async fn seat_with(&self, node: u64, workers: usize, brought: Vec<Object>) -> Seat {
        let node = NodeId(node);
        Seat::take(SeatSetup {
            node,
            store: self.tree.connect() as Arc<dyn Store>,
            cluster: cluster(),
            release: release(),
            workers,
            crew: Crew::start(workers).unwrap(),
            memory_bytes: 0,
            labels: Labels::default(),
            near: None,
            records_read_max: 64,
            endpoint: Some(listen(node, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), None).unwrap()),
            brought,
            resigned: None,
            pulse: Arc::default(),
            probe: Arc::new(Process),
            is_cordoned: false,
        })
        .await
        .unwrap()
    }

    async fn read(&self, seat: &Seat) -> Result<Shared, ReadError> {
        let reading = async {
            let (record, _) = job::read(&*seat.store, &seat.cluster, &self.job.0).await?;
            Source::of(seat).read(&self.job, &record).await
        };
        time::timeout(SOON, reading).await.expect("an end in time")
    }

    /// Returns the number of chunks read by each session that has read any.
    fn reads(&self) -> Vec<usize> {
        self.readers.0.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}

/// Lets nodes read the data concurrently, and returns their results. None is dropped before all nodes have the data.
async fn read_all(stage: &Arc<Stage>, nodes: RangeInclusive<u64>) -> Vec<(Seat, Shared)> {
    let mut seats = Vec::new();
    for node in nodes {
        seats.push(stage.seat(node).await);
    }
    let mut reading = JoinSet::new();
    for seat in seats {
        let stage = Arc::clone(stage);
        reading.spawn(async move {
            let read = stage.read(&seat).await.unwrap();
            assert!(read.pieces.concat() == stage.content);
            (seat, read)
        });
    }
    let mut held = Vec::new();
    while let Some(read) = reading.join_next().await {
        held.push(read.unwrap());
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_read_from_zookeeper_and_the_others_from_nodes() {
    let stage = Arc::new(Stage::new(6 * MIB, shared::name).await);
    let held = read_all(&stage, 1..=10).await;
    assert_eq!(held.len(), 10);
    assert_eq!(stage.reads(), [12, 12], "two nodes have read the twelve chunks");
    let figures = || held.iter().map(|(seat, _)| seat.bulk.as_ref().unwrap().figures());
    let bytes = stage.content.len() as u64;
    assert_eq!(figures().map(|figures| figures.received_bytes).sum::<u64>(), 8 * bytes);
    // A node that joins later gets the data from these nodes.
    let late = stage.seat(11).await;
    assert!(stage.read(&late).await.unwrap().pieces.concat() == stage.content);
    assert_eq!(stage.reads(), [12, 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_source_reads_from_zookeeper() {
    let stage = Stage::new(2 * MIB, shared::name).await;
    // These nodes are members, but do not work on the job.
    let others = [stage.seat(1).await, stage.seat(2).await];
    let late = stage.seat(3).await;
    assert!(stage.read(&late).await.unwrap().pieces.concat() == stage.content);
    assert_eq!(stage.reads(), [4]);
    drop(others);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_or_unnamed_data_is_read_from_zookeeper_by_each_node() {
    for (bytes, unnamed) in [(0, false), (MIB - 8, false), (2 * MIB, true)] {
        let name = |content: &[u8]| if unnamed { String::new() } else { shared::name(content) };
        let stage = Stage::new(bytes, name).await;
        for node in 1..=4 {
            let seat = stage.seat(node).await;
            let read = stage.read(&seat).await.unwrap();
            assert!(read.pieces.concat() == stage.content && read.offer.is_none());
        }
        assert_eq!(stage.reads().len(), if bytes == 0 { 0 } else { 4 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_does_not_match_the_record_is_an_error() {
    let stage = Stage::new(2 * MIB, |content| shared::name(&content[8..])).await;
    let seat = stage.seat(1).await;
    let read = stage.read(&seat).await.map(|read| read.pieces.concat().len());
    assert!(matches!(read, Err(ReadError::Store(zk::Error::Garbled { .. }))), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_outside_zookeeper_comes_from_the_provider_then_from_nodes() {
    let stage = Arc::new(Stage::brought(6 * MIB, 50).await);
    let provider = stage.provider(50).await;
    let held = read_all(&stage, 11..=20).await;
    assert_eq!(held.len(), 10);
    assert!(stage.reads().is_empty(), "nothing of it is in ZooKeeper");
    provider.give_up().await;
    // This node has the lowest id, so it has no node below it to fetch from.
    let late = stage.seat(1).await;
    assert!(stage.read(&late).await.unwrap().pieces.concat() == stage.content);
}

#[tokio::test(flavor = "multi_thread")]
async fn submitter_is_found_under_its_new_id_after_a_lost_session() {
    let stage = Stage::brought(2 * MIB, 50).await;
    let _provider = stage.provider(51).await;
    let seat = stage.seat(1).await;
    assert!(stage.read(&seat).await.unwrap().pieces.concat() == stage.content);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_is_absent_until_a_member_provides_it() {
    let stage = Stage::brought(2 * MIB, 50).await;
    let (seat, _other) = (stage.seat(1).await, stage.seat(2).await);
    let read = stage.read(&seat).await.map(|read| read.pieces.len());
    assert!(matches!(read, Err(ReadError::Absent { bytes: 2_097_152, .. })), "{read:?}");
    let _provider = stage.provider(51).await;
    assert!(stage.read(&seat).await.unwrap().pieces.concat() == stage.content);
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_counts_the_nodes_that_have_its_data() {
    let stage = Stage::brought(2 * MIB, 50).await;
    let object = Object::new([Bytes::from(stage.content.clone())]);
    let _provider = stage.seat_with(50, 0, vec![object.clone()]).await;
    let (one, other) = (stage.seat(1).await, stage.seat(2).await);
    let _first = stage.read(&one).await.unwrap();
    time::timeout(SOON, object.taken_by(|takers| !takers.is_empty())).await.expect("one has it");
    let mut both = std::pin::pin!(object.taken_by(|takers| takers.len() >= 2));
    assert!(is_pending(both.as_mut()).await, "only one has it");
    let _second = stage.read(&other).await.unwrap();
    time::timeout(SOON, both).await.expect("two have it");
}

/// Returns whether a future is pending.
async fn is_pending(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    tokio::select! {
        biased;
        () = future => false,
        () = std::future::ready(()) => true,
    }
}
