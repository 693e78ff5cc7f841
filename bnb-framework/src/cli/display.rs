//! What is shown of a problem's solutions and costs, and how a cost is read.

use serde_json::{Value, json};

use crate::problem::Problem;

/// A problem whose solutions can be shown. It must say what a solution [costs](Problem::cost_of): what is
/// shown was checked.
pub trait DisplaySolution: Problem + Clone {
    /// What its cost is called: `length`, `profit`. One word, a key in JSON too.
    const COST: &'static str;
    /// What a solution is called: `tour`, `items`. Likewise.
    const SOLUTION: &'static str;

    /// A solution as people like to read it, and as JSON. By default as it is.
    fn show(&self, solution: &Self::Solution) -> (String, Value) {
        (format!("{solution:?}"), json!(solution))
    }

    /// A cost, likewise.
    fn show_cost(&self, cost: Self::Cost) -> (String, Value) {
        (format!("{cost:?}"), json!(cost))
    }

    /// A cost as a user gives it: what [`show_cost`](Self::show_cost) shows. By default as it is in JSON.
    fn read_cost(&self, text: &str) -> Option<Self::Cost> {
        serde_json::from_str(text).ok()
    }

    /// How much of the cost is a difference of 1 as it is shown.
    fn unit(&self) -> f64 {
        1.0
    }
}
