//! A small kubelet: it runs each pod as a process of this machine, probes its readiness, and ends it as
//! Kubernetes does: SIGTERM, then SIGKILL after the grace period. A process that exits by itself is started
//! again.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::world::World;

/// The interval of readiness probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The program of a pod.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The time from SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// The folder of the pods' logs, each under the pod's name.
    pub(crate) logs: PathBuf,
}

/// Runs pods. Its processes are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Kubelet {
    /// Without a program, pods are ready at once and removed at once.
    program: Option<Program>,
    processes: BTreeMap<String, Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// The address of its health endpoint.
    health: String,
    asked: Instant,
    /// The time when it is killed.
    killed_at: Option<Instant>,
}

impl Kubelet {
    pub(crate) fn new(program: Option<Program>) -> Self {
        Self { program, processes: BTreeMap::new() }
    }

    /// Performs the due actions.
    pub(crate) fn step(&mut self, world: &mut World) {
        let names: Vec<String> = world.pods.keys().cloned().collect();
        for name in names {
            let has_room = world.has_room();
            let pod = world.pods.get_mut(&name).expect("only the kubelet removes pods");
            let Some(program) = &self.program else {
                if pod.is_deleted {
                    world.pods.remove(&name);
                } else if pod.is_running || has_room {
                    (pod.is_running, pod.is_ready) = (true, true);
                }
                continue;
            };
            let Some(process) = self.processes.get_mut(&name) else {
                if pod.is_deleted {
                    world.pods.remove(&name);
                } else if pod.is_running || has_room {
                    self.processes.insert(name.clone(), program.start(&name));
                    pod.is_running = true;
                }
                continue;
            };
            if process.child.try_wait().unwrap().is_some() {
                self.processes.remove(&name);
                if pod.is_deleted {
                    world.pods.remove(&name);
                } else {
                    pod.is_ready = false;
                    pod.restarts += 1;
                }
                continue;
            }
            match process.killed_at {
                None if pod.is_deleted => {
                    let id = process.child.id().to_string();
                    Command::new("kill").args(["-TERM", &id]).status().unwrap();
                    process.killed_at = Some(Instant::now() + program.grace);
                }
                Some(at) if Instant::now() >= at => process.child.kill().unwrap(),
                _ => {}
            }
            if process.asked.elapsed() >= PROBE_EVERY && !pod.is_deleted {
                pod.is_ready = program.is_ready(&process.health);
                process.asked = Instant::now();
            }
        }
    }
}

impl Program {
    fn start(&self, pod: &str) -> Process {
        // A port that is free now. If another process takes it, the node exits and is started again.
        let health = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let log = OpenOptions::new().create(true).append(true).open(self.logs.join(pod)).unwrap();
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .args(["--health", &health])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("TASKWORK_MACHINE", pod)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Process { child, health, asked: Instant::now(), killed_at: None }
    }

    /// Probes the process like the manifests do.
    fn is_ready(&self, health: &str) -> bool {
        let mut probe = Command::new(&self.path);
        probe.args(["health", "--ready", "--at", health]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().unwrap().success()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            // It may have exited; an error cannot be reported here.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
