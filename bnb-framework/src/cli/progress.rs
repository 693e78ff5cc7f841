//! The progress of a search: in one line, and in the columns of the log.

use std::fmt::Write as _;

use indicatif::{HumanCount, HumanDuration};
use serde_json::Value;
use taskwork::display::{Cell, Unit};
use taskwork_cli::{LogColumn, ProgressDisplay};

use super::DisplaySolution;
use crate::{cost::Cost, problem::Problem, solver::Progress};

/// The unit of work of a search.
const UNIT: &str = "states";

/// Returns the progress display of a search, with unformatted costs.
pub(super) fn display<P: Problem>() -> ProgressDisplay {
    ProgressDisplay::new(line::<P>).unit(UNIT).columns(columns(), |progress| {
        let progress = Progress::<P>::from_progress(progress);
        log_values(progress.best.map(plain).as_deref(), progress.bound, progress.gap)
    })
}

/// Returns the progress display of a search, with costs as the problem displays them.
pub(super) fn display_of<P: DisplaySolution>(problem: P) -> ProgressDisplay {
    let unit = problem.unit();
    ProgressDisplay::new(line::<P>).unit(UNIT).columns(columns(), move |progress| {
        let progress = Progress::<P>::from_progress(progress);
        let best = progress.best.map(|best| displayed(&problem, best));
        log_values(best.as_deref(), progress.bound.map(|bound| bound / unit), progress.gap)
    })
}

/// Returns the columns of the log of a search for the best solution.
fn columns() -> Vec<LogColumn> {
    let (best, bound) = (LogColumn::new("best", Unit::Number, 10), LogColumn::new("bound", Unit::Number, 10));
    vec![best.marked(), bound, LogColumn::new("gap", Unit::Share, 6)]
}

/// Returns the values of the columns of the log: the cost of the best solution, a bound in the same unit that no solution
/// improves on, and the distance between them as a share of the cost.
pub fn log_values(best: Option<&str>, bound: Option<impl Into<Cell>>, gap: Option<f64>) -> Vec<Option<Cell>> {
    vec![best.map(Cell::from), bound.map(Into::into), gap.map(Cell::from)]
}

/// Formats a cost as the problem displays it; if that is a number, without the text around it.
pub(super) fn displayed<P: DisplaySolution>(problem: &P, cost: P::Cost) -> String {
    match problem.show_cost(cost) {
        (_, Value::Number(number)) => number.to_string(),
        (text, _) => text,
    }
}

/// Formats a cost: in its debug form if that is a number, otherwise as the number that it is.
fn plain<C: Cost>(cost: C) -> String {
    let text = format!("{cost:?}");
    let is_number = text.parse::<f64>().is_ok();
    let number = cost.as_number().filter(|_| !is_number);
    number.map_or(text, |number| number.to_string())
}

/// Formats the progress of a search in one line.
pub fn line<P: Problem>(progress: &taskwork::Progress) -> String {
    let progress = Progress::<P>::from_progress(progress);
    let rate = progress.states as f64 / progress.elapsed.as_secs_f64().max(1e-3);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = HumanCount(rate as u64);
    let mut best =
        progress.best.map_or_else(|| "nothing found yet".to_owned(), |best| format!("best {best:?}"));
    if let Some(bound) = progress.bound {
        let gap = progress.gap.map_or_else(String::new, |gap| format!(" (gap {:.2} %)", 100.0 * gap));
        let _ = write!(best, ", bound {bound}{gap}");
    }
    let share =
        progress.share.map_or_else(String::new, |share| format!(", about {:.1} % done", 100.0 * share));
    format!(
        "{best}{share}; {} states, {rate}/s; {} tasks, {} steals; {}",
        HumanCount(progress.states),
        HumanCount(progress.figures.tasks),
        HumanCount(progress.figures.steals),
        HumanDuration(progress.elapsed),
    )
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use ordered_float::OrderedFloat;

    use super::*;

    #[test]
    fn displayed_cost_is_reduced_to_number_if_possible() {
        assert_eq!(plain(u64::MAX), "18446744073709551615", "no digit is lost");
        assert_eq!(plain(OrderedFloat(1.5)), "1.5");
        assert_eq!(plain(Reverse(7_u32)), "7");
    }
}
