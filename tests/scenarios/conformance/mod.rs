//! One suite for every store: the tree in this process, in memory and on disk, one real server, and three of
//! them. So properties that are shown over the tree hold on a server too, as far as the suite covers them.

mod access;
mod lost;
mod outage;
mod recipes;
mod reconnect;

use std::{future::Future, sync::Arc, time::Duration};

use zk::{Connect, CreateMode, Error, MemoryTree, Op, OpAnswer, Session, Store, WatchEvent, durable};
use zk_server::{Servers, Setup};

use self::recipes::{
    JOB, ROOT, a_job_runs_from_submission_to_result, a_journal_has_one_writer, cluster, member,
    members_come_and_go, new_job, the_next_in_line_leads,
};

type World = Arc<dyn Connects>;
type Connected = Arc<dyn Store>;

/// The source of sessions.
trait Connects: Send + Sync {
    fn connect(&self) -> std::pin::Pin<Box<dyn Future<Output = Connected> + Send + '_>>;
}

impl Connects for MemoryTree {
    fn connect(&self) -> std::pin::Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        Box::pin(async { Self::connect(self) as Connected })
    }
}

impl Connects for Servers {
    fn connect(&self) -> std::pin::Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        Box::pin(async { Connect::new(self.hosts()).open().await.expect("the servers serve") as Connected })
    }
}

const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens in time")
}

macro_rules! suite {
    ($($case:ident),+ $(,)?) => {
        /// Runs every case, each with its own folder.
        async fn run_all(world: World) {
            $(
                println!("case {}", stringify!($case));
                let (store, folder) = (world.connect().await, concat!("/", stringify!($case)));
                store.create(folder, b"", CreateMode::Persistent).await.unwrap();
                soon($case(Arc::clone(&world), store, folder.to_owned())).await;
            )+
        }
    };
}

suite!(
    a_znode_lives_from_create_to_delete,
    what_is_refused_says_why,
    every_child_counts_for_the_numbers,
    ephemerals_go_with_their_session,
    a_transaction_is_done_whole_or_not_at_all,
    requests_are_sent_when_they_are_made,
    one_time_watches_fire_once,
    a_recursive_watch_sees_everything_in_order,
    a_request_that_is_too_large_costs_nothing_else,
    a_closed_session_does_nothing_more,
    members_come_and_go,
    the_next_in_line_leads,
    a_job_runs_from_submission_to_result,
    a_journal_has_one_writer,
);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn memory_tree_conforms() {
    runtime().block_on(run_all(Arc::new(MemoryTree::new())));
}

#[test]
fn disk_tree_conforms() {
    let dir = tempfile::TempDir::new().unwrap();
    let tree = durable::open(dir.path()).unwrap();
    runtime().block_on(run_all(Arc::new(tree)));
    // The remaining data of the cases is the same after a restart, except for the data that belonged to their
    // sessions.
    let tree = durable::open(dir.path()).unwrap();
    assert!(tree.paths_below("/a_znode_lives_from_create_to_delete").len() == 1);
    assert!(tree.paths_below("/members_come_and_go").len() == 1);
}

#[test]
fn real_server_conforms() {
    let servers = Servers::start(&Setup::standalone()).unwrap();
    runtime().block_on(run_all(Arc::new(servers)));
}

#[test]
fn ensemble_conforms() {
    let servers = Servers::start(&Setup::ensemble()).unwrap();
    runtime().block_on(run_all(Arc::new(servers)));
}

fn create(path: &str, data: &[u8]) -> Op {
    Op::Create { path: path.to_owned(), data: data.to_vec(), mode: CreateMode::Persistent }
}

fn set(path: &str, data: &[u8], version: Option<i32>) -> Op {
    Op::Set { path: path.to_owned(), data: data.to_vec(), version }
}

fn delete(path: &str) -> Op {
    Op::Delete { path: path.to_owned(), version: None }
}

fn check(path: &str, version: Option<i32>) -> Op {
    Op::Check { path: path.to_owned(), version }
}

async fn a_znode_lives_from_create_to_delete(_: World, store: Connected, folder: String) {
    let path = format!("{folder}/a");
    assert_eq!(store.exists(&path).await, Ok(None));
    assert_eq!(store.create(&path, b"1", CreateMode::Persistent).await.as_ref(), Ok(&path));
    assert_eq!(store.set(&path, b"2", None).await, Ok(1));
    assert_eq!(store.set(&path, b"3", Some(1)).await, Ok(2));
    let (data, stat) = store.get(&path).await.unwrap();
    assert_eq!((data, stat.version, stat.children, stat.ephemeral_owner), (b"3".to_vec(), 2, 0, 0));
    for child in ["c", "a", "b"] {
        store.create(&format!("{path}/{child}"), b"", CreateMode::Persistent).await.unwrap();
    }
    assert_eq!(store.children(&path).await.unwrap(), ["a", "b", "c"]);
    assert_eq!(store.exists(&path).await.unwrap().map(|stat| (stat.version, stat.children)), Some((2, 3)));
    for child in ["a", "b", "c"] {
        store.delete(&format!("{path}/{child}"), Some(0)).await.unwrap();
    }
    assert_eq!(store.delete(&path, None).await, Ok(()));
    assert_eq!(store.sync(&folder).await, Ok(()));
    assert_eq!(store.exists(&path).await, Ok(None));
}

async fn what_is_refused_says_why(_: World, store: Connected, folder: String) {
    let at = |name: &str| format!("{folder}/{name}");
    store.create(&at("a"), b"", CreateMode::Persistent).await.unwrap();
    store.create(&at("a/b"), b"", CreateMode::Persistent).await.unwrap();
    store.create(&at("e"), b"", CreateMode::Ephemeral).await.unwrap();
    let persistent = CreateMode::Persistent;
    assert_eq!(store.create(&at("a"), b"", persistent).await, Err(Error::NodeExists { path: at("a") }));
    assert_eq!(store.create(&at("x/y"), b"", persistent).await, Err(Error::NoNode { path: at("x/y") }));
    let ephemeral = Err(Error::NoChildrenForEphemerals { path: at("e/c") });
    assert_eq!(store.create(&at("e/c"), b"", persistent).await, ephemeral);
    assert_eq!(store.set(&at("x"), b"", None).await, Err(Error::NoNode { path: at("x") }));
    assert_eq!(store.set(&at("a"), b"", Some(7)).await, Err(Error::BadVersion { path: at("a") }));
    assert_eq!(store.delete(&at("x"), None).await, Err(Error::NoNode { path: at("x") }));
    assert_eq!(store.delete(&at("a/b"), Some(7)).await, Err(Error::BadVersion { path: at("a/b") }));
    assert_eq!(store.delete(&at("a"), None).await, Err(Error::NotEmpty { path: at("a") }));
    assert_eq!(store.get(&at("x")).await, Err(Error::NoNode { path: at("x") }));
    assert_eq!(store.children(&at("x")).await, Err(Error::NoNode { path: at("x") }));
    assert!(matches!(store.get_and_watch(&at("x")).await, Err(Error::NoNode { .. })));
    assert!(matches!(store.children_and_watch(&at("x")).await, Err(Error::NoNode { .. })));
    for bad in ["", "a", "/a/", "//", "/a//b", "/.", "/a/.."] {
        let refused = store.create(bad, b"", persistent).await;
        assert!(matches!(refused, Err(Error::InvalidPath { .. })), "{bad:?}: {refused:?}");
        let refused = store.multi(vec![check("/", None), create(bad, b"")]).await.unwrap_err();
        let invalid = |error: &Error| matches!(error, Error::InvalidPath { .. });
        assert!(
            refused.failed_operation().is_some_and(|(index, error)| index == 1 && invalid(error)),
            "{bad:?}"
        );
    }
}

async fn every_child_counts_for_the_numbers(_: World, store: Connected, folder: String) {
    let numbered = || store.create(&format!("{folder}/n-"), b"", CreateMode::PersistentSequential);
    assert_eq!(numbered().await, Ok(format!("{folder}/n-0000000000")));
    store.create(&format!("{folder}/other"), b"", CreateMode::Persistent).await.unwrap();
    assert_eq!(numbered().await, Ok(format!("{folder}/n-0000000002")));
    store.delete(&format!("{folder}/n-0000000002"), None).await.unwrap();
    let path = format!("{folder}/e-");
    let in_multi = Op::Create { path, data: vec![], mode: CreateMode::EphemeralSequential };
    let answers = store.multi(vec![in_multi]).await;
    assert_eq!(answers, Ok(vec![OpAnswer::Created(format!("{folder}/e-0000000003"))]));
}

async fn ephemerals_go_with_their_session(world: World, store: Connected, folder: String) {
    let (other, path) = (world.connect().await, format!("{folder}/e"));
    other.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    store.sync(&folder).await.unwrap();
    let (stat, gone) = store.exists_and_watch(&path).await.unwrap();
    assert_ne!(stat.unwrap().ephemeral_owner, 0);
    other.close().await.unwrap();
    assert_eq!(soon(gone).await, WatchEvent::Deleted(path.clone()));
    assert_eq!(store.exists(&path).await, Ok(None));
}

async fn a_transaction_is_done_whole_or_not_at_all(_: World, store: Connected, folder: String) {
    let at = |name: &str| format!("{folder}/{name}");
    store.create(&at("a"), b"", CreateMode::Persistent).await.unwrap();
    store.create(&at("gone"), b"", CreateMode::Persistent).await.unwrap();
    let ops = vec![
        create(&at("b"), b""),
        create(&at("b/c"), b""),
        set(&at("a"), b"1", None),
        delete(&at("gone")),
        create(&at("gone"), b"again"),
        check(&at("a"), Some(1)),
        check(&at("a"), Some(0)),
    ];
    let refused = Error::Multi { index: 6, cause: Box::new(Error::BadVersion { path: at("a") }) };
    assert_eq!(store.multi(ops.clone()).await, Err(refused));
    assert_eq!(store.children(&folder).await.unwrap(), ["a", "gone"], "nothing was done");
    let answers = store.multi(ops[..6].to_vec()).await.unwrap();
    let expected = [
        OpAnswer::Created(at("b")),
        OpAnswer::Created(at("b/c")),
        OpAnswer::Set(1),
        OpAnswer::Deleted,
        OpAnswer::Created(at("gone")),
        OpAnswer::Checked,
    ];
    assert_eq!(answers, expected);
    assert_eq!(store.get(&at("gone")).await.unwrap().0, b"again");
    for (op, index, error) in [
        (create(&at("a"), b""), 0, Error::NodeExists { path: at("a") }),
        (check(&at("x"), None), 0, Error::NoNode { path: at("x") }),
        (delete(&at("b")), 0, Error::NotEmpty { path: at("b") }),
    ] {
        assert_eq!(store.multi(vec![op]).await, Err(Error::Multi { index, cause: Box::new(error) }));
    }
    assert_eq!(store.multi(Vec::new()).await, Ok(Vec::new()));
}

async fn requests_are_sent_when_they_are_made(_: World, store: Connected, folder: String) {
    let path = format!("{folder}/a");
    let read = {
        let created = store.create(&path, b"0", CreateMode::Persistent);
        let set = store.set(&path, b"1", Some(0));
        let multi = store.multi(vec![set_any(&path, b"2"), create(&format!("{path}/b"), b"")]);
        let numbered = store.create(&format!("{path}/n-"), b"", CreateMode::EphemeralSequential);
        let read = (store.get(&path), store.children_and_watch(&path));
        // These answers are not awaited; the requests are executed nevertheless, in this order.
        drop((numbered, multi, set, created));
        read
    };
    assert_eq!(read.0.await.unwrap().0, b"2");
    // The read is not finished, but it was sent before the last create, whose ephemeral exists.
    assert_eq!(read.1.await.unwrap().0, ["b", "n-0000000001"]);
}

fn set_any(path: &str, data: &[u8]) -> Op {
    set(path, data, None)
}

async fn one_time_watches_fire_once(world: World, store: Connected, folder: String) {
    let (other, path) = (world.connect().await, format!("{folder}/a"));
    let (stat, created) = store.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat, None);
    let (names, child) = store.children_and_watch(&folder).await.unwrap();
    assert_eq!(names, [""; 0]);
    other.create(&path, b"", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon(created).await, WatchEvent::Created(path.clone()));
    assert_eq!(soon(child).await, WatchEvent::ChildrenChanged(folder.clone()));

    let (_, _, first) = store.get_and_watch(&path).await.unwrap();
    let (_, second) = store.exists_and_watch(&path).await.unwrap();
    let (_, children) = store.children_and_watch(&path).await.unwrap();
    // A dropped watch does not disturb the others.
    drop(store.get_and_watch(&path).await.unwrap());
    other.set(&path, b"1", None).await.unwrap();
    assert_eq!(soon(first).await, WatchEvent::DataChanged(path.clone()));
    assert_eq!(soon(second).await, WatchEvent::DataChanged(path.clone()));

    let (_, _, gone) = store.get_and_watch(&path).await.unwrap();
    other.delete(&path, None).await.unwrap();
    assert_eq!(soon(gone).await, WatchEvent::Deleted(path.clone()));
    assert_eq!(soon(children).await, WatchEvent::Deleted(path.clone()));
}

async fn a_recursive_watch_sees_everything_in_order(world: World, store: Connected, folder: String) {
    let other = world.connect().await;
    let mut events = store.watch_tree(&folder).await.unwrap();
    let (a, b) = (format!("{folder}/a"), format!("{folder}/a/b"));
    other.create(&a, b"", CreateMode::Persistent).await.unwrap();
    other.multi(vec![create(&b, b""), set(&a, b"1", None)]).await.unwrap();
    other.set(&b, b"2", None).await.unwrap();
    other.multi(vec![delete(&b), delete(&a)]).await.unwrap();
    other.create(&format!("{folder}_beside"), b"", CreateMode::Persistent).await.unwrap();
    other.set(&folder, b"last", None).await.unwrap();
    let expected = [
        WatchEvent::Created(a.clone()),
        WatchEvent::Created(b.clone()),
        WatchEvent::DataChanged(a.clone()),
        WatchEvent::DataChanged(b.clone()),
        WatchEvent::Deleted(b),
        WatchEvent::Deleted(a),
        WatchEvent::DataChanged(folder),
    ];
    for event in expected {
        assert_eq!(soon(events.next()).await, event);
    }
}

async fn a_request_that_is_too_large_costs_nothing_else(_: World, store: Connected, folder: String) {
    let path = format!("{folder}/large");
    let pending = store.create(&format!("{folder}/other"), b"", CreateMode::Ephemeral);
    let too_large = vec![1; 1 << 20];
    let refused = store.create(&path, &too_large, CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { size, .. } if size > 1 << 20), "{refused}");
    assert!(matches!(store.multi(vec![create(&path, &too_large)]).await, Err(Error::TooLarge { .. })));
    assert!(pending.await.is_ok());
    // Data just below the limit is accepted, alone and in many small operations.
    let data = vec![1; (1 << 20) - (8 << 10)];
    store.create(&path, &data, CreateMode::Persistent).await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().0, data);
    let mut ops: Vec<Op> = (0..).map(|k| create(&format!("{folder}/s-{k:06}"), b"")).take(20_000).collect();
    assert!(matches!(store.multi(ops.clone()).await, Err(Error::TooLarge { .. })));
    ops.truncate(6000);
    assert_eq!(store.multi(ops).await.unwrap().len(), 6000);
}

async fn a_closed_session_does_nothing_more(world: World, store: Connected, folder: String) {
    let other = world.connect().await;
    let (_, watch) = other.exists_and_watch(&format!("{folder}/x")).await.unwrap();
    let mut events = other.watch_tree(&folder).await.unwrap();
    other.close().await.unwrap();
    assert_eq!(*other.session().borrow(), Session::Expired);
    assert_eq!(soon(watch).await, WatchEvent::Ended);
    assert_eq!(soon(events.next()).await, WatchEvent::Ended);
    assert_eq!(soon(events.next()).await, WatchEvent::Ended, "again and again");
    assert_eq!(other.get(&folder).await, Err(Error::SessionExpired));
    let late = other.create(&format!("{folder}/late"), b"", CreateMode::Persistent).await;
    assert_eq!(late, Err(Error::SessionExpired));
    assert_eq!(other.multi(vec![check("/", None)]).await, Err(Error::SessionExpired));
    assert_eq!(other.close().await, Ok(()));
    assert_eq!(store.children(&folder).await.unwrap(), [""; 0]);
}
