//! The objects of a small Kubernetes, and the controller that creates and ends pods: the behaviour of an API
//! server and a replica set, as far as a connector may notice it. No I/O.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use serde_json::{Value, json};

/// The annotation that determines which pods are ended first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The hash with which a Deployment marks the pods of its present template.
const TEMPLATE: &str = "5d4f8c7b9d";

/// The objects of one namespace.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) deployments: BTreeMap<String, Deployment>,
    pub(crate) pods: BTreeMap<String, Pod>,
    /// The maximum number of pods that may be created.
    pub(crate) quota: Option<usize>,
    /// The maximum number of pods for which there are machines; further pods wait.
    pub(crate) capacity: Option<usize>,
    pub(crate) faults: Faults,
    /// The version of the last changed object.
    version: u64,
    /// The number of pods created so far.
    made: u64,
    /// The pods that were asked to end by the number of replicas, by deletion, or by eviction.
    pub(crate) ended: BTreeSet<String>,
}

/// The next faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The number of changes of a Deployment that fail because another client was faster.
    pub(crate) conflicts: u32,
    /// The number of changes that are made although their answers are lost.
    pub(crate) lost: u32,
    /// The number of requests of any kind that are answered with an error.
    pub(crate) errors: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Deployment {
    pub(crate) replicas: usize,
    annotations: BTreeMap<String, String>,
    version: u64,
    generation: u64,
    observed: u64,
    /// The reason why its pods are not created.
    refused: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    deployment: String,
    created: SystemTime,
    /// Orders pods that were created in the same second.
    number: u64,
    annotations: BTreeMap<String, String>,
    /// Whether it has a machine, on which its program runs.
    pub(crate) is_running: bool,
    pub(crate) is_ready: bool,
    pub(crate) is_deleted: bool,
    pub(crate) restarts: u32,
}

/// The answer to a request: a status and a body.
pub(crate) type Answer = (u16, Value);

impl World {
    pub(crate) fn add(&mut self, deployment: &str, replicas: usize) {
        let version = self.next_version();
        let new = Deployment { replicas, version, generation: 1, ..Deployment::default() };
        self.deployments.insert(deployment.to_owned(), new);
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Changes the number of replicas like `kubectl scale`.
    pub(crate) fn scale(&mut self, name: &str, change: impl Fn(usize) -> usize) {
        let version = self.next_version();
        let deployment = self.deployments.get_mut(name).expect("it is there");
        deployment.replicas = change(deployment.replicas);
        deployment.generation += 1;
        deployment.version = version;
    }

    /// Returns a Deployment.
    pub(crate) fn deployment(&self, name: &str) -> Answer {
        let Some(deployment) = self.deployments.get(name) else { return status(404, "not found") };
        let refused = deployment.refused.as_ref().map(|message| {
            json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message})
        });
        let body = json!({
            "metadata": {
                "name": name,
                "resourceVersion": deployment.version.to_string(),
                "generation": deployment.generation,
                "annotations": deployment.annotations,
            },
            "spec": {"replicas": deployment.replicas, "selector": {"matchLabels": {"app": name}}},
            "status": {
                "observedGeneration": deployment.observed,
                "conditions": refused.into_iter().collect::<Vec<_>>(),
            },
        });
        (200, body)
    }

    /// Patches a Deployment: its annotations and its number of replicas, and nothing else.
    pub(crate) fn patch_deployment(&mut self, name: &str, patch: &Value) -> Answer {
        if self.faults.conflicts > 0 {
            self.faults.conflicts -= 1;
            return status(
                409,
                "the object has been modified; please apply your changes to the latest version",
            );
        }
        let Some(deployment) = self.deployments.get(name) else { return status(404, "not found") };
        let since = patch["metadata"]["resourceVersion"].as_str();
        if since.is_some_and(|since| since != deployment.version.to_string()) {
            return status(
                409,
                "the object has been modified; please apply your changes to the latest version",
            );
        }
        let fields = |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
        let only = |value: &Value, allowed: &[&str]| {
            fields(value).is_some_and(|names| names.iter().all(|name| allowed.contains(&name.as_str())))
        };
        let is_known = only(patch, &["metadata", "spec"])
            && only(&patch["metadata"], &["resourceVersion", "annotations"])
            && only(&patch["spec"], &["replicas"]);
        let replicas = patch["spec"]["replicas"].as_u64().and_then(|it| usize::try_from(it).ok());
        let (true, Some(replicas)) = (is_known, replicas) else { return status(422, "invalid") };
        self.scale(name, |_| replicas);
        let deployment = self.deployments.get_mut(name).expect("it was there just now");
        annotate(&mut deployment.annotations, &patch["metadata"]["annotations"]);
        if self.faults.lost > 0 {
            self.faults.lost -= 1;
            return status(504, "the server was unable to return a response in the time allotted");
        }
        self.deployment(name)
    }

    /// Returns a page of the pods with a label, after the pod of this name.
    pub(crate) fn pods(&self, app: &str, limit: usize, after: &str) -> Answer {
        let of_app = self.pods.iter().filter(|(name, pod)| pod.deployment == app && name.as_str() > after);
        let mut page: Vec<_> = of_app.take(limit + 1).collect();
        let next = (page.len() > limit).then(|| {
            page.truncate(limit);
            page.last().map(|(name, _)| (*name).clone())
        });
        let items: Vec<Value> = page.into_iter().map(|(name, pod)| pod.object(name)).collect();
        (200, json!({"kind": "PodList", "metadata": {"continue": next}, "items": items}))
    }

    pub(crate) fn patch_pod(&mut self, name: &str, patch: &Value) -> Answer {
        let Some(pod) = self.pods.get_mut(name) else { return status(404, "not found") };
        annotate(&mut pod.annotations, &patch["metadata"]["annotations"]);
        (200, pod.object(name))
    }

    /// Starts to end a pod, like a deletion, an eviction or the controller.
    pub(crate) fn delete_pod(&mut self, name: &str, uid: Option<&str>) -> Answer {
        let Some(pod) = self.pods.get_mut(name) else { return status(404, "not found") };
        if uid.is_some_and(|uid| uid != pod.uid) {
            return status(409, "the UID in the precondition does not match");
        }
        pod.is_deleted = true;
        self.ended.insert(name.to_owned());
        (200, pod.object(name))
    }

    /// Returns the pods of a Deployment that count among its replicas.
    pub(crate) fn living(&self, deployment: &str) -> Vec<String> {
        let counts = |(_, pod): &(&String, &Pod)| pod.deployment == deployment && !pod.is_deleted;
        self.pods.iter().filter(counts).map(|(name, _)| name.clone()).collect()
    }

    /// Creates missing pods, and starts to end surplus ones.
    pub(crate) fn reconcile(&mut self) {
        let names: Vec<String> = self.deployments.keys().cloned().collect();
        for name in names {
            let replicas = self.deployments[&name].replicas;
            let mut refused = None;
            while self.living(&name).len() < replicas {
                if self.quota.is_some_and(|quota| self.pods.len() >= quota) {
                    refused = Some("pods \"x\" is forbidden: exceeded quota: pods".to_owned());
                    break;
                }
                self.make(&name);
            }
            let mut living = self.living(&name);
            living.sort_by_key(|name| self.pods[name].rank());
            let surplus = living.len().saturating_sub(replicas);
            for victim in living.into_iter().take(surplus) {
                let _ = self.delete_pod(&victim, None);
            }
            let deployment = self.deployments.get_mut(&name).expect("it is there");
            deployment.observed = deployment.generation;
            if deployment.refused != refused {
                deployment.refused = refused;
                self.version += 1;
                self.deployments.get_mut(&name).expect("it is there").version = self.version;
            }
        }
    }

    fn make(&mut self, deployment: &str) {
        self.made += 1;
        // A random suffix, as in Kubernetes: the order of names is not that of age.
        let end = self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let pod = Pod {
            uid: format!("uid-{}", self.made),
            deployment: deployment.to_owned(),
            created: SystemTime::now(),
            number: self.made,
            annotations: BTreeMap::new(),
            is_running: false,
            is_ready: false,
            is_deleted: false,
            restarts: 0,
        };
        self.pods.insert(format!("{deployment}-{TEMPLATE}-{end:04x}{:x}", self.made), pod);
    }

    /// Returns whether there is a machine for another pod.
    pub(crate) fn has_room(&self) -> bool {
        self.capacity
            .is_none_or(|capacity| self.pods.values().filter(|pod| pod.is_running).count() < capacity)
    }
}

impl Pod {
    /// Returns the order in which pods are ended: first those without a machine, then those that are not
    /// ready, then cheap ones, then new ones.
    fn rank(&self) -> (bool, bool, i64, Reverse<u64>) {
        let cost = self.annotations.get(COST).and_then(|cost| cost.parse().ok()).unwrap_or(0);
        (self.is_running, self.is_ready, cost, Reverse(self.number))
    }

    fn object(&self, name: &str) -> Value {
        // In whole seconds.
        let created = humantime_seconds(self.created);
        let deleted = self.is_deleted.then(|| humantime_seconds(SystemTime::now()));
        let state = if self.is_running {
            json!({"running": {"startedAt": created}})
        } else {
            json!({"waiting": {"reason": "ContainerCreating"}})
        };
        json!({
            "metadata": {
                "name": name,
                "uid": self.uid,
                "creationTimestamp": created,
                "deletionTimestamp": deleted,
                "labels": {"app": self.deployment, "pod-template-hash": TEMPLATE},
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": format!("{}-{TEMPLATE}", self.deployment),
                    "controller": true,
                }],
                "annotations": self.annotations,
            },
            "status": {
                "phase": if self.is_running { "Running" } else { "Pending" },
                "containerStatuses": [{"name": "node", "ready": self.is_ready, "restartCount": self.restarts, "state": state}],
            },
        })
    }
}

fn annotate(annotations: &mut BTreeMap<String, String>, patch: &Value) {
    for (name, value) in patch.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => annotations.insert(name.clone(), value.to_owned()),
            None => annotations.remove(name),
        };
    }
}

fn humantime_seconds(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since))
        .to_string()
}

/// Returns an error as an answer.
pub(crate) fn status(code: u16, message: &str) -> Answer {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}),
    )
}
