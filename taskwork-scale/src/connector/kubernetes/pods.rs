//! A pod as its API object says it: pure.

use serde::Deserialize;

use crate::connector::{Key, MachineId, MachineState, Refusal};

/// The annotation of a pod that has the key of its request.
pub(super) const KEY: &str = "taskwork/key";

/// A pod, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Tells it from others of the same name.
    pub(super) uid: String,
    pub(super) created_ms: Option<u64>,
    /// The request that it was found to be of.
    pub(super) key: Option<Key>,
    /// Whether it is being deleted.
    pub(super) is_ending: bool,
    /// Whether it has ended for good: nothing of it works any more, and it is replaced already.
    pub(super) is_over: bool,
    phase: String,
    /// Why it is not as it should be.
    why: String,
    /// Whether its program runs.
    is_running: bool,
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
struct RawContainer {
    #[serde(default)]
    state: serde_json::Map<String, serde_json::Value>,
}

/// Reasons for which a pod is taken away, so that its end is no failure.
const TAKEN: [&str; 6] = ["Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated", "NodeLost"];

/// The most of a reason that is passed on, in characters.
const REASON_CHARS_MAX: usize = 200;

impl From<RawPod> for Pod {
    fn from(RawPod { metadata, status }: RawPod) -> Self {
        let containers = &status.container_statuses;
        let is_running =
            !containers.is_empty() && containers.iter().all(|one| one.state.contains_key("running"));
        let key = metadata.annotations.as_ref().and_then(|all| all.get(KEY)?.as_str()?.parse().ok());
        Self {
            key,
            name: metadata.name,
            uid: metadata.uid,
            created_ms: metadata.creation_timestamp.as_deref().and_then(milliseconds),
            is_ending: metadata.deletion_timestamp.is_some(),
            is_over: matches!(status.phase.as_str(), "Failed" | "Succeeded"),
            is_running: status.phase == "Running" && is_running,
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

    /// Returns its state as a machine, which was told to end or was not.
    pub(super) fn state(&self, was_ended: bool) -> MachineState {
        if self.is_over {
            let was_taken =
                self.phase == "Succeeded" || TAKEN.iter().any(|taken| self.why.starts_with(taken));
            return if was_taken || was_ended {
                MachineState::Gone
            } else {
                let why: String = self.why.trim().chars().take(REASON_CHARS_MAX).collect();
                MachineState::Failed(format!("Kubernetes says {} {why}", self.phase).trim_end().to_owned())
            };
        }
        if self.is_ending || was_ended {
            MachineState::Ending
        } else if self.is_running {
            MachineState::Running
        } else {
            MachineState::Requested
        }
    }

    /// Returns whether it counts among the replicas.
    pub(super) fn counts(&self) -> bool {
        !self.is_ending && !self.is_over
    }
}

/// Reads a time as Kubernetes writes it, in milliseconds since 1970.
fn milliseconds(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}
