//! Connectors to providers of machines, and their common interface.
//!
//! A connector knows *machines*, not nodes: a machine can be created, listed and terminated. On each machine runs one
//! node process, which has the machine's id as its label `machine`. A connector has no state of its own: the list is
//! authoritative ([`Connector::list`]).

mod command;
pub mod file;
mod kubernetes;
mod local;
#[cfg(test)]
mod scripts;
mod several;
mod slurm;

use std::{collections::BTreeMap, fmt, pin::Pin, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::file::{Common, FileError, Opened, open};

/// The environment variable with the id of a node's machine.
pub const MACHINE_VARIABLE: &str = "TASKWORK_MACHINE";

/// The time limit of a connector's call. After it the controller continues, and the outcome is unknown.
pub const CALL_MAX: Duration = Duration::from_secs(60);

/// The maximum number of machines that one call creates, or that a connector lists.
pub const MACHINES_MAX: usize = 10_000;

/// The future of a connector's call.
pub type Calling<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// A provider of machines.
///
/// Every call completes within [`CALL_MAX`]; the caller limits it, too. A dropped call may have had its effect.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Returns the kinds of machines, at least one, with different names.
    fn offers(&self) -> &[Offer];

    /// Returns the maximum number of machines that one call creates.
    fn request_max(&self) -> u32 {
        u32::MAX
    }

    /// Requests `count` more machines under a unique key.
    ///
    /// A repeated call has no further effect: the same key stands for the same machines, even after a restart or a
    /// lost answer. Returns the machines that have an id already; the others appear in [`list`](Self::list).
    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>>;

    /// Returns all machines of this connector, including those that other processes requested. The list is
    /// authoritative; machines that are gone may be omitted. A connector that could read only a part returns an
    /// error, since unlisted machines count as gone. May record its results and act on them: only the controller in
    /// charge of the machines calls it.
    fn list(&self) -> Calling<'_, Vec<Machine>>;

    /// Returns the same as [`list`](Self::list) without any side effect: for dry runs, possibly next to a running
    /// controller.
    fn look(&self) -> Calling<'_, Vec<Machine>>;

    /// Terminates machines. Has no effect on machines that are ending or gone. Returns before they are gone.
    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()>;
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The name, which the connector knows.
    pub name: String,
    /// The workers of a node on such a machine, at least one.
    pub workers: u32,
    /// The price of an hour, in the currency of the connector's file; `None` if it is not known.
    #[serde(default)]
    pub price_per_hour: Option<f64>,
    /// The quantum of billing, in seconds: 3,600 if each begun hour is paid.
    #[serde(default = "second")]
    pub quantum_s: u32,
    /// The minimum billed time, in seconds.
    #[serde(default)]
    pub minimum_s: u32,
    /// The maximum number of machines at a time.
    pub max: u32,
    /// Whether the provider may take the machines away at any time.
    #[serde(default)]
    pub spot: bool,
    /// The time from the request to the first work, if known, in seconds.
    #[serde(default = "minute")]
    pub start_s: u32,
    /// The memory of such a machine, in bytes; `None` if it is not known, which satisfies any demand.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Labels that nodes on such a machine get.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The program of its nodes, as it names itself; `None` if the file does not state it.
    #[serde(default)]
    pub program: Option<String>,
    /// The version of that program, with the build if it has one; `None` if the file does not state it.
    #[serde(default)]
    pub version: Option<String>,
}

impl Offer {
    /// Returns the labels of nodes on such a machine, except the machine's id.
    pub fn node_labels(&self, currency: Option<&str>) -> Vec<(String, String)> {
        let mut labels = vec![("offer".to_owned(), self.name.clone())];
        labels.extend(self.price_per_hour.map(|price| ("price".to_owned(), format!("{price}/h"))));
        labels.extend(currency.map(|currency| ("currency".to_owned(), currency.to_owned())));
        labels.extend(self.spot.then(|| ("spot".to_owned(), "true".to_owned())));
        labels.extend(self.labels.clone());
        labels
    }
}

const fn second() -> u32 {
    1
}

const fn minute() -> u32 {
    60
}

/// The id of a machine: 1 to 63 letters, digits, `-`, `_`, `.` and `/`, so that it can be the value of a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(String);

/// The key of a request for machines: 1 to 40 lowercase letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// A text that is not the id of a machine, or not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a valid {what}")]
pub struct WordError {
    text: String,
    what: &'static str,
}

/// A machine as reported by its connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its id.
    pub id: MachineId,
    /// The name of its offer.
    pub offer: String,
    /// Its state.
    pub state: MachineState,
    /// The key of its request; `None` if the connector does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The time of its creation, in milliseconds since 1970 by the connector's clock; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<u64>,
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MachineState {
    /// It was requested, and does not run yet: it is queued, boots or is being placed.
    Requested,
    /// It runs.
    Running,
    /// It is being terminated.
    Ending,
    /// It is gone.
    Gone,
    /// It could not be started, or has ended with the error given. It costs nothing now.
    Failed(String),
}

/// The failure of a connector's call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of failure.
    pub why: Why,
    /// The event, the place and the remedy, in one or a few lines for users.
    pub message: String,
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// No more machines of this kind are available now, because of a quota, a limit or lack of capacity. Nothing was
    /// done.
    Exhausted,
    /// The user must fix the configuration: a wrong name, a missing permission, a missing script. Nothing was done.
    Wrong,
    /// The outcome, or the list, is unknown: no answer in time, a lost connection, an answer that cannot be parsed.
    Unknown,
}

impl Refusal {
    /// Creates a failure for lack of machines.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self { why: Why::Exhausted, message: message.into() }
    }

    /// Creates a failure that the user must fix.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self { why: Why::Wrong, message: message.into() }
    }

    /// Creates a failure with an unknown outcome.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { why: Why::Unknown, message: message.into() }
    }
}

impl MachineState {
    /// Returns whether the machine neither works nor costs anything now.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::Failed(_))
    }
}

impl MachineId {
    /// The maximum length of an id, in bytes.
    pub const BYTES_MAX: usize = 63;

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// The maximum length of a key, in bytes.
    pub const BYTES_MAX: usize = 40;

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for MachineId {
    type Error = WordError;

    fn try_from(text: String) -> Result<Self, WordError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text));
        }
        Err(WordError::new(&text, "id of a machine: 1 to 63 letters, digits, - _ . and /"))
    }
}

impl TryFrom<String> for Key {
    type Error = WordError;

    fn try_from(text: String) -> Result<Self, WordError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text));
        }
        Err(WordError::new(&text, "key of a request: 1 to 40 lowercase letters, digits and -"))
    }
}

impl WordError {
    fn new(text: &str, what: &'static str) -> Self {
        // Enough to recognise it: the output of a script may have a gigabyte.
        Self { text: text.chars().take(80).collect(), what }
    }
}

impl FromStr for MachineId {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Self::try_from(text.to_owned())
    }
}

impl FromStr for Key {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Self::try_from(text.to_owned())
    }
}

impl From<MachineId> for String {
    fn from(id: MachineId) -> Self {
        id.0
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
