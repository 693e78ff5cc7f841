//! The tree in a folder: the durable content, and the refused folders.

use std::{fs, path::Path, time::Duration};

use proptest::prelude::*;
use redb::ReadableDatabase as _;
use tempfile::TempDir;
use zk::{
    CreateMode::{self, Ephemeral, EphemeralSequential, Persistent, PersistentSequential},
    MemoryTree, Op, Session, Store, WatchEvent,
    durable::{self, OpenError},
};

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn refused(dir: &Path) -> OpenError {
    durable::open(dir).expect_err("the folder is refused")
}

#[tokio::test]
async fn answered_writes_exist_after_reopening() {
    let dir = TempDir::new().unwrap();
    let below = dir.path().join("a/b");
    let tree = durable::open(&below).unwrap();
    let store = tree.connect();
    store.create("/jobs", b"1", Persistent).await.unwrap();
    assert_eq!(store.create("/jobs/j-", b"", PersistentSequential).await.unwrap(), "/jobs/j-0000000000");
    assert_eq!(store.create("/jobs/e-", b"", EphemeralSequential).await.unwrap(), "/jobs/e-0000000001");
    store.create("/member", b"", Ephemeral).await.unwrap();
    for version in 1..=3 {
        assert_eq!(store.set("/jobs/j-0000000000", &vec![7; 100_000], None).await, Ok(version));
    }
    store.create("/gone", b"", Persistent).await.unwrap();
    store.delete("/gone", None).await.unwrap();
    drop((store, tree));

    let tree = durable::open(&below).unwrap();
    assert_eq!(tree.paths_below(""), ["/", "/jobs", "/jobs/j-0000000000"]);
    let store = tree.connect();
    let (data, stat) = store.get("/jobs/j-0000000000").await.unwrap();
    assert_eq!((data, stat.version, stat.ephemeral_owner), (vec![7; 100_000], 3, 0));
    assert_eq!(store.create("/jobs/j-", b"", PersistentSequential).await.unwrap(), "/jobs/j-0000000002");
    assert_eq!(store.set("/jobs/j-0000000000", b"", Some(3)).await, Ok(4));
}

#[tokio::test]
async fn folder_is_locked_until_last_session_is_dropped() {
    let dir = TempDir::new().unwrap();
    let tree = durable::open(dir.path()).unwrap();
    let store = tree.connect();
    drop(tree);
    let said = refused(dir.path());
    assert!(matches!(said, OpenError::InUse { .. }), "{said}");
    assert!(said.to_string().contains("in use by another process"), "{said}");
    store.create("/a", b"", Persistent).await.unwrap();
    drop(store);
    assert_eq!(durable::open(dir.path()).unwrap().paths_below(""), ["/", "/a"]);
}

#[test]
fn interrupted_creation_is_started_again() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tree.new"), [0; 5000]).unwrap();
    assert_eq!(durable::open(dir.path()).unwrap().paths_below(""), ["/"]);
    assert!(!dir.path().join("tree.new").exists());
}

#[test]
fn foreign_files_are_refused_with_reason() {
    let dir = TempDir::new().unwrap();
    let file = durable::file_of(dir.path());
    let other = redb::Database::create(&file).unwrap();
    let writing = other.begin_write().unwrap();
    writing.open_table(redb::TableDefinition::<u8, u8>::new("theirs")).unwrap().insert(1, 1).unwrap();
    writing.commit().unwrap();
    let held = refused(dir.path()).to_string();
    assert!(held.contains("in use by another process"), "{held}");
    drop(other);
    let contents: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"dear diary"), Some(&[b'x'; 10_000])];
    for content in contents {
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        let said = refused(dir.path());
        assert!(matches!(said, OpenError::Foreign { .. }), "{said}");
        let said = said.to_string();
        assert!(said.contains(&file.display().to_string()) && said.contains("another directory"), "{said}");
        if let Some(content) = content {
            assert!(fs::read(&file).unwrap() == content, "it is left as it is");
        } else {
            let theirs = redb::Database::open(&file).unwrap();
            assert_eq!(theirs.begin_read().unwrap().list_tables().unwrap().count(), 1);
        }
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let said = refused(dir.path());
    assert!(matches!(said, OpenError::Io { .. }), "{said}");
    let said = refused(&file.join("x\0y"));
    assert!(matches!(said, OpenError::Io { .. }), "{said}");
}

/// Fills a tree with znodes of several sizes, and returns them all.
async fn fill(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let tree = durable::open(dir).unwrap();
    let store = tree.connect();
    for number in 0..40_u8 {
        let path = format!("/n{number}");
        store.create(&path, &vec![number; 97 * usize::from(number)], Persistent).await.unwrap();
    }
    contents(&tree).await
}

async fn contents(tree: &MemoryTree) -> Vec<(String, Vec<u8>)> {
    let store = tree.connect();
    let mut contents = Vec::new();
    for path in tree.paths_below("") {
        let (data, _) = store.get(&path).await.unwrap();
        contents.push((path, data));
    }
    contents
}

#[tokio::test]
async fn damaged_file_is_refused_or_read_unchanged() {
    let dir = TempDir::new().unwrap();
    let before = fill(dir.path()).await;
    let file = durable::file_of(dir.path());
    let good = fs::read(&file).unwrap();
    let mut refusals = 0;
    let mut check = async |bad: &[u8], what: &str| {
        fs::write(&file, bad).unwrap();
        match durable::open(dir.path()) {
            Ok(tree) => assert_eq!(contents(&tree).await, before, "{what}"),
            Err(OpenError::Damaged { file: named, reason }) => {
                assert_eq!(named, file.display().to_string(), "{reason}");
                refusals += 1;
            }
            // The first bytes identify the file.
            Err(OpenError::Foreign { .. }) => refusals += 1,
            Err(other) => panic!("{what}: {other}"),
        }
    };
    // The head of the file, and positions throughout it.
    let places = (0..400).chain((400..good.len()).step_by(good.len() / 200));
    for place in places {
        let mut bad = good.clone();
        bad[place] ^= 0x41;
        check(&bad, &format!("byte {place}")).await;
    }
    for length in [1, 100, 5000, good.len() / 2, good.len() - 1] {
        check(&good[..length], &format!("{length} bytes of it")).await;
    }
    assert!(refusals > 20, "{refusals}");
    fs::write(&file, &good).unwrap();
    assert_eq!(contents(&durable::open(dir.path()).unwrap()).await, before);
}

#[tokio::test]
async fn file_of_constant_tree_does_not_grow() {
    const ZNODE_BYTES: usize = 64 << 10;
    let dir = TempDir::new().unwrap();
    let tree = durable::open(dir.path()).unwrap();
    let store = tree.connect();
    store.create("/held", b"", Persistent).await.unwrap();
    let mut sizes = Vec::new();
    for round in 0..6_u8 {
        for number in 0..50_u8 {
            store.set("/held", &vec![round ^ number; ZNODE_BYTES], None).await.unwrap();
            store.create("/other", &vec![number; 1000], Persistent).await.unwrap();
            store.delete("/other", None).await.unwrap();
        }
        sizes.push(fs::metadata(durable::file_of(dir.path())).unwrap().len());
    }
    assert_eq!(sizes[2..], [sizes[2]; 4], "in bytes, after each round: {sizes:?}");
    assert!(sizes[5] < 64 * ZNODE_BYTES as u64, "{sizes:?}");
}

#[tokio::test]
async fn watches_fire_as_in_memory_tree() {
    let dir = TempDir::new().unwrap();
    let tree = durable::open(dir.path()).unwrap();
    let (one, other) = (tree.connect(), tree.connect());
    let (_, created) = one.exists_and_watch("/a").await.unwrap();
    other.create("/a", b"", Ephemeral).await.unwrap();
    assert_eq!(created.await, WatchEvent::Created("/a".to_owned()));
    let (.., gone) = one.get_and_watch("/a").await.unwrap();
    other.close().await.unwrap();
    assert_eq!(*other.session().borrow(), Session::Expired);
    assert_eq!(gone.await, WatchEvent::Deleted("/a".to_owned()));
}

fn path() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"]).prop_map(str::to_owned)
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop::sample::select(vec![Persistent, Persistent, Ephemeral, PersistentSequential]);
    let data = prop::collection::vec(any::<u8>(), 0..3);
    let create = |(path, data, mode): (String, Vec<u8>, CreateMode)| Op::Create { path, data, mode };
    let set = |(path, data): (String, Vec<u8>)| Op::Set { path, data, version: None };
    prop_oneof![
        3 => (path(), data.clone(), mode).prop_map(create),
        2 => (path(), data).prop_map(set),
        1 => path().prop_map(|path| Op::Delete { path, version: None }),
    ]
}

/// Everything in a tree that a later request could see, and the number of the next child of each znode.
async fn everything(tree: &MemoryTree) -> Vec<String> {
    let store = tree.connect();
    let mut seen = Vec::new();
    for path in tree.paths_below("") {
        seen.push(format!("{path} {:?}", store.get(&path).await));
    }
    for path in tree.paths_below("") {
        let child = format!("{}/next-", path.trim_end_matches('/'));
        seen.push(format!("{:?}", store.create(&child, b"", EphemeralSequential).await));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn reopened_tree_continues_from_any_operations(
        multis in prop::collection::vec(prop::collection::vec(op(), 1..4), 0..12),
    ) {
        runtime().block_on(async {
            let dir = TempDir::new().unwrap();
            let (durable, plain) = (durable::open(dir.path()).unwrap(), MemoryTree::new());
            let (kept, reference) = (durable.connect(), plain.connect());
            for ops in multis {
                assert_eq!(kept.multi(ops.clone()).await, reference.multi(ops).await);
            }
            drop((kept, durable, reference));
            let again = tokio::time::timeout(Duration::from_secs(30), async {
                everything(&durable::open(dir.path()).unwrap()).await
            });
            assert_eq!(again.await.unwrap(), everything(&plain).await);
        });
    }
}
