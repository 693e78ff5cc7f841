//! What the policy is told, every few seconds and whenever something has happened.
//!
//! Times are milliseconds since 1970 by the controller's clock, money is in the one currency of the connector's file.
//! What is not known is `None`, never 0.

use serde::{Deserialize, Serialize};

/// A cluster at one moment, with its jobs, its machines, and what machines may be had.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observation {
    /// When it was made.
    pub at_ms: u64,
    /// The workers of all members that are not leaving, also of those that no connector has started.
    pub workers: u32,
    /// Those of them that have a task.
    pub busy: Option<u32>,
    /// Those of them that have none and for which none is queued.
    pub hungry: Option<u32>,
    /// The queued tasks of all members.
    pub queued: Option<u64>,
    /// The tasks in the global task lists of the jobs.
    pub open_tasks: Option<u64>,
    /// Steal requests that were answered with tasks, since the members started.
    pub steals_granted: Option<u64>,
    /// Steal requests that were refused, or not answered in time.
    pub steals_refused: Option<u64>,
    /// The jobs that are running and that this controller works for.
    pub jobs: Vec<JobSeen>,
    /// Jobs that this controller works for and on which no member works yet.
    pub waiting_jobs: u32,
    /// Open jobs that no offer can serve. They are in neither `jobs` nor `waiting_jobs`: machines would not help them.
    pub unserved: Vec<JobUnserved>,
    /// Members that cannot be read. Each may be the node of a machine that seems to start.
    pub unread_members: u32,
    /// The machines of the connector that are not gone, also those that have been asked for.
    pub machines: Vec<MachineSeen>,
    /// The kinds of machines that may be had.
    pub offers: Vec<OfferSeen>,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSeen {
    /// Its id; a new attempt has the same one.
    pub id: String,
    /// The program, without its version: what earlier jobs of it have needed says something about this one.
    pub program: String,
    /// The estimated share of the search that is done, from 0 to 1.
    pub share: Option<f64>,
    /// The units of work that are done, such as visited states; 0 if the program does not count any. It never falls,
    /// except when a new attempt begins.
    pub work: f64,
    /// The time that workers have spent on tasks of the job, on all members that ever worked on it.
    pub busy_ns: u64,
    /// The time that workers of the job have been without a task.
    pub idle_ns: u64,
    /// When it began to be worked on.
    pub began_ms: u64,
}

/// An open job that no offer can serve.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUnserved {
    /// Its id.
    pub id: String,
    /// What it needs, and why the offers do not have it.
    pub reason: String,
}

/// A machine of the connector.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSeen {
    /// Its id, or that of the request it comes from as long as it has none.
    pub id: String,
    /// The name of its offer.
    pub offer: String,
    /// What it does.
    pub state: MachineState,
    /// Whether it is there, or what it waits for.
    pub place: Place,
    /// When it was asked for; if that is not known, now: the policy remembers the earliest time that it was told.
    pub requested_ms: u64,
    /// Since when it is billed; `None` if that is not known, then it is taken to be billed since it was asked for. What
    /// is not there is not billed, whatever stands here.
    pub billed_since_ms: Option<u64>,
    /// When its node became a member.
    pub joined_ms: Option<u64>,
    /// The workers of its node; 0 as long as it is not a member.
    pub workers: u32,
    /// Whether it was announced that it will be taken away.
    pub noticed: bool,
    /// Whether it can run none of the jobs, although there are some. It leaves once its paid time ends.
    pub unsuited: bool,
    /// Whether its node leads the cluster.
    pub leader: bool,
    /// The zone that it is in.
    pub zone: Option<String>,
}

/// The state of a machine, as the controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It was asked for, or boots; its node is not a member.
    #[default]
    Starting,
    /// Its node is a member that is not leaving.
    Working,
    /// Its node leaves, or the machine is being ended.
    Leaving,
}

/// Whether a machine is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// It is there, and billed.
    #[default]
    There,
    /// Its connector lists it, but it waits for its place, such as a job in a queue.
    Queued,
    /// It was asked for, and no connector lists it yet.
    Asked,
}

/// A kind of machine that may be had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferSeen {
    /// Its name.
    pub name: String,
    /// The workers of a node on such a machine.
    pub workers: u32,
    /// The price of an hour.
    pub price_per_hour: Option<f64>,
    /// The time that is billed as a whole.
    pub quantum_ms: u64,
    /// The least time that is billed.
    pub minimum_ms: u64,
    /// The most machines of this kind at a time.
    pub max: u32,
    /// Whether the machines may be taken away at any time.
    pub spot: bool,
    /// How often an hour such a machine is taken away, if that is known.
    pub losses_per_hour: Option<f64>,
    /// The time between the notice and the loss, if such machines are announced to go.
    pub notice_ms: Option<u64>,
    /// The time from the request to the first work, as the connector's file says it.
    pub start_ms: u64,
    /// Whether none is to be had at the moment: the offer was refused, and it is not time to try again.
    pub refused: bool,
    /// Whether its machines can run none of the jobs, although there are some. None is started.
    pub unsuited: bool,
}

impl Default for OfferSeen {
    /// One worker, billed by the second, and a minute to start.
    fn default() -> Self {
        Self {
            name: String::new(),
            workers: 1,
            price_per_hour: None,
            quantum_ms: 1_000,
            minimum_ms: 0,
            max: u32::MAX,
            spot: false,
            losses_per_hour: None,
            notice_ms: None,
            start_ms: 60_000,
            refused: false,
            unsuited: false,
        }
    }
}
