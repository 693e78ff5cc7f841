//! The goals and the decisions of the policy.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// The user's goals. They count nodes; each machine of the connector runs one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Goals {
    /// The minimum number of nodes. They also run when there is no job, as long as the budget pays for them.
    pub min: u32,
    /// The maximum number of nodes.
    pub max: u32,
    /// The deadline of the jobs, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// The maximum money to spend on machines, counted from the time the controller first ran with this budget for
    /// these jobs.
    pub budget: Option<f64>,
    /// The minimum useful share of the time of the last workers added (not the mean), from 0 to 1.
    pub efficiency: Option<f64>,
    /// The price of an hour of delay.
    pub delay_price: Option<f64>,
    /// Whether to suspend the jobs when the budget is spent.
    pub then_suspend: bool,
}

impl Default for Goals {
    /// Up to ten nodes, and no other goal.
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

/// Contradictory or meaningless goals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GoalsError(pub(crate) String);

impl Goals {
    /// Checks that the goals are consistent.
    ///
    /// # Errors
    ///
    /// If a goal is out of its range or contradicts another one; the message names the option.
    pub fn check(&self) -> Result<(), GoalsError> {
        let wrong = |text: String| Err(GoalsError(text));
        if self.min > self.max {
            return wrong(format!("--min {} is more than --max {}", self.min, self.max));
        }
        if self.max == 0 {
            return wrong("--max 0 never starts a node: use at least 1".to_owned());
        }
        for (option, amount) in [("--budget", self.budget), ("--delay-price", self.delay_price)] {
            if let Some(amount) = amount
                && !(amount.is_finite() && amount >= 0.0)
            {
                return wrong(format!("{option} {amount}: expected an amount of money, 0 or more"));
            }
        }
        if let Some(efficiency) = self.efficiency
            && !(0.0..=1.0).contains(&efficiency)
        {
            return wrong(format!("--efficiency {efficiency}: expected a share from 0 to 1, such as 0.8"));
        }
        if self.then_suspend && self.budget.is_none() {
            return wrong("--then suspend takes effect when the budget is spent: add --budget".to_owned());
        }
        Ok(())
    }
}

/// A decision about the number of machines.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// The number of machines of each offer, including those that start and excluding those that leave. An offer that
    /// is not listed gets none.
    pub wanted: BTreeMap<String, u32>,
    /// The ids of the machines that leave now, the first victim first. They are not in `wanted`. Further victims are
    /// chosen in the order of [`victims`](super::victims).
    pub leave: Vec<String>,
    /// The reason, in one sentence for users.
    pub reason: String,
    /// The bound that cannot be kept, and is broken as little as possible.
    pub broken: Option<Bound>,
    /// The sizes that were compared, from few nodes to many.
    pub table: Vec<Candidate>,
    /// Whether to suspend the jobs, since the budget is spent.
    pub suspend: bool,
    /// The money spent so far; `None` if the price of a machine is unknown.
    pub spent: Option<f64>,
    /// The time from which spending is counted, in milliseconds since 1970.
    pub spent_since_ms: Option<u64>,
}

impl Decision {
    /// Returns the total number of machines wanted.
    pub fn nodes(&self) -> u32 {
        self.wanted.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// A bound set by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The budget.
    Budget,
    /// The deadline of the jobs.
    Deadline,
    /// The efficiency of the workers.
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

/// A possible size of the cluster, with its forecast.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Candidate {
    /// The number of machines.
    pub nodes: u32,
    /// The workers on all members then, including members that no connector has started.
    pub workers: u32,
    /// The 10 % and 90 % quantiles of the forecast end of the jobs, in milliseconds since 1970. `None` if it is too
    /// early for an estimate.
    pub finish_ms: Option<(u64, u64)>,
    /// The expected spending by then; `None` if the time or a price is unknown.
    pub cost: Option<f64>,
    /// The expected useful share of the workers' time, on average; not the marginal share that [`Goals::efficiency`]
    /// bounds.
    pub efficiency: Option<f64>,
    /// Whether the cluster has this size now.
    pub now: bool,
    /// Disadvantages, or the difference to other sizes; may be empty.
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_goals_are_refused_by_option() {
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
