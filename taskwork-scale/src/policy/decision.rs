//! What the policy is to reach, and what it decides.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// What the user wants. `nodes` are machines of the connector, each with one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Goals {
    /// The least number of nodes, also without a job.
    pub min: u32,
    /// The most nodes.
    pub max: u32,
    /// When the jobs are to be finished, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// The most money to be spent on machines, from the time the controller first ran with this budget for these jobs.
    pub budget: Option<f64>,
    /// The least share of its work for which each further worker counts, from 0 to 1.
    pub efficiency: Option<f64>,
    /// What an hour costs in which the result is not there yet.
    pub delay_price: Option<f64>,
    /// Whether the jobs are to be suspended when the budget is spent.
    pub then_suspend: bool,
}

impl Default for Goals {
    /// Up to ten nodes, as fast as they go.
    fn default() -> Self {
        Self {
            min: 0,
            max: 10,
            deadline_ms: None,
            budget: None,
            efficiency: None,
            delay_price: None,
            then_suspend: false,
        }
    }
}

/// Goals that nothing can reach, or that are no numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GoalsError(pub(crate) String);

impl Goals {
    /// Checks that the goals make sense, whatever the cluster is like.
    ///
    /// # Errors
    ///
    /// What is wrong, and with which option it was said.
    pub fn check(&self) -> Result<(), GoalsError> {
        let wrong = |text: String| Err(GoalsError(text));
        if self.min > self.max {
            return wrong(format!("--min {} is more than --max {}", self.min, self.max));
        }
        if self.max == 0 {
            return wrong("--max 0 never starts a node: say at least 1".to_owned());
        }
        for (option, amount) in [("--budget", self.budget), ("--delay-price", self.delay_price)] {
            if let Some(amount) = amount
                && !(amount.is_finite() && amount >= 0.0)
            {
                return wrong(format!("{option} {amount}: say an amount of money, 0 or more"));
            }
        }
        if let Some(efficiency) = self.efficiency
            && !(0.0..=1.0).contains(&efficiency)
        {
            return wrong(format!("--efficiency {efficiency}: say a share from 0 to 1, such as 0.8"));
        }
        if self.then_suspend && self.budget.is_none() {
            return wrong("--then suspend says what to do when the budget is spent: add --budget".to_owned());
        }
        Ok(())
    }
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// How many machines there are to be of each offer, those included that start and those excluded that leave. An
    /// offer that is not named gets none.
    pub wanted: BTreeMap<String, u32>,
    /// The machines that are to leave now, by id, the first one first. They are not in `wanted`. Whoever has to end
    /// more than these takes them in the order of [`victims`](super::victims).
    pub leave: Vec<String>,
    /// Why, in one sentence for people.
    pub reason: String,
    /// The bound that cannot be kept, and is broken as little as possible.
    pub broken: Option<Bound>,
    /// The sizes that were compared, from few nodes to many.
    pub table: Vec<Candidate>,
    /// Whether the jobs are to be suspended: the budget is spent.
    pub suspend: bool,
    /// What has been spent so far; `None` if a machine has no known price.
    pub spent: Option<f64>,
    /// Since when, in milliseconds since 1970.
    pub spent_since_ms: Option<u64>,
}

impl Decision {
    /// The number of machines that are wanted.
    pub fn nodes(&self) -> u32 {
        self.wanted.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// A bound that the user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The money to be spent.
    Budget,
    /// When the jobs are to be finished.
    Deadline,
    /// How well the workers are to be used.
    Efficiency,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Efficiency => "efficiency",
        })
    }
}

/// A size that the cluster could have, and what is expected of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Candidate {
    /// The number of machines.
    pub nodes: u32,
    /// The workers on all members then, also on those that no connector has started.
    pub workers: u32,
    /// When the jobs are finished: not earlier than the first time and not later than the second one in 8 of 10 cases,
    /// in milliseconds since 1970. `None` if it is too early to say.
    pub finish_ms: Option<(u64, u64)>,
    /// What will have been spent by then, as expected; `None` if the time or a price is not known.
    pub cost: Option<f64>,
    /// The share of its time in which a worker is expected to be useful.
    pub efficiency: Option<f64>,
    /// Whether the cluster has this size now.
    pub now: bool,
    /// What speaks against it, or distinguishes it; may be empty.
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_that_make_no_sense_are_named() {
        let wrong = |goals: Goals| goals.check().unwrap_err().to_string();
        let goals = Goals::default;
        assert_eq!(goals().check(), Ok(()));
        assert!(wrong(Goals { min: 5, max: 3, ..goals() }).contains("--min 5"));
        assert!(wrong(Goals { max: 0, ..goals() }).contains("--max 0"));
        assert!(wrong(Goals { budget: Some(-1.0), ..goals() }).contains("--budget -1"));
        assert!(wrong(Goals { delay_price: Some(f64::NAN), ..goals() }).contains("--delay-price NaN"));
        assert!(wrong(Goals { efficiency: Some(80.0), ..goals() }).contains("0.8"));
        assert!(wrong(Goals { then_suspend: true, ..goals() }).contains("--budget"));
    }
}
