//! Answers that are lost after the servers have executed the request: on real servers, through proxies.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use taskwork_tests::proxy::{Proxy, Way};
use zk::{
    Connect, Error,
    accounting::{self, CommitError, Transaction},
    election::Candidate,
    job, membership,
};
use zk_server::{Servers, Setup};

use super::{Connected, Connects, JOB, ROOT, cluster, member, new_job, runtime, soon};

/// Servers with a proxy in front of each.
struct Stage {
    servers: Servers,
    proxies: Vec<Proxy>,
}

impl Stage {
    fn start(setup: &Setup) -> Self {
        let servers = Servers::start(setup).unwrap();
        let hosts = servers.hosts();
        let addresses = hosts.split(',').map(|host| host.parse::<SocketAddr>().unwrap());
        let proxies = addresses.map(|address| Proxy::start(address).unwrap()).collect();
        Self { servers, proxies }
    }

    /// A session through the proxies.
    async fn proxied(&self) -> Connected {
        let hosts: Vec<String> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        Connect::new(hosts.join(",")).open().await.expect("the servers serve") as Connected
    }

    fn lose_answer_to(&self, bytes: &str) {
        self.proxies.iter().for_each(|proxy| proxy.lose_answer_to(bytes.as_bytes()));
    }

    /// Returns whether an answer was lost since the last call. Injects no further faults.
    fn was_lost(&self) -> bool {
        let lost: usize = self.proxies.iter().map(Proxy::lost_answers).sum();
        self.proxies.iter().for_each(Proxy::forgive);
        lost > 0
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[test]
fn session_has_one_candidate_after_reconnect_to_any_server() {
    let stage = Stage::start(&Setup::ensemble());
    runtime().block_on(async {
        let direct = stage.servers.connect().await;
        let cluster = cluster(&direct, "lost-enter").await;
        for node in ["a", "b", "c", "d", "e"] {
            let store = stage.proxied().await;
            stage.lose_answer_to(&format!("~{node}~"));
            let enter = || Candidate::enter(Arc::clone(&store), &cluster, JOB, node);
            let mut candidate = loop {
                match soon(enter()).await {
                    Ok(candidate) => break candidate,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                pause().await;
            };
            assert!(stage.was_lost(), "the answer to the create was lost");
            direct.sync("/").await.unwrap();
            assert_eq!(direct.children(&cluster.election()).await.unwrap().len(), 1, "node {node}");
            soon(candidate.elected()).await.unwrap();
            candidate.withdraw().await.unwrap();
        }
    });
}

#[test]
fn transaction_with_lost_or_late_answer_counts_once() {
    let stage = Stage::start(&Setup::standalone());
    runtime().block_on(async {
        let direct = stage.servers.connect().await;
        let cluster = cluster(&direct, "lost-commit").await;
        let id = job::submit(&*direct, &cluster, &new_job(b"")).await.unwrap();
        let (store, attempt) = (stage.proxied().await, cluster.job(&id).attempt(1));
        membership::join(&*store, &cluster, &member("a")).await.unwrap();
        accounting::enrol(&*store, &cluster, &attempt, "a", b"").await.unwrap();
        let commit = async |txn: &str, toggles: &[&str]| {
            let toggles = toggles.iter().map(|&id| id.to_owned()).collect();
            let transaction =
                Transaction { node: "a".into(), txn: txn.into(), toggles, ..Transaction::default() };
            loop {
                match soon(accounting::commit(&*store, &cluster, &attempt, &transaction)).await {
                    Ok(_) => return,
                    Err(CommitError::Store(error)) => assert!(error.is_transient(), "{error}"),
                    Err(error) => panic!("{error}"),
                }
                pause().await;
            }
        };
        stage.lose_answer_to("/txns/a-0");
        commit("a-0", &[ROOT, "n1-1"]).await;
        assert!(stage.was_lost());
        assert_eq!(direct.children(&attempt.list()).await.unwrap(), ["n1-1"]);

        // Servers slower than the request timeout: the request is executed once in the end.
        stage.proxies[0].hold(Way::ToServer);
        let late = store.set("/taskwork", b"late", None);
        assert!(matches!(late.await, Err(Error::TimedOut { .. } | Error::ConnectionLost)));
        stage.proxies[0].release();
        commit("a-1", &["n1-1", "n1-2"]).await;
        assert_eq!(direct.children(&attempt.list()).await.unwrap(), ["n1-2"]);

        // Answers are withheld until the connection breaks.
        stage.proxies[0].swallow_answers();
        let unheard = store.set("/taskwork", b"unheard", None);
        while direct.get("/taskwork").await.unwrap().0 != b"unheard" {
            pause().await;
        }
        stage.proxies[0].restore();
        assert!(matches!(unheard.await, Err(Error::ConnectionLost | Error::TimedOut { .. })));
        commit("a-2", &["n1-2"]).await;
        assert_eq!(direct.children(&attempt.list()).await.unwrap(), [""; 0]);
    });
}
