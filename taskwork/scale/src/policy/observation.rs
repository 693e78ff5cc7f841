//! The input of the policy, every few seconds and after events.
//!
//! Times are milliseconds since 1970 by the controller's clock, money is in the one currency of the connector's file.
//! Unknown values are `None`, never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taskwork::display::WorkAhead;

/// A cluster at one time, with its jobs, its machines and the offers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observation {
    /// The time of the observation.
    pub at_ms: u64,
    /// The workers of all members that are not leaving, including members that no connector has started.
    pub workers: u32,
    /// The workers with a task.
    pub busy: Option<u32>,
    /// The workers without a task for which none is queued.
    pub hungry: Option<u32>,
    /// The queued tasks of all members.
    pub queued: Option<u64>,
    /// The tasks in the global task lists of the jobs.
    pub open_tasks: Option<u64>,
    /// Steal requests that were answered with tasks since the members started.
    pub steals_granted: Option<u64>,
    /// Steal requests that were refused, or not answered in time.
    pub steals_refused: Option<u64>,
    /// The running jobs that this controller works for.
    pub jobs: Vec<JobSeen>,
    /// The number of jobs that this controller works for and that no member works on yet.
    pub waiting_jobs: u32,
    /// Open jobs that no offer can serve. They are in neither `jobs` nor `waiting_jobs`, since machines would not
    /// help them.
    pub unserved: Vec<JobUnserved>,
    /// The number of members that cannot be read. Each may be the node of a machine that seems to start.
    pub unread_members: u32,
    /// The machines of the connector that are not gone, including requested ones.
    pub machines: Vec<MachineSeen>,
    /// The available kinds of machines.
    pub offers: Vec<OfferSeen>,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSeen {
    /// Its id, which new attempts keep.
    pub id: String,
    /// The program without its version: earlier jobs of a program give estimates for later ones.
    pub program: String,
    /// The estimated share of the search that is complete, from 0 to 1.
    pub share: Option<f64>,
    /// The completed units of work, such as visited states; 0 if the program does not count any. It falls only when a
    /// new attempt starts.
    pub work: f64,
    /// The time that workers of all members have spent on tasks of the job.
    pub busy_ns: u64,
    /// The time that workers of the job have been without a task.
    pub idle_ns: u64,
    /// The time of its submission.
    pub began_ms: u64,
    /// The work ahead that its framework reports; `None` if it does not. It replaces the estimates from the share and from
    /// idle workers.
    pub ahead: Option<WorkAhead>,
}

/// An open job that no offer can serve.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUnserved {
    /// Its id.
    pub id: String,
    /// Its requirements, and why the offers do not meet them.
    pub reason: String,
}

/// A machine of the connector.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSeen {
    /// Its id, or one derived from its request while it has none.
    pub id: String,
    /// The name of its offer.
    pub offer: String,
    /// Its state.
    pub state: MachineState,
    /// Whether it exists, or where it waits.
    pub place: Place,
    /// The time of the request; if unknown, the present time: the policy remembers the earliest time reported.
    pub requested_ms: u64,
    /// The time from which it is billed; if `None`, it is billed from the time of the request. A machine that does
    /// not exist yet is not billed, whatever this value is.
    pub billed_since_ms: Option<u64>,
    /// The time at which its node joined.
    pub joined_ms: Option<u64>,
    /// The workers of its node; 0 before the node has joined.
    pub workers: u32,
    /// Whether there is a preemption notice for it.
    pub noticed: bool,
    /// Whether it can run none of the jobs although there are some. It leaves when its paid time ends.
    pub unsuited: bool,
    /// Whether its node leads a job.
    pub leader: bool,
    /// Its zone.
    pub zone: Option<String>,
}

/// The state of a machine, as the controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It was requested, or boots; its node is not a member.
    #[default]
    Starting,
    /// Its node is a member, and is not leaving.
    Working,
    /// Its node leaves, or the machine is being terminated.
    Leaving,
}

/// Whether a machine exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// It exists, and is billed.
    #[default]
    There,
    /// Its connector lists it, but it is queued, such as a batch job.
    Queued,
    /// It was requested, and no connector lists it yet.
    Asked,
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferSeen {
    /// Its name.
    pub name: String,
    /// The workers of a node on such a machine.
    pub workers: u32,
    /// The price of an hour.
    pub price_per_hour: Option<f64>,
    /// The quantum of billing.
    pub quantum_ms: u64,
    /// The minimum billed time.
    pub minimum_ms: u64,
    /// The maximum number of machines at a time.
    pub max: u32,
    /// Whether the provider may take the machines away at any time.
    pub spot: bool,
    /// The rate at which machines are taken away, per hour, if known.
    pub losses_per_hour: Option<f64>,
    /// The time between the preemption notice and the loss, if there are notices.
    pub notice_ms: Option<u64>,
    /// The time from the request to the first work, as the connector's file specifies it.
    pub start_ms: u64,
    /// Whether the offer was refused, and the pause after that is not over.
    pub refused: bool,
    /// Whether its machines can run none of the jobs although there are some. None is started.
    pub unsuited: bool,
    /// The memory of its machines, in bytes; `None` if unknown, which satisfies any demand.
    pub memory_bytes: Option<u64>,
    /// The labels of nodes on its machines.
    pub labels: BTreeMap<String, String>,
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
            memory_bytes: None,
            labels: BTreeMap::new(),
        }
    }
}
