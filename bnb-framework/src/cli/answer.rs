//! The output of a search's result: verified, as text and as JSON.

use std::fmt::Write as _;

use indicatif::HumanCount;
use serde_json::{Value, json};
use taskwork::display::Cell;
use taskwork_cli::{Failure, Shown};

use super::{
    DisplaySolution,
    progress::{displayed, log_values},
};
use crate::{
    incumbent::Best,
    options::Options,
    solver::{End, Solved},
};

/// Verifies a result, and formats it.
///
/// # Errors
/// Fails if a solution is invalid, or has another cost.
pub fn shown<P: DisplaySolution>(
    problem: &P,
    solved: &Solved<P>,
    options: &Options<P::Cost>,
) -> Result<Shown, Failure> {
    for one in solved.best.iter().chain(&solved.collected) {
        check(problem, one)?;
    }
    let shown = Shown::new(text(problem, solved, options), as_json(problem, solved), solved.is_complete());
    Ok(shown.with_columns(last_log_values(problem, solved)))
}

/// Returns the values in the last line of the log.
fn last_log_values<P: DisplaySolution>(problem: &P, solved: &Solved<P>) -> Vec<Option<Cell>> {
    let best = solved.best.as_ref().map(|best| displayed(problem, best.cost));
    let bound = solved.bound.map(|bound| displayed(problem, bound));
    log_values(best.as_deref(), bound.as_deref(), solved.gap())
}

fn check<P: DisplaySolution>(problem: &P, one: &Best<P::Cost, P::Solution>) -> Result<(), Failure> {
    let cost = problem.cost_of(&one.solution);
    if cost == Some(one.cost) {
        return Ok(());
    }
    let (name, said) = (P::COST, one.cost);
    let really = cost.map_or_else(|| "no solution".to_owned(), |cost| format!("of {name} {cost:?}"));
    Err(Failure::failed(format!(
        "{:?} was found with {name} {said:?}, but is {really}: a mistake in the program",
        one.solution
    )))
}

fn text<P: DisplaySolution>(problem: &P, solved: &Solved<P>, options: &Options<P::Cost>) -> String {
    let mut text = String::new();
    let width =
        [P::COST, P::SOLUTION, "solutions", "states"].map(str::len).into_iter().max().unwrap_or(0) + 2;
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:width$}{value}");
    };
    match &solved.best {
        Some(best) => {
            row(P::COST, &format!("{}, {}", problem.show_cost(best.cost).0, quality(problem, solved)));
            row(P::SOLUTION, &problem.show(&best.solution).0);
        }
        None => row(P::SOLUTION, &nothing(problem, solved, options)),
    }
    if options.collect.is_some() {
        let all = if solved.collected_all { "" } else { "; there may be more" };
        row("solutions", &format!("{} collected{all}", solved.collected.len()));
        for one in &solved.collected {
            row("", &format!("{}: {}", problem.show_cost(one.cost).0, problem.show(&one.solution).0));
        }
    }
    let seconds = solved.elapsed.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = (solved.figures.worked as f64 / seconds.max(1e-6)) as u64;
    // The states of a continued search include those of earlier runs; the time and the figures do not.
    let rate = if rate > 0 { format!(", {}/s", HumanCount(rate)) } else { String::new() };
    let (states, pruned) = (HumanCount(solved.states), HumanCount(solved.pruned));
    let run = if solved.end == End::Suspended { " in this run" } else { "" };
    row("states", &format!("{states} visited{run}, {pruned} pruned; {seconds:.3} s{rate}"));
    text
}

/// Returns how good the best solution is known to be.
fn quality<P: DisplaySolution>(problem: &P, solved: &Solved<P>) -> String {
    let bound = solved.bound.map(|bound| {
        let gap = solved.gap().map_or_else(String::new, |gap| format!(", a gap of {:.2} %", 100.0 * gap));
        format!("nothing is better than {}{gap}", problem.show_cost(bound).0)
    });
    let bound = bound.unwrap_or_else(|| "nothing is proven".to_owned());
    let best = solved.best.as_ref().map(|best| best.cost);
    match solved.end {
        End::Proven if solved.bound == best => "proven: nothing is better".to_owned(),
        End::Proven => format!("good enough: {bound}"),
        End::Target => "which meets the target".to_owned(),
        End::StateLimit => format!("best so far, at the limit of states: {bound}"),
        End::TimeLimit => format!("best so far, at the limit of time: {bound}"),
        End::Stopped => "best so far: the search was stopped".to_owned(),
        End::Incomplete => "the best of what was searched: parts were set aside".to_owned(),
        End::Suspended => "best so far: the search is suspended".to_owned(),
    }
}

/// Returns the message if there is no solution.
fn nothing<P: DisplaySolution>(problem: &P, solved: &Solved<P>, options: &Options<P::Cost>) -> String {
    let sought = match (options.target, options.cutoff) {
        (Some(target), _) => format!(" as good as {}", problem.show_cost(target).0),
        (None, Some(cutoff)) => format!(" better than {}", problem.show_cost(cutoff).0),
        (None, None) => String::new(),
    };
    match solved.end {
        End::Proven | End::Target => format!("there is none{sought}: proven"),
        End::StateLimit => format!("none{sought} was found within the limit of states"),
        End::TimeLimit => format!("none{sought} was found within the limit of time"),
        End::Stopped => format!("none{sought} was found until the search was stopped"),
        End::Incomplete => format!("there is none{sought} in what was searched, but parts were set aside"),
        End::Suspended => format!("none{sought} was found until the search was suspended"),
    }
}

fn as_json<P: DisplaySolution>(problem: &P, solved: &Solved<P>) -> Value {
    let one = |one: &Best<P::Cost, P::Solution>| {
        let mut object = serde_json::Map::new();
        object.insert(P::COST.to_owned(), problem.show_cost(one.cost).1);
        object.insert(P::SOLUTION.to_owned(), problem.show(&one.solution).1);
        object
    };
    let none = || [P::COST, P::SOLUTION].map(|name| (name.to_owned(), Value::Null)).into_iter().collect();
    let mut object = solved.best.as_ref().map_or_else(none, one);
    let more = json!({
        "proven": solved.proven,
        "end": solved.end.to_string(),
        "bound": solved.bound.map(|bound| problem.show_cost(bound).1),
        "gap": solved.gap(),
        "collected": solved.collected.iter().map(one).collect::<Vec<_>>(),
        "collected_all": solved.collected_all,
        "states": solved.states,
        "pruned": solved.pruned,
        "seconds": solved.elapsed.as_secs_f64(),
        "figures": solved.figures,
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}
