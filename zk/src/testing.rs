//! Shared parts of the recipes' tests: a job on a tree, and faults at a chosen request.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::watch;

use crate::{
    AttemptPaths, ClusterPaths, Fate, Faults, MemoryStore, MemoryTree,
    error::Result,
    job::{self, NewJob},
    labels::Labels,
    membership::{self, Member},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version},
    tree::SessionId,
};

pub(crate) const ROOT: &str = "n0000000000000000-0";

/// The ways in which a request may fail.
pub(crate) const FATES: [Fate; 3] = [Fate::LostBefore, Fate::LostAfter, Fate::LostBehind];

pub(crate) fn member(node: &str) -> Member {
    Member {
        node: node.to_owned(),
        address: None,
        fingerprint: String::new(),
        workers: 1,
        memory_bytes: 0,
        labels: Labels::default(),
        program: "test".to_owned(),
        program_version: "1".to_owned(),
        started_ms: 0,
        host: "gpu-17".to_owned(),
        pid: 17,
    }
}

/// A cluster with a job.
pub(crate) struct Stage {
    pub(crate) tree: MemoryTree,
    pub(crate) cluster: ClusterPaths,
    /// The submitter's session.
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) job: String,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let tree = MemoryTree::new();
        let (cluster, store) = (ClusterPaths::new("test").unwrap(), tree.connect());
        cluster.prepare(&*store).await.unwrap();
        let new = NewJob {
            program: "test",
            program_version: "1",
            kind: "",
            task_type: "",
            name: "a job",
            shared: &vec![7; 600 << 10],
            shared_name: "",
            shared_from: "",
            brought: None,
            root_id: ROOT,
            root: b"the root",
            variables: &[("best".to_owned(), b"9".to_vec())],
            attempts_max: 3,
            crashes_max: 3,
            require: Labels::NONE,
            after: &[],
            stays_open: false,
            share: job::Share::default(),
            submitter: "me",
            now_ms: 1,
        };
        let job = job::submit(&*store, &cluster, &new).await.unwrap();
        Self { tree, cluster, store, job }
    }

    pub(crate) fn attempt(&self, attempt: u32) -> AttemptPaths {
        self.cluster.job(&self.job).attempt(attempt)
    }

    /// Adds a member that has enrolled in the first attempt.
    pub(crate) async fn member(&self, node: &str) -> Arc<MemoryStore> {
        let store = self.stranger(node).await;
        crate::accounting::enrol(&*store, &self.cluster, &self.attempt(1), node, b"").await.unwrap();
        store
    }

    /// Adds a member that has not enrolled yet.
    pub(crate) async fn stranger(&self, node: &str) -> Arc<MemoryStore> {
        let store = self.tree.connect();
        membership::join(&*store, &self.cluster, &member(node)).await.unwrap();
        store
    }

    /// Loses one request of a session, counted from now; the flag is set when it is lost.
    pub(crate) fn lose_one(&self, session: SessionId, countdown: usize, fate: Fate) -> Arc<AtomicBool> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let lose_one = LoseOne { session, countdown, fate };
        self.tree.set_faults(Telling { lose_one, is_lost: Arc::clone(&is_lost) });
        is_lost
    }

    /// Returns the names of a folder's children, and of their descendants.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let below = self.tree.paths_below(folder);
        below
            .iter()
            .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned))
            .collect()
    }
}

/// Loses the answer of one request of a session, counted from now.
pub(crate) struct LoseOne {
    pub(crate) session: SessionId,
    pub(crate) countdown: usize,
    pub(crate) fate: Fate,
}

impl Faults for LoseOne {
    fn judge(&mut self, session: SessionId, _: &'static str, _: &str) -> Fate {
        if session != self.session {
            return Fate::Answered;
        }
        match self.countdown {
            0 => Fate::Answered,
            1 => {
                self.countdown = 0;
                self.fate
            }
            _ => {
                self.countdown -= 1;
                Fate::Answered
            }
        }
    }
}

/// Loses one request, and sets a flag when it does: a recipe may continue without an answer that it does not
/// depend on.
struct Telling {
    lose_one: LoseOne,
    is_lost: Arc<AtomicBool>,
}

impl Faults for Telling {
    fn judge(&mut self, session: SessionId, request: &'static str, path: &str) -> Fate {
        let fate = self.lose_one.judge(session, request, path);
        if fate != Fate::Answered {
            self.is_lost.store(true, Relaxed);
        }
        fate
    }
}

/// A session in which another action happens once, right after it has read a znode, or right before one of
/// its multis.
pub(crate) struct Interrupted {
    store: Arc<MemoryStore>,
    path: String,
    /// The number of multis until then.
    multis: AtomicUsize,
    meanwhile: Mutex<Option<Answer<()>>>,
}

impl Interrupted {
    pub(crate) fn new(
        store: &Arc<MemoryStore>,
        path: String,
        meanwhile: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Self {
        let meanwhile = Mutex::new(Some(Box::pin(meanwhile) as Answer<()>));
        Self { store: Arc::clone(store), path, multis: AtomicUsize::new(0), meanwhile }
    }

    pub(crate) fn before_multi(
        store: &Arc<MemoryStore>,
        multis: usize,
        meanwhile: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Self {
        Self { multis: AtomicUsize::new(multis), ..Self::new(store, String::new(), meanwhile) }
    }

    /// Returns whether the action has happened.
    pub(crate) fn is_over(&self) -> bool {
        self.meanwhile.lock().unwrap().is_none()
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupted").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for Interrupted {
    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        let answer = self.store.get(path);
        let meanwhile = (path == self.path).then(|| self.meanwhile.lock().unwrap().take()).flatten();
        Box::pin(async move {
            let answer = answer.await;
            if let Some(meanwhile) = meanwhile {
                meanwhile.await?;
            }
            answer
        })
    }
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        self.store.create(path, data, mode)
    }
    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        self.store.set(path, data, version)
    }
    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.store.delete(path, version)
    }
    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.store.exists(path)
    }
    fn children(&self, path: &str) -> Answer<Vec<String>> {
        self.store.children(path)
    }
    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        if self.multis.load(Relaxed) == 0 || self.multis.fetch_sub(1, Relaxed) > 1 {
            return self.store.multi(ops);
        }
        let (meanwhile, store) = (self.meanwhile.lock().unwrap().take(), Arc::clone(&self.store));
        Box::pin(async move {
            if let Some(meanwhile) = meanwhile {
                meanwhile.await?;
            }
            store.multi(ops).await
        })
    }
    fn sync(&self, path: &str) -> Answer<()> {
        self.store.sync(path)
    }
    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        self.store.get_and_watch(path)
    }
    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        self.store.exists_and_watch(path)
    }
    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        self.store.children_and_watch(path)
    }
    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        self.store.watch_tree(path)
    }
    fn session(&self) -> watch::Receiver<Session> {
        self.store.session()
    }
    fn close(&self) -> Answer<()> {
        self.store.close()
    }
}

/// Returns the text of an error with all its sources, joined as the usual printers do. Panics if any part
/// appears twice.
pub(crate) fn said_once(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |&error| error.source());
    let said: Vec<String> = sources.map(ToString::to_string).collect();
    for (place, part) in said.iter().enumerate() {
        let elsewhere =
            said.iter().enumerate().any(|(other, text)| other != place && text.contains(part.as_str()));
        assert!(!elsewhere, "{part:?} is said twice in {said:?}");
    }
    said.join(": ")
}
