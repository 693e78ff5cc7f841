//! The five calls of the Kubernetes API that the connector needs, each with one path.

use form_urlencoded::Serializer;
use hyper::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    access::{Access, is_name},
    http::{Answer, Http},
    ledger::Ledger,
    pods::{KEY, Pod, RawPod},
};
use crate::connector::{Key, MACHINES_MAX, Refusal};

/// The annotation of a Deployment that contains the ledger.
pub(super) const LEDGER: &str = "taskwork/scale";

/// The annotation by which a `ReplicaSet` chooses the pods to delete: the lowest cost first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The type of a patch that replaces the fields it contains. If it contains the version of the object, it is rejected
/// if the object has changed.
const MERGE: &str = "application/merge-patch+json";

/// The number of pods in a page.
const PAGE: usize = 250;

/// The maximum number of times that a list of pods is restarted because it has changed too much between pages.
const LISTS_MAX: usize = 3;

/// The maximum length of an error message, in characters.
const MESSAGE_CHARS_MAX: usize = 400;

/// The relevant fields of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deployment {
    /// The version, which changes with every change of the object.
    version: String,
    pub(super) replicas: u32,
    /// The selector of its pods, as a query.
    pub(super) selector: String,
    pub(super) ledger: Ledger,
    /// The reason for which Kubernetes does not create missing pods.
    pub(super) refused: Option<String>,
}

/// The outcome of a conditional patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Patched {
    Done,
    /// The object has changed since it was read, and nothing was done.
    Conflict,
}

/// The API of a namespace.
#[derive(Debug)]
pub(super) struct Api(Http);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDeployment {
    metadata: RawMetadata,
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    resource_version: String,
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    annotations: Option<serde_json::Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct RawSpec {
    replicas: Option<u32>,
    selector: RawSelector,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSelector {
    #[serde(default)]
    match_labels: serde_json::Map<String, Value>,
    #[serde(default)]
    match_expressions: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    #[serde(default)]
    observed_generation: u64,
    #[serde(default)]
    conditions: Vec<RawCondition>,
}

#[derive(Debug, Deserialize)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
struct RawPods {
    #[serde(default)]
    metadata: RawListMetadata,
    items: Option<Vec<RawPod>>,
}

#[derive(Debug, Default, Deserialize)]
struct RawListMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawError {
    message: String,
}

impl Api {
    pub(super) fn new(access: Access) -> Self {
        Self(Http::new(access))
    }

    /// Adds the address of the API to messages.
    pub(super) fn place(&self) -> String {
        format!("Kubernetes at {}", self.0.access().authority())
    }

    pub(super) async fn deployment(&self, name: &str) -> Result<Deployment, Refusal> {
        let what = self.deployment_called(name);
        let answer = self.0.send(Method::GET, &self.deployment_path(name), None).await?;
        self.expect_status(&answer, &[200], &what)?;
        let raw: RawDeployment = self.parse(&answer, &what)?;
        self.read(name, raw)
    }

    fn read(&self, name: &str, raw: RawDeployment) -> Result<Deployment, Refusal> {
        let what = self.deployment_called(name);
        if raw.spec.selector.match_labels.is_empty() || !raw.spec.selector.match_expressions.is_empty() {
            return Err(Refusal::wrong(format!("{what}: its selector must consist of matchLabels only")));
        }
        let labels = raw.spec.selector.match_labels.iter();
        let selector: Vec<String> =
            labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        let ledger = match raw.metadata.annotations.as_ref().and_then(|all| all.get(LEDGER)) {
            None => Ledger::default(),
            Some(text) => text.as_str().and_then(|text| serde_json::from_str(text).ok()).ok_or_else(|| {
                Refusal::wrong(format!(
                    "{what}: its annotation {LEDGER}, in which the controller notes what it has asked for, cannot be read. \
                     Remove it while no controller runs: kubectl annotate deployment {name} {LEDGER}-"
                ))
            })?,
        };
        let is_current = raw.status.observed_generation >= raw.metadata.generation;
        let failure =
            raw.status.conditions.into_iter().find(|it| it.kind == "ReplicaFailure" && it.status == "True");
        Ok(Deployment {
            version: raw.metadata.resource_version,
            replicas: raw.spec.replicas.unwrap_or(1),
            selector: selector.join(","),
            ledger,
            refused: failure.filter(|_| is_current).map(|it| short(&it.message)),
        })
    }

    /// Sets the number of replicas and the ledger, unless the Deployment has changed since it was read.
    pub(super) async fn set_replicas(
        &self,
        name: &str,
        since: &Deployment,
        replicas: u32,
        ledger: &Ledger,
    ) -> Result<Patched, Refusal> {
        let what = self.deployment_called(name);
        let ledger = serde_json::to_string(ledger).map_err(|error| Refusal::wrong(error.to_string()))?;
        let patch = json!({
            "metadata": {"resourceVersion": since.version, "annotations": {LEDGER: ledger}},
            "spec": {"replicas": replicas},
        });
        let body = Some((MERGE, patch.to_string()));
        let answer = self.0.send(Method::PATCH, &self.deployment_path(name), body).await?;
        if answer.status == 409 {
            return Ok(Patched::Conflict);
        }
        self.expect_status(&answer, &[200], &what)?;
        Ok(Patched::Done)
    }

    /// Returns all pods with these labels.
    pub(super) async fn pods(&self, selector: &str) -> Result<Vec<Pod>, Refusal> {
        for _ in 0..LISTS_MAX {
            if let Some(pods) = self.try_pods(selector).await? {
                return Ok(pods);
            }
        }
        Err(Refusal::unknown(format!("{}: its pods change faster than they can be listed", self.place())))
    }

    /// Returns `None` if a list has expired before its end.
    async fn try_pods(&self, selector: &str) -> Result<Option<Vec<Pod>>, Refusal> {
        let what = format!("the pods of the namespace {}", self.0.access().namespace);
        let mut pods = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let path = format!("{}?{}", self.pods_path(), page(selector, next.as_deref()));
            let answer = self.0.send(Method::GET, &path, None).await?;
            if answer.status == 410 {
                return Ok(None);
            }
            self.expect_status(&answer, &[200], &what)?;
            let page: RawPods = self.parse(&answer, &what)?;
            for raw in page.items.unwrap_or_default() {
                let pod = Pod::from(raw);
                if !is_name(&pod.name) {
                    return Err(Refusal::unknown(format!("{what}: one has the name {:?}", short(&pod.name))));
                }
                pods.push(pod);
            }
            if pods.len() > MACHINES_MAX {
                return Err(Refusal::unknown(format!(
                    "{what}: there are more than {MACHINES_MAX} with the labels {selector}"
                )));
            }
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(Some(pods));
            }
        }
    }

    /// Makes the `ReplicaSet` of a pod delete it first. Ignores pods that are gone.
    pub(super) async fn make_cheap(&self, pod: &str) -> Result<(), Refusal> {
        self.annotate(pod, COST, "-1000").await
    }

    /// Records the request of a pod at the pod. Ignores pods that are gone.
    pub(super) async fn note_key(&self, pod: &str, key: &Key) -> Result<(), Refusal> {
        self.annotate(pod, KEY, key.as_str()).await
    }

    async fn annotate(&self, pod: &str, name: &str, value: &str) -> Result<(), Refusal> {
        let patch = json!({"metadata": {"annotations": {name: value}}});
        let path = format!("{}/{pod}", self.pods_path());
        let answer = self.0.send(Method::PATCH, &path, Some((MERGE, patch.to_string()))).await?;
        self.expect_status(&answer, &[200, 404], &format!("the pod {pod}"))
    }

    /// Deletes a pod, with its grace period. Ignores pods that are gone or were replaced by another one of the same
    /// name.
    pub(super) async fn delete_pod(&self, pod: &str, uid: &str) -> Result<(), Refusal> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        let path = format!("{}/{pod}", self.pods_path());
        let body = Some(("application/json", options.to_string()));
        let answer = self.0.send(Method::DELETE, &path, body).await?;
        self.expect_status(&answer, &[200, 202, 404, 409], &format!("the pod {pod}"))
    }

    fn deployment_called(&self, name: &str) -> String {
        format!("the Deployment {name} of the namespace {}", self.0.access().namespace)
    }

    fn deployment_path(&self, name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.0.access().namespace)
    }

    fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.0.access().namespace)
    }

    /// Returns the error of an answer, unless it has one of the expected statuses.
    fn expect_status(&self, answer: &Answer, expected: &[u16], what: &str) -> Result<(), Refusal> {
        if expected.contains(&answer.status) {
            return Ok(());
        }
        let said = match serde_json::from_slice::<RawError>(&answer.body) {
            Ok(error) => format!(": {}", short(&error.message)),
            Err(_) => String::new(),
        };
        let message = format!("{}: {what}: status {}{said}", self.place(), answer.status);
        Err(match answer.status {
            401 => Refusal::wrong(format!(
                "{message}. The token is not valid: token_file names the file with it"
            )),
            403 => Refusal::wrong(format!(
                "{message}. deploy/kubernetes/components/scale has the role that the controller needs"
            )),
            404 => {
                Refusal::wrong(format!("{message}. Check namespace and deployments in the connector's file"))
            }
            400 | 405..=408 | 411..=428 => Refusal::wrong(message),
            _ => Refusal::unknown(message),
        })
    }

    fn parse<T: DeserializeOwned>(&self, answer: &Answer, what: &str) -> Result<T, Refusal> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            Refusal::unknown(format!("{}: {what}: its answer cannot be parsed: {error}", self.place()))
        })
    }
}

/// Returns the query for a page of a list.
fn page(selector: &str, next: Option<&str>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("labelSelector", selector).append_pair("limit", &PAGE.to_string());
    if let Some(next) = next {
        query.append_pair("continue", next);
    }
    query.finish()
}

/// Returns the start of a message, on one line.
fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}
