//! The actions of operators: their requests and execution.

use std::{pin::Pin, time::Duration};

use axum::http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use taskwork::{
    Client, JobId, NodeId,
    client::{AskedToLeave, ClientError, ErrorKind, SUGGESTION_BYTES_MAX},
};
use taskwork_cli::command::job_id;

use super::{Actor, Failed, Outcome};

/// The maximum size of the body of a request, in bytes.
const BYTES_MAX: usize = 4 << 10;
/// The maximum size of the body of a suggestion. It may be indented; the limit applies to its compact JSON.
const SUGGESTION_BODY_BYTES_MAX: usize = 4 * SUGGESTION_BYTES_MAX;
/// The maximum length of the reason for a cancellation, in characters.
const REASON_CHARS_MAX: usize = 500;
/// The maximum time to wait for ZooKeeper.
const PATIENCE: Duration = Duration::from_secs(15);
/// The maximum time to wait for a node's answer to a suggestion.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// An action of an operator.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::web) enum Action {
    /// Park a job's tasks, and let its nodes work on other jobs.
    Suspend(JobId),
    /// Resume a suspended job.
    Resume(JobId),
    /// Cancel a job.
    Cancel { job: JobId, reason: String },
    /// Ask a node to hand over its tasks and leave.
    Drain(NodeId),
    /// Send a suggestion to a job.
    Inject { job: JobId, suggestion: Value },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJob {
    job: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    job: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    node: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inject {
    job: String,
    suggestion: Value,
}

impl Action {
    /// Returns the maximum size of the body of an action; `None` if there is no such action.
    pub(super) fn bytes_max(what: &str) -> Option<usize> {
        match what {
            "suspend" | "resume" | "cancel" | "drain" => Some(BYTES_MAX),
            "inject" => Some(SUGGESTION_BODY_BYTES_MAX),
            _ => None,
        }
    }

    /// Parses the request for an action.
    ///
    /// # Errors
    /// If the request is malformed: the expected form.
    pub(super) fn read(what: &str, body: &[u8], operator: &str) -> Result<Self, String> {
        let job = |text: &str| job_id(text).map_err(|expected| format!("job: {expected}"));
        match what {
            "suspend" => Ok(Self::Suspend(job(&json::<OfJob>(body, "{\"job\": ID}")?.job)?)),
            "resume" => Ok(Self::Resume(job(&json::<OfJob>(body, "{\"job\": ID}")?.job)?)),
            "cancel" => {
                let Cancel { job: id, reason } = json(body, "{\"job\": ID, \"reason\": TEXT}")?;
                let job = job(&id)?;
                let reason = match reason.trim() {
                    "" => format!("cancelled by {operator} on the dashboard"),
                    reason if reason.chars().count() > REASON_CHARS_MAX => {
                        return Err(format!("a reason has at most {REASON_CHARS_MAX} characters"));
                    }
                    reason if reason.contains(char::is_control) => {
                        return Err("a reason is one line of text".to_owned());
                    }
                    reason => reason.to_owned(),
                };
                Ok(Self::Cancel { job, reason })
            }
            "drain" => {
                let Drain { node } = json(body, "{\"node\": NAME}")?;
                Ok(Self::Drain(node.parse::<NodeId>().map_err(|error| format!("node: {error}"))?))
            }
            "inject" => {
                let Inject { job: id, suggestion } = json(body, "{\"job\": ID, \"suggestion\": JSON}")?;
                Ok(Self::Inject { job: job(&id)?, suggestion })
            }
            _ => Err("there is no such action".to_owned()),
        }
    }

    /// Returns the name of the action.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Suspend(_) => "suspend",
            Self::Resume(_) => "resume",
            Self::Cancel { .. } => "cancel",
            Self::Drain(_) => "drain",
            Self::Inject { .. } => "inject",
        }
    }

    /// Returns the job or node concerned.
    pub(super) fn on(&self) -> String {
        match self {
            Self::Suspend(job) | Self::Resume(job) | Self::Cancel { job, .. } | Self::Inject { job, .. } => {
                job.to_string()
            }
            Self::Drain(node) => node.to_string(),
        }
    }

    /// Returns the node that the action asks to leave.
    pub(super) fn drained(&self) -> Option<String> {
        if let Self::Drain(node) = self { Some(node.to_string()) } else { None }
    }
}

fn json<T: DeserializeOwned>(body: &[u8], expected: &str) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("expected {expected}; {error}"))
}

/// Performs actions with a client of the cluster.
pub(super) struct ByClient(Client);

impl ByClient {
    pub(super) fn new(client: &Client) -> Self {
        Self(client.with_patience(Some(PATIENCE)))
    }

    async fn act(&self, action: &Action) -> Outcome {
        let client = &self.0;
        Ok(match action {
            Action::Suspend(job) => {
                client.suspend(job).await?;
                format!("job {job} is suspended")
            }
            Action::Resume(job) => {
                client.resume(job).await?;
                format!("job {job} is resumed")
            }
            Action::Cancel { job, reason } => {
                client.cancel(job, reason).await?;
                format!("job {job} is cancelled")
            }
            Action::Drain(node) => {
                // Checked first: a request to a node that has gone would never be removed.
                let node = client.member(&node.to_string()).await?;
                match client.drain_once(node).await? {
                    AskedToLeave::Now => format!("node {node} was asked to leave"),
                    _ => return Err(asked_before(&node.to_string())),
                }
            }
            Action::Inject { job, suggestion } => {
                let told = client.inject(job, suggestion.clone(), ANSWER_TIMEOUT).await?;
                let what = if told.taken { "took" } else { "did not take" };
                format!("job {job} {what} it: {}", told.answer)
            }
        })
    }
}

impl Actor for ByClient {
    fn perform<'a>(&'a self, action: &'a Action) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(self.act(action))
    }
}

/// Returns the error for a node that was already asked to leave.
pub(super) fn asked_before(node: &str) -> Failed {
    let why = format!(
        "node {node} was asked to leave already, and hands over its tasks. A second request makes it leave at once: if \
         you want that, use taskwork drain {node}"
    );
    Failed { status: StatusCode::CONFLICT, why }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            error => match error.kind() {
                ErrorKind::Usage => StatusCode::BAD_REQUEST,
                ErrorKind::NotFound => StatusCode::NOT_FOUND,
                ErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::CONFLICT,
            },
        };
        Self { status, why: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: &str = "j-0000000003";
    const NODE: &str = "n00000000000000ab";

    fn read(what: &str, body: &Value) -> Result<Action, String> {
        Action::read(what, body.to_string().as_bytes(), "anna")
    }

    #[test]
    fn actions_of_pages_are_parsed() {
        let job: JobId = JOB.parse().unwrap();
        for (what, body, action) in [
            ("suspend", json!({ "job": JOB }), Action::Suspend(job.clone())),
            ("resume", json!({ "job": "3" }), Action::Resume(job.clone())),
            (
                "cancel",
                json!({ "job": JOB, "reason": " too dear " }),
                Action::Cancel { job: job.clone(), reason: "too dear".to_owned() },
            ),
            (
                "cancel",
                json!({ "job": JOB }),
                Action::Cancel { job: job.clone(), reason: "cancelled by anna on the dashboard".to_owned() },
            ),
            ("drain", json!({ "node": NODE }), Action::Drain(NODE.parse().unwrap())),
            (
                "inject",
                json!({ "job": JOB, "suggestion": null }),
                Action::Inject { job: job.clone(), suggestion: Value::Null },
            ),
        ] {
            assert_eq!(read(what, &body), Ok(action), "{what} {body}");
            assert!(Action::bytes_max(what).is_some());
        }
    }

    #[test]
    fn malformed_actions_are_refused_with_expected_form() {
        let long = "x".repeat(REASON_CHARS_MAX + 1);
        for (what, body, says) in [
            ("suspend", json!({}), "{\"job\": ID}"),
            ("suspend", json!({ "job": 3 }), "{\"job\": ID}"),
            ("suspend", json!({ "job": "none" }), "j-0000000003"),
            ("suspend", json!({ "job": "../members" }), "j-0000000003"),
            ("resume", json!({ "job": JOB, "more": 1 }), "more"),
            ("resume", json!([]), "{\"job\": ID}"),
            ("cancel", json!({ "job": JOB, "reason": long }), "500 characters"),
            ("cancel", json!({ "job": JOB, "reason": "a\u{1b}[2Jb" }), "one line"),
            ("cancel", json!({ "job": JOB, "reason": 7 }), "TEXT"),
            ("drain", json!({ "node": "n" }), "node"),
            ("drain", json!({ "node": "members/../x" }), "node"),
            ("inject", json!({ "job": JOB }), "suggestion"),
            ("forget", json!({ "job": JOB }), "no such action"),
        ] {
            let refused = read(what, &body).unwrap_err();
            assert!(refused.contains(says), "{what} {body}: {refused}");
        }
        for body in ["", "{", "\u{0}", "{\"job\":\"3\"}{}"] {
            assert!(Action::read("suspend", body.as_bytes(), "anna").is_err(), "{body}");
        }
        // Nested too deeply for a recursive parser.
        let deep =
            format!("{{\"job\":\"3\",\"suggestion\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Action::read("inject", deep.as_bytes(), "anna").is_err());
        assert_eq!(Action::bytes_max("forget"), None);
    }

    #[test]
    fn client_errors_map_to_status_codes() {
        let job: JobId = JOB.parse().unwrap();
        let wrong = ClientError::WrongState { job: job.clone(), reason: "is over already".to_owned() };
        let none = ClientError::NoJob { cluster: "c".to_owned(), job };
        let away = ClientError::Unreachable { reason: "nobody answers".to_owned() };
        let late = ClientError::TimedOut { reason: "no node has answered".to_owned() };
        for (error, status) in [(wrong, 409), (none, 404), (away, 503), (late, 504)] {
            let said = error.to_string();
            let Failed { status: told, why } = error.into();
            assert_eq!((told.as_u16(), why), (status, said));
        }
    }
}
