//! Mistakes of a problem that a search notices by itself: a bound that a solution contradicts, and costs that are not
//! numbers.
//!
//! All of this happens when a solution is found, which is rare. A search does not look for mistakes otherwise;
//! [`check`](crate::check()) does.

use std::{any::Any, panic::resume_unwind};

use serde::Serialize;

use crate::{cost::Cost, frontier::Frontier, problem::Problem, tree::is_in_place};

/// The difference between floating-point costs that may be due to rounding, as a share of the greater one.
const ROUNDING: f64 = 1e-9;
/// The number of bounds that a search compares with solutions at least, and the number of states for each further one.
const COMPARED_FIRST: u64 = 256;
const STATES_PER_COMPARED: u64 = 64;
/// The maximum length of a state in a message, in characters.
const STATE_CHARS_MAX: usize = 600;

/// Returns whether to compare a solution with all bounds above it, given the numbers of comparisons and states so far:
/// comparisons must cost only a small share of the search, even if solutions improve at every step.
pub(crate) fn may_compare(compared: u64, states: u64) -> bool {
    compared < COMPARED_FIRST + states / STATES_PER_COMPARED
}

/// Returns whether a solution of this cost cannot be below a state with this bound.
pub(crate) fn contradicts<P: Problem>(cost: P::Cost, bound: P::Cost) -> bool {
    if !P::GOAL.better(&cost, &bound) {
        return false;
    }
    let is_discrete = cost.next_worse(P::GOAL).is_some();
    match (cost.as_number(), bound.as_number()) {
        (Some(cost), Some(bound)) if !is_discrete => {
            (cost - bound).abs() > ROUNDING * cost.abs().max(bound.abs())
        }
        _ => true,
    }
}

/// Formats a state in its serialised form, since it need not have another; shortened if it is long.
pub(crate) fn state_text<S: Serialize>(state: &S) -> String {
    // Some states have no JSON form, such as a map with pairs as keys.
    let Ok(text) = serde_json::to_string(state) else { return "not printable".to_owned() };
    match text.char_indices().nth(STATE_CHARS_MAX) {
        Some((end, _)) => format!("{} … ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Continues a panic of the program, with the remedy in its message. The state is in a frame of the recursion, and is gone.
pub(crate) fn resume_with_remedy(panic: Box<dyn Any + Send>) -> ! {
    let Some(said) = panic_text(&*panic) else { resume_unwind(panic) };
    let said = said.trim_end_matches('.');
    resume_unwind(Box::new(format!(
        "{said} (bnb_framework::check, or the program's command check, names the state)"
    )))
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

/// Describes a solution that is better than the bound of a state above it.
pub(crate) fn not_a_bound<P: Problem>(cost: P::Cost, bound: P::Cost, state: &P::State) -> String {
    format!(
        "a solution of cost {cost:?} was found below a state whose bound is {bound:?}: bound() is not a bound. The \
         state: {}",
        state_text(state)
    )
}

/// Describes a solution that is better than the bound of the whole tree, or of a part of it.
pub(crate) fn not_a_bound_of_all<P: Problem>(cost: P::Cost, bound: P::Cost, all: &str) -> String {
    format!(
        "a solution of cost {cost:?} was found, but the bound of {all} is {bound:?}: bound() is not a bound, or the \
         cost of the solution is wrong"
    )
}

pub(crate) fn not_a_number<P: Problem>(function: &str, state: &P::State) -> String {
    format!(
        "{function}() returned a cost that is not a number (NaN): prefer NotNan to OrderedFloat, since it reports the \
         place of the computation. The state: {}",
        state_text(state)
    )
}

impl<P: Problem> Frontier<P> {
    /// Compares a new solution with the bounds of the states above it, which form the frontier. Returns the mistake,
    /// if there is one, and the number of bounds that were computed.
    ///
    /// If children are in place, the states above no longer know their bounds.
    pub(crate) fn compare_with_path(&self, problem: &P, cost: P::Cost) -> (Option<String>, u64) {
        let mut bounds = 0;
        if is_in_place::<P>() {
            return (None, bounds);
        }
        for level in (0..self.levels()).rev() {
            let Some(mut state) = self.state_at(problem, level) else { continue };
            bounds += 1;
            if let Some(bound) = (P::HOOKS.quick_bound)(problem, &mut state, None)
                && contradicts::<P>(cost, bound)
            {
                return (Some(not_a_bound::<P>(cost, bound, &state)), bounds);
            }
        }
        (None, bounds)
    }
}
