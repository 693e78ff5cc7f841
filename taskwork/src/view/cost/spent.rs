//! What was spent, as people see it: on a cluster as a whole, in each hour, on nodes with a label, on a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::tracked::Changes;

/// Amounts of money by their currencies. They are never added up over currencies; what is not known has none.
pub type Money = BTreeMap<String, f64>;

/// What nodes have spent: their time, each node's once however many workers it has, and money.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Spent {
    /// The time for which nodes were members, in milliseconds. What is not in the next three they were idle.
    pub node_ms: u64,
    /// The part of it in which they had tasks: that of a node half of whose workers had some counts half.
    #[serde(skip_serializing_if = "is_none")]
    pub busy_ms: u64,
    /// The part of it in which they had no task of a job yet that they took part in.
    #[serde(skip_serializing_if = "is_none")]
    pub starting_ms: u64,
    /// The part of it in which they were leaving.
    #[serde(skip_serializing_if = "is_none")]
    pub draining_ms: u64,
    /// The part of it that is not in the money, because the nodes have no price.
    #[serde(skip_serializing_if = "is_none")]
    pub unpriced_ms: u64,
    /// What the rest of it has cost.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub money: Money,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(ms: &u64) -> bool {
    *ms == 0
}

/// What a job has spent: the time for which workers of nodes were there for it, as the nodes report it. That of before
/// it was observed is among it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct JobCost {
    /// Time and money; nothing of it is draining.
    #[serde(flatten)]
    pub spent: Spent,
    /// What an hour of the nodes costs that are at work on it now. Of a node that works on several jobs each has an equal
    /// part.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub an_hour: Money,
    /// The number of nodes that have worked on it.
    pub nodes: u32,
    /// Those of them that have no price, as far as is known: those that were never seen are among them.
    pub unpriced: u32,
    /// Those of them that were never seen as members: they are not in the time either.
    pub unseen: u32,
}

/// What a cluster has spent since it was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Costs {
    /// The cluster as a whole.
    pub about: CostsAbout,
    /// What was spent in each hour, by its number since 1970; the latest, at most 31 days of them.
    pub hours: BTreeMap<String, Spent>,
    /// What was spent on nodes with a label, such as `zone=a`. Of a label with many values the rest is under `name=…`.
    pub labels: BTreeMap<String, Spent>,
}

/// What a cluster as a whole has spent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct CostsAbout {
    /// Since when it was observed, in milliseconds since 1970 by the observer's clock; `None` if it was not yet.
    pub since_ms: Option<u64>,
    /// What was spent since then.
    pub total: Spent,
    /// What an hour of the present members costs.
    pub an_hour: Money,
    /// The number of members that work on jobs.
    pub nodes: u32,
    /// Those of them that have no price.
    pub unpriced: u32,
    /// What is wrong with labels that were to name a price, at most 20.
    pub warnings: Vec<String>,
}

/// What has changed in the costs of a cluster.
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
    /// Returns the time in which nodes had nothing to do.
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
    /// Returns whether any of the nodes was seen as a member. Otherwise nothing is known of its time and its price, which
    /// are 0 here.
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
