//! Where machines are had: what every connector offers, and what may be asked of it.
//!
//! A connector knows *machines*, not nodes: something that was started, may be seen, and may be ended. On each
//! machine one node process runs, which says the machine's id as its label `machine`. A connector keeps nothing
//! that it could lose: what there is, it says when it is asked ([`Connector::list`]).

mod command;
pub mod file;
mod kubernetes;
mod local;
#[cfg(test)]
mod scripts;
mod slurm;

use std::{collections::BTreeMap, fmt, pin::Pin, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::file::{Common, FileError, Opened, open};

/// The variable of the environment in which a node finds the id of its machine.
pub const MACHINE_VARIABLE: &str = "TASKWORK_MACHINE";

/// The most time that a call of a connector may take. The controller gives up then, and does not know whether it
/// happened.
pub const CALL_MAX: Duration = Duration::from_secs(60);

/// The most machines that one call creates, and that a connector lists.
pub const MACHINES_MAX: usize = 10_000;

/// What a connector does, once it is polled.
pub type Calling<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// A place where machines are had.
///
/// Every call ends within [`CALL_MAX`]; whoever calls bounds it, too. A call that is dropped may have happened.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Returns the kinds of machines that may be had, at least one; the names differ.
    fn offers(&self) -> &[Offer];

    /// Returns the most machines that one call creates.
    fn request_max(&self) -> u32 {
        u32::MAX
    }

    /// Asks for `count` more machines under a key that is used once.
    ///
    /// The same call again has no further effect: the same key stands for the same machines, also after a restart
    /// and after a call whose answer was lost. Returns those of the machines that have an id already; the others
    /// appear in [`list`](Self::list).
    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>>;

    /// Returns the machines of this connector, whoever asked for them: the truth. A machine that is gone may be
    /// left out. A connector of which only a part could be read refuses: what it does not list counts as gone.
    /// May note what it finds, and do what follows from it: only who decides about the machines lists them.
    fn list(&self) -> Calling<'_, Vec<Machine>>;

    /// Returns what [`list`](Self::list) would, and changes nothing anywhere: for who only looks, perhaps beside the
    /// one who decides.
    fn look(&self) -> Calling<'_, Vec<Machine>>;

    /// Ends machines. It has no effect on those that end already or are gone. Returns before they are gone.
    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()>;
}

/// A kind of machine that may be had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The name, which the connector understands.
    pub name: String,
    /// The workers of a node on such a machine, at least one.
    pub workers: u32,
    /// The price of an hour, in the currency of the connector's file; `None` if it is not known.
    #[serde(default)]
    pub price_per_hour: Option<f64>,
    /// The time that is billed as a whole, in seconds: 3,600 where each begun hour is paid.
    #[serde(default = "second")]
    pub quantum_s: u32,
    /// The least time that is billed, in seconds.
    #[serde(default)]
    pub minimum_s: u32,
    /// The most machines of this kind at a time.
    pub max: u32,
    /// Whether the machines may be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// The time from the request to the first work, as far as it is known, in seconds.
    #[serde(default = "minute")]
    pub start_s: u32,
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

/// The id of a machine: 1 to 63 letters, digits, `-`, `_`, `.` and `/`, so that it may be a label's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(String);

/// What one request for machines is known by: 1 to 40 lowercase letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// A text that is no id of a machine, or no key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no {what}")]
pub struct WordError {
    text: String,
    what: &'static str,
}

/// A machine, as its connector sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its id.
    pub id: MachineId,
    /// The name of its offer.
    pub offer: String,
    /// Its state.
    pub state: MachineState,
    /// The key of the request that it was created by; `None` if the connector cannot say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// When it was created, in milliseconds since 1970 by the connector's clock; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<u64>,
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MachineState {
    /// It has been asked for and is not there yet: it waits, boots, is being placed.
    Requested,
    /// It runs.
    Running,
    /// It is being ended.
    Ending,
    /// It is gone.
    Gone,
    /// It could not be started, or has ended with an error; the connector says why. It costs nothing any more.
    Failed(String),
}

/// Why a connector did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of reason it is.
    pub why: Why,
    /// What happened, where, and what to do about it: one or a few lines for people.
    pub message: String,
}

/// A kind of reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// There are no more machines of this kind at the moment: a quota, a limit, a full house. Nothing was done.
    Exhausted,
    /// It cannot work until somebody mends it: a wrong name, a missing right, a script that is not there. Nothing
    /// was done.
    Wrong,
    /// It is not known whether it was done, or what there is: no answer in time, a connection lost, an answer that
    /// cannot be understood.
    Unknown,
}

impl Refusal {
    /// No more machines at the moment.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self { why: Why::Exhausted, message: message.into() }
    }

    /// Something that somebody has to mend.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self { why: Why::Wrong, message: message.into() }
    }

    /// An outcome that is not known.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { why: Why::Unknown, message: message.into() }
    }
}

impl MachineState {
    /// Returns whether there is nothing any more that could work or cost.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::Failed(_))
    }
}

impl MachineId {
    /// The longest id, in bytes.
    pub const BYTES_MAX: usize = 63;

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// The longest key, in bytes.
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
        // Enough to recognise it: whatever a script prints may be a gigabyte.
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
