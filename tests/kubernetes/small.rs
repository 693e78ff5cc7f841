//! A small Kubernetes on this machine: an API server, a controller of replica sets and a kubelet.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::json;
use taskwork_scale::connector::{Connector, file};
use taskwork_tests::cluster::SOON;

use crate::{
    api,
    kubelet::{Kubelet, Program},
    world::World,
};

/// The Deployment of the nodes, and the offer that represents it.
pub(crate) const DEPLOYMENT: &str = "taskwork-node";
pub(crate) const OFFER: &str = "pods";

/// The pause between two rounds of the controller and the kubelet.
const ROUND: Duration = Duration::from_millis(10);

/// A small Kubernetes with one Deployment, which is stopped when this is dropped.
pub(crate) struct Small {
    world: Arc<Mutex<World>>,
    url: String,
    logs: Option<PathBuf>,
    ends: Arc<AtomicBool>,
    rounds: Option<JoinHandle<()>>,
}

impl Small {
    /// Starts it. Without a program, pods are ready and removed at once.
    pub(crate) fn start(replicas: usize, program: Option<Program>) -> Self {
        let world = Arc::<Mutex<World>>::default();
        world.lock().unwrap().add(DEPLOYMENT, replicas);
        let url = api::serve(Arc::clone(&world));
        let ends = Arc::<AtomicBool>::default();
        let logs = program.as_ref().map(|program| program.logs.clone());
        let (its, until) = (Arc::clone(&world), Arc::clone(&ends));
        let rounds = thread::spawn(move || {
            let mut kubelet = Kubelet::new(program);
            while !until.load(Relaxed) {
                {
                    let mut world = its.lock().unwrap();
                    world.reconcile();
                    kubelet.step(&mut world);
                }
                thread::sleep(ROUND);
            }
        });
        Self { world, url, logs, ends, rounds: Some(rounds) }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Opens a connector to it, from a file as users write it.
    pub(crate) fn connector(&self) -> Box<dyn Connector> {
        let text = json!({
            "kind": "kubernetes",
            "api": self.url,
            "namespace": api::NAMESPACE,
            "deployments": {OFFER: DEPLOYMENT},
            "offers": [{"name": OFFER, "workers": 1, "max": 1000}],
        });
        file::parse(&text.to_string(), "default", ".".as_ref()).unwrap().connector
    }

    pub(crate) fn replicas(&self) -> usize {
        self.world().deployments[DEPLOYMENT].replicas
    }

    /// Returns the pods that are ready and not being ended.
    pub(crate) fn ready(&self) -> Vec<String> {
        let world = self.world();
        let is_ready = |name: &String| world.pods[name].is_ready;
        world.living(DEPLOYMENT).into_iter().filter(is_ready).collect()
    }

    /// Returns the log of a pod.
    pub(crate) fn log(&self, pod: &str) -> String {
        let logs = self.logs.as_ref().expect("pods without a program have no log");
        fs::read_to_string(logs.join(pod)).unwrap_or_default()
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not in time: {what}: {:?}", self.world());
            thread::sleep(ROUND);
        }
    }

    /// Waits until there are this many pods, all of them ready, and no change is pending.
    pub(crate) fn wait_for(&self, pods: usize) {
        self.wait_until("all pods are ready", |this| {
            this.ready().len() == pods && this.world().pods.len() == pods
        });
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // A round that has failed has reported it.
        let _ = self.rounds.take().map(JoinHandle::join);
    }
}
