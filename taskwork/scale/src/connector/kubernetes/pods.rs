//! A pod as described by its API object. Pure.

use serde::Deserialize;

use crate::connector::{Key, MachineId, MachineState, Refusal};

/// The annotation of a pod with the key of its request.
pub(super) const KEY: &str = "taskwork/key";

/// The relevant fields of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Distinguishes it from others of the same name.
    pub(super) uid: String,
    pub(super) created_ms: Option<u64>,
    /// The recorded key of its request.
    pub(super) key: Option<Key>,
    /// Whether it is being deleted.
    pub(super) is_ending: bool,
    /// Whether it has terminated: it does no work, and was already replaced.
    pub(super) is_over: bool,
    /// The `ReplicaSet` that keeps it, with the hash of their common template.
    replica_set: Option<(String, String)>,
    phase: String,
    /// The reason of a failure.
    why: String,
    /// Whether one of its containers has been started, or cannot be.
    was_tried: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RawPod {
    #[serde(default)]
    metadata: RawMetadata,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    annotations: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    labels: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    owner_references: Option<Vec<RawOwner>>,
}

#[derive(Debug, Deserialize)]
struct RawOwner {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    /// Whether it is the controller of the object.
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    container_statuses: Vec<RawContainer>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    #[serde(default)]
    state: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    restart_count: u32,
}

impl RawContainer {
    /// Returns whether it has been started, or cannot be. If so, it is not waiting for a place.
    fn was_tried(&self) -> bool {
        let why = self.state.get("waiting").and_then(|waiting| waiting.get("reason")?.as_str());
        let waits = self.state.is_empty() || self.state.contains_key("waiting");
        !waits || self.restart_count > 0 || why.is_some_and(|why| !WAITS.contains(&why))
    }
}

/// The reasons of a waiting container that is about to start. All others are errors.
const WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The label with the hash of the template: the end of the name of its `ReplicaSet`.
const TEMPLATE: &str = "pod-template-hash";

/// Reasons for which pods are preempted, so that their end is no failure.
const TAKEN: [&str; 6] = ["Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated", "NodeLost"];

const REASON_CHARS_MAX: usize = 200;

impl From<RawPod> for Pod {
    fn from(RawPod { metadata, status }: RawPod) -> Self {
        let keeper = metadata.owner_references.into_iter().flatten();
        let keeper = keeper.into_iter().find(|it| it.controller == Some(true) && it.kind == "ReplicaSet");
        let template = metadata.labels.as_ref().and_then(|all| all.get(TEMPLATE)?.as_str());
        let key = metadata.annotations.as_ref().and_then(|all| all.get(KEY)?.as_str()?.parse().ok());
        Self {
            key,
            name: metadata.name,
            uid: metadata.uid,
            created_ms: metadata.creation_timestamp.as_deref().and_then(milliseconds),
            is_ending: metadata.deletion_timestamp.is_some(),
            is_over: matches!(status.phase.as_str(), "Failed" | "Succeeded"),
            replica_set: keeper.zip(template).map(|(keeper, template)| (keeper.name, template.to_owned())),
            was_tried: status.container_statuses.iter().any(RawContainer::was_tried),
            why: format!("{} {}", status.reason, status.message),
            phase: status.phase,
        }
    }
}

impl Pod {
    /// Returns its id as a machine.
    pub(super) fn id(&self) -> Result<MachineId, Refusal> {
        self.name.parse().map_err(|_| {
            Refusal::wrong(format!(
                "the pod {}: its name is too long for a label; give its Deployment a shorter one",
                self.name
            ))
        })
    }

    /// Returns its state as a machine; `was_ended` is whether its deletion was requested.
    pub(super) fn state(&self, was_ended: bool) -> MachineState {
        if self.is_over {
            let was_taken =
                self.phase == "Succeeded" || TAKEN.iter().any(|taken| self.why.starts_with(taken));
            return if was_taken || was_ended {
                MachineState::Gone
            } else {
                let why: String = self.why.trim().chars().take(REASON_CHARS_MAX).collect();
                MachineState::Failed(format!("Kubernetes reports {} {why}", self.phase).trim_end().to_owned())
            };
        }
        if self.is_ending || was_ended {
            MachineState::Ending
        } else if matches!(self.phase.as_str(), "" | "Pending") && !self.was_tried {
            MachineState::Requested
        } else {
            // A program that crashes repeatedly counts too: the time for its node to join is limited.
            MachineState::Running
        }
    }

    /// Returns whether a `ReplicaSet` of this Deployment keeps it. Labels do not show that: pods of another
    /// Deployment, or started by hand, may have all selected labels.
    pub(super) fn is_of(&self, deployment: &str) -> bool {
        let of = self.replica_set.as_ref();
        of.is_some_and(|(name, template)| {
            name.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-')) == Some(template.as_str())
        })
    }

    /// Returns whether it is included in the number of replicas.
    pub(super) fn counts(&self) -> bool {
        !self.is_ending && !self.is_over
    }
}

/// Parses a Kubernetes timestamp to milliseconds since 1970.
fn milliseconds(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}
