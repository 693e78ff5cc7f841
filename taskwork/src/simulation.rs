//! Support for the project's simulator: a complete node, as in a node process, on a simulated platform.
//!
//! Everything is the production code (the serving loop, the seat, the driver, the protocol core, the
//! coordination, the pool), except the sources of nondeterminism: the session, the network, ids and the
//! threads of the workers come from a [`World`]. Time is that of the tokio runtime, which may be paused.

mod objects;

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time,
};
use zk::{ClusterPaths, Labels, Release, Store, figures::ProcessNow, job::Share};

use self::objects::WorldStreams;
pub use self::objects::{Answer, Answering};
pub use crate::pool::Pace;
use crate::{
    companion::NotSent,
    config::Limits,
    core::{self, Message},
    envelope::Envelope,
    erased::{Kind, OpenError, PoolOpening, PoolSetup},
    holdings::Holdings,
    id::{Attempt, NodeId, TaskId},
    pool::{Crew, Pool, Slices, Work},
    report::JobError,
    shell::{
        errors::{SeatError, ServeError},
        kinds::Kinds,
        mail::Mail,
        platform::{ARRIVALS_MAX, Connecting, Endpoint, Network, Platform, Probe},
        serve::{Brought, ServeSetup, serve},
        submit::{Draft, Root, SharedData, Submission, Tracked},
        transport::{
            Arrival, Carrier, Peers, Rooms, Subject, TransportLimits, UnderWay,
            bulk::{Blocking, Bulk, BulkState},
        },
    },
    task::Task,
    wire::{codec, large, packet::Packet, parcel::Parcel, payload::Payload},
};

/// The future of a session on the tree of znodes.
pub type Opening = Pin<Box<dyn Future<Output = zk::Result<Arc<dyn Store>>> + Send>>;

/// The environment of the nodes.
pub trait World: Send + Sync + 'static {
    /// Opens a session.
    fn connect(&self) -> Opening;
    /// Returns an id that no other node has had.
    fn new_id(&self) -> NodeId;
    /// Starts listening for a node: messages to it go into the inbox.
    fn listen(&self, node: NodeId, inbox: Inbox);
    /// Sends a message of a node.
    fn send(&self, from: NodeId, to: NodeId, payload: Vec<u8>);
    /// Returns whether a message that decides about a grant is still queued, in which case the node does not
    /// send another of the same kind (`said`) about this grant. By default no message is queued.
    fn waits(&self, from: NodeId, to: NodeId, job: u64, grant: u64, said: u8) -> bool {
        let _ = (from, to, job, grant, said);
        false
    }
    /// Delivers a request for an object to [`Inbox::ask`] of its owner, and the answer to the sender. The bytes of an answer
    /// arrive in order.
    fn ask(&self, from: NodeId, to: NodeId, question: Vec<u8>, answer: Answer);
    /// Stops listening for a node.
    fn hang_up(&self, node: NodeId);
    /// Receives the description of an invariant that a node has violated.
    fn on_violation(&self, violation: &str);
}

/// The receiver of the messages to a node.
#[derive(Debug, Clone)]
pub struct Inbox {
    arrivals: mpsc::Sender<Arrival>,
    rooms: Arc<Rooms>,
    peers: Arc<Peers>,
    objects: Arc<BulkState>,
}

impl Inbox {
    /// Delivers a message. It is dropped when too many messages or bytes are queued. If the receiver knows
    /// only the name of the sender, it reads the sender's record first, as before dialling a node.
    pub fn message(&self, from: NodeId, payload: Vec<u8>) {
        if !self.peers.is_unread(from) {
            return self.deliver(from, payload);
        }
        let inbox = self.clone();
        tokio::spawn(async move {
            if let Ok(Some(_)) = time::timeout(TransportLimits::default().dial, inbox.peers.find(from)).await
            {
                inbox.deliver(from, payload);
            }
        });
    }

    fn deliver(&self, from: NodeId, payload: Vec<u8>) {
        if let Some(room) = self.rooms.try_enter(payload.len()) {
            let _ = self.arrivals.try_send(Arrival::Message { from, payload, room });
        }
    }

    /// Returns the node's answer to the request of another node; `None` if it rejects the connection or the request.
    pub fn ask(&self, from: NodeId, question: &[u8]) -> Option<Answering> {
        if !self.peers.has(from) {
            return None;
        }
        let (answer, serving) = self.objects.answer(question).ok()?;
        Some(Answering { to: from, answer: codec::encode(&answer).ok(), serving })
    }

    /// Reports that a message of this node could not be delivered.
    pub fn unreachable(&self, to: NodeId) {
        let _ = self.arrivals.try_send(Arrival::Unreachable { to });
    }
}

struct Wire {
    node: NodeId,
    world: Arc<dyn World>,
    inbox: Inbox,
}

impl Carrier for Wire {
    fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload) {
        if subject.is_some_and(|subject| self.under_way(to, subject) != UnderWay::No) {
            return;
        }
        if !self.inbox.peers.is_unread(to) {
            return self.world.send(self.node, to, payload.to_vec());
        }
        let (node, world, inbox) = (self.node, Arc::clone(&self.world), self.inbox.clone());
        tokio::spawn(async move {
            match time::timeout(TransportLimits::default().dial, inbox.peers.find(to)).await {
                Ok(Some(_)) => world.send(node, to, payload.to_vec()),
                _ => inbox.unreachable(to),
            }
        });
    }

    fn send_note(&self, to: NodeId, payload: Payload) -> Result<(), NotSent> {
        // As in the transport of a real machine.
        if !self.inbox.peers.has(to) {
            return Err(NotSent::Unknown);
        }
        self.send(to, None, payload);
        Ok(())
    }

    fn under_way(&self, to: NodeId, Subject { job, grant, kind }: Subject) -> UnderWay {
        let waits = self.world.waits(self.node, to, job, grant, kind);
        if waits { UnderWay::Waits } else { UnderWay::No }
    }

    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.world.hang_up(self.node);
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone)]
struct OnWorld(Arc<dyn World>);

impl Platform for OnWorld {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(self.0.connect().await?) })
    }

    fn new_id(&self) -> NodeId {
        self.0.new_id()
    }

    fn start_crew(&self, workers: usize) -> io::Result<Crew> {
        Ok(Crew::start_sliced(workers))
    }

    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError> {
        let (sender, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let rooms = Arc::new(Rooms::new(&TransportLimits::default()));
        let peers = Arc::new(Peers::default());
        // Another thread would not use the run's virtual time.
        let limits = TransportLimits { blocking: Blocking::Inline, ..TransportLimits::default() };
        let objects = Arc::new(BulkState::new(&limits));
        let inbox =
            Inbox { arrivals: sender, rooms, peers: Arc::clone(&peers), objects: Arc::clone(&objects) };
        let streams = WorldStreams { node, world: Arc::clone(&self.0), peers: Arc::clone(&peers) };
        self.0.listen(node, inbox.clone());
        let carrier = Box::new(Wire { node, world: Arc::clone(&self.0), inbox });
        Ok(Endpoint {
            network: Network { carrier, arrivals },
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            fingerprint: "0".repeat(64),
            peers,
            bulk: Some(Bulk::new(Arc::new(streams), objects)),
        })
    }

    fn probe(&self) -> Arc<dyn Probe> {
        Arc::new(self.clone())
    }
}

impl Probe for OnWorld {
    fn process(&self) -> ProcessNow {
        // The nodes share a process, and their records must be the same in each run.
        ProcessNow::default()
    }

    fn place(&self) -> (String, u32) {
        (String::new(), 0)
    }

    fn on_event(&self, core: &core::Node) {
        if let Err(violation) = core.check() {
            self.0.on_violation(&violation);
        }
    }
}

/// The settings of a node.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The cluster.
    pub cluster: ClusterPaths,
    /// The release.
    pub release: Release,
    /// The number of workers.
    pub workers: usize,
    /// The labels.
    pub labels: Labels,
    /// The label that decides which nodes are near, if any.
    pub near: Option<String>,
    /// The limits.
    pub limits: Limits,
}

const KIND: &str = "simulated";

/// Runs a node until it leaves after a message on `leave`, which may be repeated, or fails. The message is the
/// remaining time, if it is less than the limit.
///
/// # Errors
/// As for a node process.
pub async fn run_node<T: Task>(
    world: Arc<dyn World>,
    pace: Arc<dyn Pace>,
    setup: Setup,
    leave: mpsc::Receiver<Option<Duration>>,
) -> Result<(), String> {
    let mut kinds = Kinds::default();
    kinds.add_kind(KIND, Sliced::<T> { pace, tasks: std::marker::PhantomData });
    let setup = ServeSetup {
        platform: Box::new(OnWorld(world)),
        cluster: setup.cluster,
        release: setup.release,
        kinds,
        workers: setup.workers,
        memory_bytes: 0,
        labels: setup.labels,
        near: setup.near,
        limits: setup.limits,
        brought: Brought::default(),
        pulse: Arc::default(),
        report_every: None,
        jobs: watch::Sender::default(),
    };
    serve(&setup, leave).await.map_err(|error: ServeError| error.to_string())
}

/// A type of task whose tasks run in slices.
struct Sliced<T> {
    pace: Arc<dyn Pace>,
    tasks: std::marker::PhantomData<fn() -> T>,
}

impl<T: Task> Kind for Sliced<T> {
    fn task_type(&self) -> &'static str {
        std::any::type_name::<T>()
    }

    fn open(&self, setup: PoolSetup) -> PoolOpening<'_> {
        Box::pin(async move {
            let PoolSetup { node, job, workers, limits, tasks_made, shared } = setup;
            // Decoded immediately and on this thread: another thread would not use the run's virtual time.
            let shared = large::decode(&shared).map_err(|error| OpenError::unreadable(&error))?;
            let pool = Pool::<T>::new(node, Arc::new(shared), workers, limits).numbered(tasks_made);
            Ok(Arc::new(Slices::new(pool, job, Arc::clone(&self.pace))) as Arc<dyn Work>)
        })
    }
}

/// The requirements of a job.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// The labels that a node must have.
    pub require: &'a Labels,
    /// Whether root tasks may be [added](add).
    pub stays_open: bool,
    /// Its share of the nodes.
    pub share: Share,
}

/// Submits a job that nodes of [`run_node`] can run. Returns its name.
///
/// # Errors
/// Any error of the store.
pub async fn submit<T: Task>(
    store: Arc<dyn Store>,
    setup: &Setup,
    root: T,
    shared: &T::Shared,
    Terms { attempts_max, require, stays_open, share }: Terms<'_>,
) -> Result<String, JobError> {
    let order = Submission {
        release: &setup.release,
        kind: KIND,
        task_type: std::any::type_name::<T>(),
        name: "simulated",
        submitter: "simulator",
        attempts_max,
        crashes_max: setup.limits.crashes_max,
        require,
        after: &[],
        stays_open,
        share,
        shared: SharedData::Stored(&codec::encode(shared)?),
        brought: None,
        start_values: &[],
    };
    let started = std::time::Instant::now();
    let root = Root::new(root)?;
    Ok(Tracked::submit(store, setup.cluster.clone(), &Draft::new(&root, &order), started).await?.job.0)
}

/// Adds a root task to a job that stays open. `number` is the task's number, the same for every try. Returns whether
/// the task was added; otherwise it never will be.
///
/// # Errors
/// Any error of the store.
pub async fn add<T: Task>(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    number: u64,
    root: T,
) -> Result<bool, JobError> {
    let root = Root::with_id(TaskId { number, ..TaskId::ROOT }, root)?;
    let added = zk::job::add(store, cluster, job, root.id(), root.bytes()).await?;
    Ok(added == zk::job::Added::Added)
}

/// Decodes a value that a program has written to a znode: an output, a variable, a result.
pub fn decode<V: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<V> {
    codec::decode(bytes).ok()
}

/// The tasks in a znode, each with its output so far.
#[derive(Debug)]
pub struct Stored<T: Task> {
    /// The tasks.
    pub tasks: Vec<(T, T::Output)>,
    /// Whether the holder has more tasks than are written here.
    pub unprotected: bool,
    /// The maximum number of nodes in a row that were lost with one of the tasks.
    pub crashes: u32,
}

/// Decodes a parked task.
pub fn parked<T: Task>(bytes: &[u8]) -> Option<Stored<T>> {
    stored(&Holdings::of(vec![codec::decode(bytes).ok()?]))
}

/// Decodes the holdings of a node, or tasks in transit.
pub fn held<T: Task>(bytes: &[u8]) -> Option<Stored<T>> {
    stored(&codec::decode(bytes).ok()?)
}

fn stored<T: Task>(Holdings { tasks, unprotected, .. }: &Holdings) -> Option<Stored<T>> {
    let open = |task: &Envelope| Some((codec::decode(&task.task).ok()?, codec::decode(&task.output).ok()?));
    let crashes = tasks.iter().map(|task| task.crashes).max().unwrap_or(0);
    Some(Stored { tasks: tasks.iter().map(open).collect::<Option<_>>()?, unprotected: *unprotected, crashes })
}

/// Returns the job and the grant that a message is about, and the kind of the message; `None` if it is not
/// about a grant.
pub fn subject(payload: &[u8]) -> Option<(u64, u64, u8)> {
    let Packet::Protocol(parcel) = codec::decode::<Packet>(payload).ok()? else { return None };
    let Subject { job, grant, kind } = Mail::subject(parcel.job, &parcel.message)?;
    Some((job, grant, kind))
}

/// Returns whether a message carries tasks.
pub fn carries_tasks(payload: &[u8]) -> bool {
    let packet = codec::decode::<Packet>(payload);
    packet
        .is_ok_and(|packet| matches!(packet, Packet::Protocol(Parcel { message: Message::Grant { .. }, .. })))
}

/// Returns a grant of a task that no node has split off, for a job and an attempt, as an outsider could send
/// it.
///
/// # Panics
/// If the task cannot be encoded.
pub fn forged_grant<T: Task>(job: u64, attempt: u32, from: NodeId, task: &T) -> Vec<u8> {
    let task = codec::encode(task).expect("the simulator's tasks can be encoded").into();
    let id = TaskId { node: from, number: 0 };
    let output = codec::encode(&T::Output::default()).expect("an output can be encoded").into();
    let tasks = vec![Envelope::new(id, output, task)];
    let message = Message::Grant { grant: 1, request: None, settled_below: 0, tasks };
    parcel(job, attempt, message)
}

/// Returns a steal request, as an outsider could send it.
pub fn forged_steal(job: u64, attempt: u32) -> Vec<u8> {
    parcel(job, attempt, Message::Steal { request: 1 })
}

fn parcel(job: u64, attempt: u32, message: Message) -> Vec<u8> {
    let parcel = Parcel { job, attempt: Attempt(attempt), message, riders: Vec::new() };
    codec::encode(&Packet::Protocol(parcel)).expect("a message can be encoded")
}
