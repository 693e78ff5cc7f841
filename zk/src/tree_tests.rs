use proptest::prelude::*;

use super::*;

fn create(path: &str) -> Op {
    Op::Create { path: path.to_owned(), data: vec![], mode: CreateMode::Persistent }
}

fn create_as(path: &str, mode: CreateMode) -> Op {
    Op::Create { path: path.to_owned(), data: vec![], mode }
}

fn set(path: &str, data: &[u8], version: Option<Version>) -> Op {
    Op::Set { path: path.to_owned(), data: data.to_vec(), version }
}

fn delete(path: &str) -> Op {
    Op::Delete { path: path.to_owned(), version: None }
}

fn check(path: &str, version: Option<Version>) -> Op {
    Op::Check { path: path.to_owned(), version }
}

struct Desk {
    tree: Tree,
    session: SessionId,
    fired: Fired,
}

impl Desk {
    fn new() -> Self {
        let mut tree = Tree::new();
        let session = tree.open_session();
        Self { tree, session, fired: Vec::new() }
    }

    fn apply(&mut self, op: &Op) -> Result<OpAnswer> {
        self.tree.apply(self.session, op, &mut self.fired)
    }

    fn multi(&mut self, ops: &[Op]) -> Result<Vec<OpAnswer>> {
        self.tree.multi(self.session, ops, &mut self.fired)
    }
}

fn no_node(path: &str) -> Error {
    Error::NoNode { path: path.to_owned() }
}

#[test]
fn znode_is_created_set_and_deleted() {
    let mut desk = Desk::new();
    assert_eq!(desk.apply(&create("/a")), Ok(OpAnswer::Created("/a".into())));
    assert_eq!(desk.apply(&set("/a", b"x", Some(0))), Ok(OpAnswer::Set(1)));
    let stat = Stat { version: 1, children: 0, bytes: 1, ephemeral_owner: 0, modified_ms: 0 };
    assert_eq!(desk.tree.get(desk.session, "/a"), Ok((b"x".to_vec(), stat)));
    assert_eq!(desk.apply(&delete("/a")), Ok(OpAnswer::Deleted));
    assert_eq!(desk.tree.exists(desk.session, "/a"), Ok(None));
}

#[test]
fn tree_refuses_requests_like_a_server() {
    let mut desk = Desk::new();
    desk.apply(&create("/a")).unwrap();
    desk.apply(&create("/a/b")).unwrap();
    desk.apply(&create_as("/e", CreateMode::Ephemeral)).unwrap();
    let path = |path: &str| path.to_owned();
    assert_eq!(desk.apply(&create("/a")), Err(Error::NodeExists { path: path("/a") }));
    assert_eq!(desk.apply(&create("/x/y")), Err(no_node("/x/y")));
    assert_eq!(desk.apply(&set("/x", b"", None)), Err(no_node("/x")));
    assert_eq!(desk.apply(&set("/a", b"", Some(7))), Err(Error::BadVersion { path: path("/a") }));
    assert_eq!(desk.apply(&delete("/a")), Err(Error::NotEmpty { path: path("/a") }));
    assert_eq!(desk.apply(&create("/e/c")), Err(Error::NoChildrenForEphemerals { path: path("/e/c") }));
    assert_eq!(desk.apply(&check("/a", Some(3))), Err(Error::BadVersion { path: path("/a") }));
    assert_eq!(desk.apply(&check("/x", None)), Err(no_node("/x")));
    let large = Op::Create { path: path("/l"), data: vec![0; 1 << 20], mode: CreateMode::Persistent };
    assert!(matches!(desk.apply(&large), Err(Error::TooLarge { .. })));
    for bad in ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\0", "/a\n"] {
        assert!(matches!(desk.apply(&create(bad)), Err(Error::InvalidPath { .. })), "{bad:?}");
    }
}

#[test]
fn sequential_numbers_are_never_reused() {
    let mut desk = Desk::new();
    let sequential = create_as("/n-", CreateMode::PersistentSequential);
    assert_eq!(desk.apply(&sequential), Ok(OpAnswer::Created("/n-0000000000".into())));
    desk.apply(&delete("/n-0000000000")).unwrap();
    assert_eq!(desk.apply(&sequential), Ok(OpAnswer::Created("/n-0000000001".into())));
}

#[test]
fn ephemerals_go_with_their_session() {
    let mut desk = Desk::new();
    let other = desk.tree.open_session();
    desk.tree.apply(other, &create_as("/e", CreateMode::Ephemeral), &mut desk.fired).unwrap();
    let watch = desk.tree.watch("/e", WatchKind::Data);
    assert_eq!(desk.tree.end_session(other), [(watch, WatchEvent::Deleted("/e".into()))]);
    assert_eq!(desk.tree.exists(desk.session, "/e"), Ok(None));
    assert_eq!(desk.tree.exists(other, "/e"), Err(Error::SessionExpired));
}

#[test]
fn multi_is_atomic() {
    let mut desk = Desk::new();
    desk.apply(&create("/a")).unwrap();
    desk.apply(&create("/gone")).unwrap();
    let watch = desk.tree.watch("/a", WatchKind::Data);
    let ops = [create("/b"), create("/b/c"), set("/a", b"1", None), delete("/gone"), check("/a", Some(0))];
    let error = desk.multi(&ops).unwrap_err();
    let cause = Box::new(Error::BadVersion { path: "/a".into() });
    assert_eq!(error, Error::Multi { index: 4, cause }, "an operation sees the effects of earlier ones");
    assert!(desk.fired.is_empty(), "nothing has happened");
    assert_eq!(desk.tree.paths().collect::<Vec<_>>(), ["/", "/a", "/gone"]);
    let answers = desk.multi(&ops[..4]).unwrap();
    assert_eq!(answers[2], OpAnswer::Set(1));
    assert!(desk.fired.contains(&(watch, WatchEvent::DataChanged("/a".into()))));
}

#[test]
fn one_time_watch_fires_once() {
    let mut desk = Desk::new();
    let created = desk.tree.watch("/a", WatchKind::Data);
    let root = desk.tree.watch("/", WatchKind::Children);
    desk.apply(&create("/a")).unwrap();
    desk.apply(&set("/a", b"", None)).unwrap();
    let changed = WatchEvent::ChildrenChanged("/".into());
    assert_eq!(desk.fired, [(created, WatchEvent::Created("/a".into())), (root, changed)]);
}

#[test]
fn recursive_watch_reports_all_changes_in_order() {
    let mut desk = Desk::new();
    desk.apply(&create("/a")).unwrap();
    let watch = desk.tree.watch_tree("/a");
    desk.apply(&create("/ab")).unwrap();
    desk.apply(&create("/a/b")).unwrap();
    desk.apply(&set("/a/b", b"", None)).unwrap();
    desk.apply(&delete("/a/b")).unwrap();
    let path = || "/a/b".to_owned();
    let seen = [WatchEvent::Created(path()), WatchEvent::DataChanged(path()), WatchEvent::Deleted(path())];
    assert_eq!(desk.fired, seen.map(|event| (watch, event)));
    desk.tree.unwatch(&[watch].into());
    desk.apply(&create("/a/c")).unwrap();
    assert_eq!(desk.fired.len(), 3);
}

fn any_op() -> impl Strategy<Value = Op> {
    let path = prop::sample::select(vec!["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"]);
    let mode = prop::sample::select(vec![
        CreateMode::Persistent,
        CreateMode::Ephemeral,
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
    ]);
    let version = prop::option::of(0_i32..2);
    (path, mode, version, 0..4, any::<u8>()).prop_map(|(path, mode, version, which, data)| match which {
        0 => Op::Create { path: path.to_owned(), data: vec![data], mode },
        1 => Op::Set { path: path.to_owned(), data: vec![data], version },
        2 => Op::Delete { path: path.to_owned(), version },
        _ => Op::Check { path: path.to_owned(), version },
    })
}

/// Checks the invariants of every tree.
fn check_tree(tree: &Tree) {
    for (path, node) in &tree.nodes {
        for child in &node.children {
            let child = format!("{}/{child}", path.trim_end_matches('/'));
            assert!(tree.nodes.contains_key(&child), "{path} has a child that does not exist: {child}");
        }
        if path != "/" {
            let parent = &tree.nodes[parent_of(path)];
            assert!(parent.children.contains(name_of(path)), "{path} is not among its parent's children");
            assert_eq!(parent.owner, 0, "{path} is a child of an ephemeral");
        }
        if node.owner != 0 {
            assert!(tree.sessions[&node.owner].contains(path), "{path} belongs to no live session");
        }
    }
    for path in tree.sessions.values().flatten() {
        assert!(tree.nodes.contains_key(path), "a session has an ephemeral that does not exist: {path}");
    }
}

proptest! {
    #[test]
    fn tree_keeps_invariants_and_failed_multi_changes_nothing(
        steps in prop::collection::vec((prop::collection::vec(any_op(), 1..5), 0_usize..3, 0..10), 1..40),
    ) {
        let mut tree = Tree::new();
        let mut sessions = [(); 3].map(|()| tree.open_session());
        for (ops, who, ending) in steps {
            if ending == 0 {
                tree.end_session(sessions[who]);
                sessions[who] = tree.open_session();
            }
            let before = format!("{:?}", tree.nodes);
            let mut fired = Vec::new();
            if tree.multi(sessions[who], &ops, &mut fired).is_err() {
                prop_assert_eq!(format!("{:?}", tree.nodes), before);
            }
            check_tree(&tree);
        }
    }
}
