//! Displaying solutions and costs, and parsing costs.

use serde_json::{Value, json};

use crate::problem::Problem;

/// A problem with displayable solutions. It must compute the [cost](Problem::cost_of) of a solution, since
/// solutions are verified before they are displayed.
pub trait DisplaySolution: Problem + Clone {
    /// The name of the cost, such as `length` or `profit`: one word, also used as a key in JSON.
    const COST: &'static str;
    /// The name of a solution, such as `tour` or `items`, likewise.
    const SOLUTION: &'static str;

    /// Formats a solution as text and as JSON. By default in its debug form and in its serialised form.
    fn show(&self, solution: &Self::Solution) -> (String, Value) {
        (format!("{solution:?}"), json!(solution))
    }

    /// Formats a cost, likewise.
    fn show_cost(&self, cost: Self::Cost) -> (String, Value) {
        (format!("{cost:?}"), json!(cost))
    }

    /// Parses a cost as given by a user, in the form of [`show_cost`](Self::show_cost). By default as JSON.
    fn read_cost(&self, text: &str) -> Option<Self::Cost> {
        serde_json::from_str(text).ok()
    }

    /// Returns the cost that a displayed difference of 1 stands for.
    fn unit(&self) -> f64 {
        1.0
    }
}
