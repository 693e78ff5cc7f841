//! Events of an observation of a cluster in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::timeout;
use zk::{Counted, CreateMode, MemoryTree, Requests, Store, job, membership};

use super::observe::Observation;
use crate::view::{Content, Event, Snapshot, View, fixtures};

/// The maximum duration of each step of a test.
const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    tree: MemoryTree,
    store: Arc<dyn Store>,
    paths: zk::ClusterPaths,
}

impl Cluster {
    async fn new() -> Self {
        let (tree, paths) = (MemoryTree::new(), zk::ClusterPaths::new("seen").unwrap());
        let store: Arc<dyn Store> = tree.connect();
        paths.prepare(&*store).await.unwrap();
        Self { tree, store, paths }
    }

    async fn put(&self, below: &str, content: &str) {
        let path = format!("{}/{below}", self.paths.base());
        if self.store.set(&path, content.as_bytes(), None).await.is_err() {
            self.store.create(&path, content.as_bytes(), CreateMode::Persistent).await.unwrap();
        }
    }

    async fn job(&self, state: &str) {
        let mut record = serde_json::to_value(fixtures::record()).unwrap();
        (record["state"], record["format"]) = (state.into(), 2.into());
        self.put("jobs/j-0000000001", &record.to_string()).await;
    }
}

/// An observer that can wait for a state of the observed view.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<View>>, Arc<Mutex<Vec<Event>>>);

impl Seen {
    fn take(&self, event: Event) {
        self.0.lock().unwrap().apply(&event);
        self.1.lock().unwrap().push(event);
    }

    async fn wait_until(&self, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let waiting = async {
            loop {
                let snapshot = self.0.lock().unwrap().snapshot();
                if holds(&snapshot) {
                    return snapshot;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("timeout: {what}"))
    }
}

/// Runs a future while a cluster is observed in a separate session; returns the requests of that session.
async fn observed(cluster: &Cluster, seen: &Seen, doing: impl Future<Output = ()>) -> Requests {
    let counted = Arc::new(Counted::new(cluster.tree.connect()));
    let mut observer = |event| seen.take(event);
    let mut observation = Observation::new(cluster.paths.clone(), &mut observer);
    tokio::select! {
        error = observation.follow(counted.clone()) => panic!("it ends: {error}"),
        () = doing => {}
    }
    counted.requests()
}

#[tokio::test]
async fn observation_sees_state_and_changes_without_writing() {
    let (cluster, seen) = (Cluster::new().await, Seen::default());
    membership::join(&*cluster.store, &cluster.paths, &fixtures::member("n1")).await.unwrap();
    cluster.job("running").await;
    let job = "jobs/j-0000000001";
    for folder in ["figures", "attempts", "attempts/2", "attempts/2/list", "attempts/2/outputs"] {
        cluster.put(&format!("{job}/{folder}"), "").await;
    }
    let doing = async {
        let first = seen.wait_until("the initial state", |now| now.jobs.len() == 1).await;
        assert_eq!(first.members.keys().collect::<Vec<_>>(), ["n1"]);
        membership::join(&*cluster.store, &cluster.paths, &fixtures::member("n2")).await.unwrap();
        cluster.put("drain/n2", "word").await;
        cluster.put("election/j-0000000001~n2~0000000000", "").await;
        cluster.put(&format!("{job}/figures/n2"), "no figures").await;
        for task in ["open", "n1-0", "n1-1"] {
            cluster.put(&format!("{job}/attempts/2/list/{task}"), "").await;
        }
        let now = seen.wait_until("all changes", |now| {
            let about = now.jobs.values().next().map(|job| job.about.clone()).unwrap_or_default();
            about.leader.as_deref() == Some("n2") && about.listed_tasks == Some(2) && !now.warnings.is_empty()
        });
        let now = now.await;
        assert!(now.members["n2"].draining);
        cluster.store.delete(&cluster.paths.member("n2"), None).await.unwrap();
        cluster.job("done").await;
        seen.wait_until("the end", |now| now.cluster.nodes_left == 1).await;
        job::forget(&*cluster.store, &cluster.paths, "j-0000000001").await.unwrap();
        let now = seen.wait_until("the job is gone", |now| now.jobs.is_empty()).await;
        assert!(now.warnings.is_empty());
    };
    let Requests { writes, multis, failed_multis, reads } = observed(&cluster, &seen, doing).await;
    assert_eq!((writes, multis, failed_multis), (0, 0, 0));
    assert!(reads < 60, "{reads} reads for a few znodes");
    let mut again = View::default();
    seen.1.lock().unwrap().iter().for_each(|event| again.apply(event));
    assert_eq!(again.snapshot(), seen.0.lock().unwrap().snapshot());
}

#[tokio::test]
async fn missed_changes_are_seen_in_the_next_session() {
    let (cluster, seen) = (Cluster::new().await, Seen::default());
    cluster.put("drain/n1", "").await;
    cluster.job("running").await;
    let mut observer = |event| seen.take(event);
    let mut observation = Observation::new(cluster.paths.clone(), &mut observer);
    let first = cluster.tree.connect();
    let ends = async {
        seen.wait_until("the job", |now| now.jobs.len() == 1).await;
        first.close().await.unwrap();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        error = observation.follow(first.clone()) => error,
        () = ends => unreachable!("it never ends"),
    };
    assert_eq!(error, zk::Error::SessionExpired);
    observation.lose();
    observation.meanwhile(std::future::ready(())).await;
    assert!(seen.0.lock().unwrap().snapshot().cluster.silent_since_ms.is_some());
    job::forget(&*cluster.store, &cluster.paths, "j-0000000001").await.unwrap();
    let second = observation.follow(cluster.tree.connect());
    let found = seen
        .wait_until("the missed changes", |now| now.jobs.is_empty() && now.cluster.silent_since_ms.is_none());
    tokio::select! {
        error = second => panic!("it ends: {error}"),
        now = found => assert_eq!(now.cluster.outages, 1),
    }
    let gone = Event { at_ms: 0, path: "jobs/j-0000000001".to_owned(), content: Content::Gone };
    assert!(seen.1.lock().unwrap().iter().any(|event| Event { at_ms: 0, ..event.clone() } == gone));
}
