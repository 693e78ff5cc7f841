//! Spent time and money, for display: of a cluster, per hour, per label, per job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::tracked::Changes;

/// Amounts of money by currency. They are never added up across currencies; unknown amounts are absent.
pub type Money = BTreeMap<String, f64>;

/// The time of nodes, each counted once regardless of its number of workers, and money.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Spent {
    /// The time as members, in milliseconds. The nodes were idle for the time not in the next three fields.
    pub node_ms: u64,
    /// The part in which they had tasks: a node with tasks for half of its workers counts half.
    #[serde(skip_serializing_if = "is_none")]
    pub busy_ms: u64,
    /// The part in which they took part in a job and had no task of it yet.
    #[serde(skip_serializing_if = "is_none")]
    pub starting_ms: u64,
    /// The part in which they were leaving.
    #[serde(skip_serializing_if = "is_none")]
    pub draining_ms: u64,
    /// The part that is not in `money`, because the nodes have no price.
    #[serde(skip_serializing_if = "is_none")]
    pub unpriced_ms: u64,
    /// The cost of the remaining time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub money: Money,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(ms: &u64) -> bool {
    *ms == 0
}

/// The cost of a job: the time of workers in its pools, as reported by the nodes, including the time before the
/// observation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct JobCost {
    /// Time and money; never draining.
    #[serde(flatten)]
    pub spent: Spent,
    /// The cost per hour of the nodes that currently work on it. A node that works on several jobs is divided evenly
    /// among them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub an_hour: Money,
    /// The number of nodes that have worked on it.
    pub nodes: u32,
    /// The number of its nodes without a known price, including nodes that were never seen.
    pub unpriced: u32,
    /// The number of its nodes that were never seen as members: their time is not included either.
    pub unseen: u32,
}

/// The costs of a cluster during the observation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Costs {
    /// The cluster as a whole.
    pub about: CostsAbout,
    /// The costs in each hour, by its number since 1970; the latest, at most 31 days.
    pub hours: BTreeMap<String, Spent>,
    /// The costs of nodes with a label, such as `zone=a`. Surplus values of a label are combined under `name=…`.
    pub labels: BTreeMap<String, Spent>,
}

/// The total costs of a cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct CostsAbout {
    /// The start of the observation, in milliseconds since 1970 by the observer's clock; `None` before the start.
    pub since_ms: Option<u64>,
    /// The total since then.
    pub total: Spent,
    /// The cost per hour of the current members.
    pub an_hour: Money,
    /// The number of members that work on jobs.
    pub nodes: u32,
    /// The number of such members without a price.
    pub unpriced: u32,
    /// The errors in price labels, at most 20.
    pub warnings: Vec<String>,
}

/// The changes of the costs of a cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CostsDelta {
    /// The cluster as a whole.
    pub about: CostsAbout,
    /// The hours.
    pub hours: Changes<Spent>,
    /// The labels.
    pub labels: Changes<Spent>,
}

impl Spent {
    /// Returns the time in which nodes were idle.
    pub fn idle_ms(&self) -> u64 {
        let Self { node_ms, busy_ms, starting_ms, draining_ms, .. } = *self;
        node_ms.saturating_sub(busy_ms.saturating_add(starting_ms).saturating_add(draining_ms))
    }

    /// Returns the share of the time in which nodes had tasks; `None` if there was no time.
    pub fn busy_share(&self) -> Option<f64> {
        (self.node_ms > 0).then(|| self.busy_ms as f64 / self.node_ms as f64)
    }
}

impl JobCost {
    /// Returns whether any of the nodes was seen as a member. Otherwise its time and price are unknown, and 0
    /// here.
    pub fn is_seen(&self) -> bool {
        self.unseen < self.nodes
    }
}

impl Costs {
    pub(in crate::view) fn apply(&mut self, delta: CostsDelta) {
        self.about = delta.about;
        delta.hours.apply(&mut self.hours);
        delta.labels.apply(&mut self.labels);
    }
}

/// Adds an amount of money.
pub(super) fn pay(money: &mut Money, currency: &str, amount: f64) {
    match money.get_mut(currency) {
        Some(sum) => *sum += amount,
        None => drop(money.insert(currency.to_owned(), amount)),
    }
}
