//! Properties of every store when a connection breaks and is restored: to the same server, to a restarted
//! server, or to another server of the ensemble.

use std::{
    collections::BTreeSet,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use taskwork_tests::proxy::Proxy;
use tokio::time::timeout;
use zk::{
    ClusterPaths, Connect, CreateMode, Error, Events, MemoryStore, MemoryTree, OneShot, Session, WatchEvent,
    election::Candidate,
    job,
    membership::{self, Change, MemberWatch},
    queue::{JobQueue, Next},
    variable::{Published, VariableWatch, publish},
};
use zk_server::{Servers, Setup};

use super::{Connected, Connects, JOB, cluster, member, new_job, runtime, soon};

type World = Arc<dyn Breaks>;
type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A world in which a connection can be broken.
trait Breaks: Connects {
    /// Returns a session with a connection that can be broken; one in each world.
    fn fragile(&self) -> Soon<'_, Connected>;
    fn break_off(&self);
    /// Lets the connection be restored.
    fn restore(&self);
    /// Returns whether the other sessions can write in the meantime.
    fn others_can_write(&self) -> bool {
        true
    }
}

/// Repeats a request until there is an answer.
macro_rules! insist {
    ($ask:expr) => {
        loop {
            match soon($ask).await {
                Ok(answer) => break answer,
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    };
}

/// Breaks the connection and waits until the session reports it.
async fn break_off(world: &World, store: &Connected) {
    world.break_off();
    is(store, Session::Disconnected).await;
}

/// Lets the connection be restored and waits until the session reports it.
async fn restore(world: &World, store: &Connected) {
    world.restore();
    is(store, Session::Connected).await;
    // A connection that breaks again before its first answer is not detected at once.
    insist!(store.exists("/"));
}

async fn is(store: &Connected, state: Session) {
    soon(store.session().wait_for(|now| *now == state)).await.unwrap();
}

/// The tree in this process.
struct InMemory {
    tree: MemoryTree,
    fragile: Mutex<Option<Arc<MemoryStore>>>,
}

impl InMemory {
    fn set_connected(&self, connected: bool) {
        let fragile = self.fragile.lock().unwrap().clone().unwrap();
        self.tree.set_connected(fragile.id(), connected);
    }
}

impl Connects for InMemory {
    fn connect(&self) -> Soon<'_, Connected> {
        Connects::connect(&self.tree)
    }
}

impl Breaks for InMemory {
    fn fragile(&self) -> Soon<'_, Connected> {
        let store = self.tree.connect();
        *self.fragile.lock().unwrap() = Some(Arc::clone(&store));
        Box::pin(async { store as Connected })
    }

    fn break_off(&self) {
        self.set_connected(false);
    }

    fn restore(&self) {
        self.set_connected(true);
    }
}

/// A connection through proxies, one for each server; each reconnect uses the next one.
struct Proxied {
    servers: Servers,
    proxies: Vec<Proxy>,
    next: Mutex<usize>,
}

impl Proxied {
    fn start(setup: &Setup) -> Self {
        let servers = Servers::start(setup).unwrap();
        let addresses = servers.hosts();
        let addresses = addresses.split(',').map(|host| host.parse::<SocketAddr>().unwrap());
        let proxies = addresses.map(|address| Proxy::start(address).unwrap()).collect();
        Self { servers, proxies, next: Mutex::new(0) }
    }
}

impl Connects for Proxied {
    fn connect(&self) -> Soon<'_, Connected> {
        self.servers.connect()
    }
}

impl Breaks for Proxied {
    fn fragile(&self) -> Soon<'_, Connected> {
        Box::pin(async {
            self.break_off();
            self.restore();
            let hosts: Vec<String> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
            Connect::new(hosts.join(",")).open().await.expect("the servers serve") as Connected
        })
    }

    fn break_off(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn restore(&self) {
        let mut next = self.next.lock().unwrap();
        *next = (*next + 1) % self.proxies.len();
        self.proxies[*next].restore();
    }
}

/// One server, which is killed and restarted with its data.
struct Restarted(Mutex<Servers>);

impl Connects for Restarted {
    fn connect(&self) -> Soon<'_, Connected> {
        let hosts = self.0.lock().unwrap().hosts();
        Box::pin(async { Connect::new(hosts).open().await.expect("the server serves") as Connected })
    }
}

impl Breaks for Restarted {
    fn fragile(&self) -> Soon<'_, Connected> {
        self.connect()
    }

    fn break_off(&self) {
        self.0.lock().unwrap().kill(0).unwrap();
    }

    fn restore(&self) {
        let mut servers = self.0.lock().unwrap();
        servers.revive(0).unwrap();
        servers.wait_until_serving(0).unwrap();
    }

    fn others_can_write(&self) -> bool {
        false
    }
}

/// The maximum duration of a case: one case restarts a server four times, which on a busy machine takes many
/// seconds each. Every other step has its own limit.
const CASE_TIMEOUT: Duration = Duration::from_secs(240);

/// Runs every case, each with its own fragile session and folder.
macro_rules! suite {
    ($($case:ident),+ $(,)?) => {
        async fn run_all(world: World) {
            $(
                println!("case {}", stringify!($case));
                // The previous case may have left it on another server.
                let (store, folder) = (world.fragile().await, concat!("/", stringify!($case)));
                store.create(folder, b"", CreateMode::Persistent).await.unwrap();
                let case = $case(Arc::clone(&world), Arc::clone(&store), folder.to_owned());
                timeout(CASE_TIMEOUT, case).await.expect("the case ends in time");
                store.close().await.unwrap();
                world.break_off();
                world.restore();
            )+
        }
    };
}

suite!(
    one_time_watches_tell_what_happened_meanwhile,
    one_time_watches_fire_after_it,
    a_recursive_watch_says_rescan_and_is_dead,
    a_recursive_watch_set_anew_hears_everything,
    a_roll_tells_who_came_and_went_whenever,
    the_next_in_line_hears_that_the_leader_is_gone,
    variables_and_jobs_are_heard_of,
);

#[test]
fn memory_tree_conforms_over_reconnects() {
    let world = InMemory { tree: MemoryTree::new(), fragile: Mutex::new(None) };
    runtime().block_on(run_all(Arc::new(world)));
}

#[test]
fn broken_and_restored_connection_conforms() {
    runtime().block_on(run_all(Arc::new(Proxied::start(&Setup::standalone()))));
}

#[test]
fn move_to_another_server_conforms() {
    runtime().block_on(run_all(Arc::new(Proxied::start(&Setup::ensemble()))));
}

#[test]
fn restarted_server_conforms() {
    let servers = Servers::start(&Setup::standalone()).unwrap();
    runtime().block_on(run_all(Arc::new(Restarted(Mutex::new(servers)))));
}

/// Returns whether no event has occurred yet.
fn is_silent(events: &mut dyn Events) -> bool {
    matches!(events.next().as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

/// Sets watches of every kind below a folder, and returns the event that each sees of [`change_everything`].
async fn watch_everything(store: &Connected, folder: &str) -> Vec<(&'static str, OneShot, WatchEvent)> {
    let at = |name: &str| format!("{folder}/{name}");
    for name in ["set", "deleted", "parent", "stat", "emptied"] {
        store.create(&at(name), b"", CreateMode::Persistent).await.unwrap();
    }
    let data = async |name: &str| store.get_and_watch(&at(name)).await.unwrap().2;
    let exists = async |name: &str| store.exists_and_watch(&at(name)).await.unwrap().1;
    let children = async |name: &str| store.children_and_watch(&at(name)).await.unwrap().1;
    vec![
        ("data, set", data("set").await, WatchEvent::DataChanged(at("set"))),
        ("data, deleted", data("deleted").await, WatchEvent::Deleted(at("deleted"))),
        ("there, set", exists("stat").await, WatchEvent::DataChanged(at("stat"))),
        ("there, deleted", exists("deleted").await, WatchEvent::Deleted(at("deleted"))),
        ("not there, created", exists("created").await, WatchEvent::Created(at("created"))),
        ("a child created", children("parent").await, WatchEvent::ChildrenChanged(at("parent"))),
        ("the parent deleted", children("emptied").await, WatchEvent::Deleted(at("emptied"))),
    ]
}

async fn change_everything(other: &Connected, folder: &str) {
    let at = |name: &str| format!("{folder}/{name}");
    for name in ["set", "stat"] {
        other.set(&at(name), b"1", None).await.unwrap();
    }
    for name in ["created", "parent/child"] {
        other.create(&at(name), b"", CreateMode::Persistent).await.unwrap();
    }
    for name in ["deleted", "emptied"] {
        other.delete(&at(name), None).await.unwrap();
    }
}

async fn one_time_watches_tell_what_happened_meanwhile(world: World, store: Connected, folder: String) {
    if !world.others_can_write() {
        return;
    }
    let (other, watches) = (world.connect().await, watch_everything(&store, &folder).await);
    break_off(&world, &store).await;
    assert_eq!(store.get(&folder).await, Err(Error::ConnectionLost));
    change_everything(&other, &folder).await;
    restore(&world, &store).await;
    for (what, watch, event) in watches {
        assert_eq!(soon(watch).await, event, "{what}");
    }
}

async fn one_time_watches_fire_after_it(world: World, store: Connected, folder: String) {
    let (other, watches) = (world.connect().await, watch_everything(&store, &folder).await);
    for _ in 0..2 {
        break_off(&world, &store).await;
        restore(&world, &store).await;
    }
    insist!(other.exists("/"));
    change_everything(&other, &folder).await;
    for (what, watch, event) in watches {
        assert_eq!(soon(watch).await, event, "{what}");
    }
}

async fn a_recursive_watch_says_rescan_and_is_dead(world: World, store: Connected, folder: String) {
    let (other, mut events) = (world.connect().await, store.watch_tree(&folder).await.unwrap());
    break_off(&world, &store).await;
    if world.others_can_write() {
        other.create(&format!("{folder}/unheard"), b"", CreateMode::Persistent).await.unwrap();
    }
    restore(&world, &store).await;
    insist!(other.exists("/"));
    assert_eq!(soon(events.next()).await, WatchEvent::Rescan);
    // Another watch on the same path does not wake it.
    let mut new = store.watch_tree(&folder).await.unwrap();
    let path = format!("{folder}/heard");
    other.create(&path, b"", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon(new.next()).await, WatchEvent::Created(path));
    assert!(is_silent(&mut *events), "a watch does not outlive its connection");
    store.close().await.unwrap();
    assert_eq!(soon(events.next()).await, WatchEvent::Ended);
}

async fn a_recursive_watch_set_anew_hears_everything(world: World, store: Connected, folder: String) {
    let (other, mut events) = (world.connect().await, store.watch_tree(&folder).await.unwrap());
    for (round, old_goes_first) in [false, true, true].into_iter().enumerate() {
        break_off(&world, &store).await;
        restore(&world, &store).await;
        insist!(other.exists("/"));
        assert_eq!(soon(events.next()).await, WatchEvent::Rescan);
        // Dropping the old watch must not remove the new one, whichever is first.
        let mut old = Some(events);
        drop(old.take_if(|_| old_goes_first));
        events = store.watch_tree(&folder).await.unwrap();
        drop(old);
        for name in ["a", "b"] {
            let path = format!("{folder}/{name}-{round}");
            other.create(&path, b"", CreateMode::Persistent).await.unwrap();
            assert_eq!(soon(events.next()).await, WatchEvent::Created(path.clone()), "round {round}");
            other.delete(&path, None).await.unwrap();
            assert_eq!(soon(events.next()).await, WatchEvent::Deleted(path), "round {round}");
        }
    }
}

async fn change(members: &mut MemberWatch) -> Change {
    insist!(members.next())
}

async fn a_roll_tells_who_came_and_went_whenever(world: World, store: Connected, _: String) {
    let (cluster, other) = (cluster(&store, "reconnect-members").await, world.connect().await);
    let mut members = MemberWatch::open(Arc::clone(&store), &cluster).await.unwrap();
    let join = async |node: &str| membership::join(&*other, &cluster, &member(node)).await.unwrap();
    let leave = async |node: &str| other.delete(&cluster.member(node), None).await.unwrap();
    join("first").await;
    assert_eq!(change(&mut members).await, Change::Joined(member("first")));
    for round in 0..2 {
        let (meanwhile, after) = (format!("meanwhile-{round}"), format!("after-{round}"));
        break_off(&world, &store).await;
        if world.others_can_write() {
            join(&meanwhile).await;
        }
        // The connection breaks again before the member watch is read.
        restore(&world, &store).await;
        break_off(&world, &store).await;
        restore(&world, &store).await;
        insist!(other.exists("/"));
        if world.others_can_write() {
            assert_eq!(change(&mut members).await, Change::Joined(member(&meanwhile)));
        }
        join(&after).await;
        assert_eq!(change(&mut members).await, Change::Joined(member(&after)));
        leave(&after).await;
        assert_eq!(change(&mut members).await, Change::Left(after));
    }
}

async fn the_next_in_line_hears_that_the_leader_is_gone(world: World, store: Connected, _: String) {
    let (cluster, other) = (cluster(&store, "reconnect-election").await, world.connect().await);
    let mut leader = Candidate::enter(Arc::clone(&other), &cluster, JOB, "a").await.unwrap();
    let mut next = Candidate::enter(Arc::clone(&store), &cluster, JOB, "b").await.unwrap();
    soon(leader.elected()).await.unwrap();
    let waiting = tokio::spawn(async move { insist!(next.elected()) });
    break_off(&world, &store).await;
    restore(&world, &store).await;
    insist!(other.exists("/"));
    leader.withdraw().await.unwrap();
    let fence = soon(waiting).await.unwrap();
    assert!(store.multi(vec![fence.check()]).await.is_ok());
}

async fn variables_and_jobs_are_heard_of(world: World, store: Connected, folder: String) {
    let (cluster, other) = (cluster(&store, "reconnect-jobs").await, world.connect().await);
    let path = format!("{folder}/best");
    let mut variable = VariableWatch::open(Arc::clone(&store), &path).await.unwrap();
    let mut queue = JobQueue::new(Arc::clone(&store), cluster.clone(), member("a"));
    let better = |new: &[u8], old: &[u8]| new > old;
    assert_eq!(publish(&*other, &path, b"1", &better).await, Ok(Published::Written));
    assert_eq!(soon(variable.next()).await, Ok(b"1".to_vec()));
    let told = tokio::spawn(async move { insist!(variable.next()) });
    let next = tokio::spawn(async move { insist!(queue.next(&BTreeSet::new(), &BTreeSet::new())) });
    break_off(&world, &store).await;
    restore(&world, &store).await;
    insist!(other.exists("/"));
    assert_eq!(publish(&*other, &path, b"2", &better).await, Ok(Published::Written));
    let submitted = submit(&other, &cluster).await;
    assert_eq!(soon(told).await.unwrap(), b"2");
    assert!(matches!(soon(next).await.unwrap(), Next::Job(job, _) if job == submitted));
}

async fn submit(store: &Connected, cluster: &ClusterPaths) -> String {
    job::submit(&**store, cluster, &new_job(b"")).await.unwrap()
}
