//! Explanations of decisions for users.

use std::fmt::Write as _;

use super::{
    Bound, Candidate, Decision,
    choose::{Aim, Choice, IN_TIME_HOPE, Judged},
    forecast::Outlook,
};

/// The compared sizes as a table.
pub(super) fn table(outlook: &Outlook<'_>, choice: &Choice) -> Vec<Candidate> {
    let places = 0..choice.judged.len();
    places.map(|place| candidate(outlook, choice, place)).collect()
}

fn candidate(outlook: &Outlook<'_>, choice: &Choice, place: usize) -> Candidate {
    let Judged { size, forecast, .. } = &choice.judged[place];
    let at = |seconds: f64| outlook.seen.at_ms.saturating_add(millis(seconds));
    let is_known = !outlook.is_early && size.workers > 0.0;
    Candidate {
        nodes: size.nodes,
        workers: whole(size.workers),
        finish_ms: is_known.then(|| (at(forecast.takes_s[0]), at(forecast.takes_s[2]))),
        cost: forecast.money.filter(|_| is_known).map(|(money, _)| outlook.spent + money),
        efficiency: (size.workers > 0.0).then_some(forecast.efficiency),
        now: choice.now == Some(place),
        note: note(outlook, choice, place),
    }
}

fn note(outlook: &Outlook<'_>, choice: &Choice, place: usize) -> String {
    let judged = &choice.judged[place];
    let mut notes = Vec::new();
    if let Some(useful) = outlook.useful()
        && judged.size.workers > useful * 1.2
    {
        notes.push(format!("{} keeps only {:.0} workers busy", work(outlook), useful.ceil()));
    }
    for bound in &judged.breaks {
        notes.push(match (bound, judged.forecast.in_time) {
            (Bound::Deadline, Some(in_time)) => {
                format!("deadline met in {:.0} of 100 cases", in_time * 100.0)
            }
            (Bound::Budget, _) => "may exceed the budget".to_owned(),
            (Bound::Efficiency, _) if outlook.goals.efficiency.is_none() => {
                "further workers are less than a third as useful".to_owned()
            }
            (bound, _) => format!("breaks the {bound}"),
        });
    }
    if judged.is_late {
        notes.push("new machines would start too late".to_owned());
    }
    if place == choice.best {
        notes.push("best".to_owned());
    }
    notes.extend(difference(outlook, choice, place));
    notes.join("; ")
}

/// The difference of a size to the present one, such as `40 min earlier, 0.60 more`.
fn difference(outlook: &Outlook<'_>, choice: &Choice, place: usize) -> Option<String> {
    let (now, other) = (&choice.judged[choice.now?], &choice.judged[place]);
    if outlook.is_early || now.size.workers <= 0.0 || other.size.workers <= 0.0 {
        return None;
    }
    let minutes = (now.forecast.takes_s[1] - other.forecast.takes_s[1]) / 60.0;
    let time = match minutes.abs().round() {
        0.0 => return None,
        minutes if minutes < 120.0 => format!("{minutes} min"),
        minutes => format!("{:.1} h", minutes / 60.0),
    };
    let mut text = format!("{time} {}", if minutes > 0.0 { "earlier" } else { "later" });
    if let (Some((now, _)), Some((other, _))) = (now.forecast.money, other.forecast.money) {
        let _ = write!(text, ", {:.2} {}", (other - now).abs(), if other >= now { "more" } else { "less" });
    }
    Some(text)
}

/// Limits that prevent the best number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) is_short: bool,
    /// The maximum number of turns in an hour is reached.
    pub(super) is_turn_too_many: bool,
    /// Ready and running items keep all present machines busy.
    pub(super) is_occupied: bool,
}

/// The reason for a number of machines, and the jobs that do not count.
pub(super) fn reason(
    outlook: &Outlook<'_>,
    choice: Option<&Choice>,
    decision: &Decision,
    target: u32,
    held: Held,
) -> String {
    let mut text = reason_of_number(outlook, choice, decision, target, held);
    if let [first, others @ ..] = &outlook.seen.unserved[..] {
        let _ = write!(text, "; no offer can serve job {}: {}", first.id, first.reason);
        if !others.is_empty() {
            let others = u32::try_from(others.len()).unwrap_or(u32::MAX);
            let _ = write!(text, "; nor {}", count(others, "other job"));
        }
    }
    text
}

fn reason_of_number(
    outlook: &Outlook<'_>,
    choice: Option<&Choice>,
    decision: &Decision,
    target: u32,
    held: Held,
) -> String {
    let nodes = decision.nodes();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{}: ", count(nodes, "node"));
    let Some(choice) = choice else {
        let now = outlook.nodes_now();
        if outlook.seen.offers.is_empty() {
            text.push_str("there is no offer of machines");
            return text;
        }
        let are_unserved = !outlook.seen.unserved.is_empty();
        text.push_str(if are_unserved { "there is no job for the machines" } else { "there is no job" });
        if nodes > outlook.goals.min {
            text.push_str(if target >= now {
                ", but one may arrive before a new machine could start"
            } else {
                "; paid machines stay until their paid time ends"
            });
        }
        return text;
    };
    if held.is_short {
        text.push_str("the rest of the budget does not pay for more");
        text.push_str(&spent(outlook));
        return text;
    }
    let best = choice.best();
    let goal = match (choice.broken, choice.aim) {
        (Some(bound), _) => broken(bound, best),
        (None, Aim::Cost) if outlook.goals.delay_price.is_some() => {
            "has the lowest cost including the delay".to_owned()
        }
        (None, Aim::Cost | Aim::WorkerTime) => "is the cheapest that meets the deadline".to_owned(),
        (None, Aim::Time) => match outlook.goals.efficiency {
            Some(floor) => format!("is the fastest with a useful share of {floor} for each worker"),
            None => "is the fastest that is not wasteful".to_owned(),
        },
    };
    let _ = write!(text, "{} {goal}", best.size.nodes);
    if outlook.is_early {
        text.push_str("; it is too early to estimate the end of the jobs");
    } else if let Some(in_time) = best.forecast.in_time.filter(|_| choice.broken != Some(Bound::Deadline)) {
        let _ = write!(text, "; it meets the deadline in {:.0} of 100 cases", in_time * 100.0);
    }
    text.push_str(&use_of_workers(outlook));
    let now = outlook.nodes_now();
    if nodes != best.size.nodes {
        text.push_str(match nodes.cmp(&now) {
            _ if held.is_turn_too_many => ", but the number has changed direction too often in the last hour",
            std::cmp::Ordering::Greater => ", in steps of at most double plus four",
            std::cmp::Ordering::Equal if best.size.nodes < now && held.is_occupied => {
                ", but the known work occupies the present ones"
            }
            std::cmp::Ordering::Equal if best.size.nodes < now => {
                ", once three rounds agree and paid time is used up"
            }
            std::cmp::Ordering::Equal => ", but the difference is too small",
            std::cmp::Ordering::Less => ", as paid time ends",
        });
    }
    text
}

/// The number of useful workers, and the work that no node can do.
fn use_of_workers(outlook: &Outlook<'_>) -> String {
    let mut text = String::new();
    if let Some(useful) = outlook.useful() {
        let _ = write!(text, "; {} keeps about {:.0} workers busy", work(outlook), useful.ceil());
    }
    if outlook.required() > 0 {
        text.push_str("; some of the machines are for work that no node can do");
    }
    if let [first, others @ ..] = outlook.unplaced() {
        let _ = write!(text, "; work needs {first}, which neither a node nor an available offer has");
        if !others.is_empty() {
            let others = u32::try_from(others.len()).unwrap_or(u32::MAX);
            let _ = write!(text, ", and {}", count(others, "other demand"));
        }
    }
    text
}

/// The spent part of the budget, and the time from which it counts.
fn spent(outlook: &Outlook<'_>) -> String {
    let Some(budget) = outlook.goals.budget else { return String::new() };
    // The latest time that can be formatted.
    let since_ms = outlook.spent_since_ms.min(253_402_300_799_000);
    let since = std::time::UNIX_EPOCH + std::time::Duration::from_millis(since_ms);
    let since = humantime::format_rfc3339_seconds(since);
    // The amounts of a small budget need more digits.
    let digits = if budget < 0.1 { 4 } else { 2 };
    format!(": {:.digits$} of {budget:.digits$} are spent since {since}", outlook.spent)
}

fn broken(bound: Bound, best: &Judged) -> String {
    match bound {
        Bound::Budget => "costs least, but no size is certain to stay within the budget".to_owned(),
        Bound::Deadline => format!(
            "is {}, but meets the deadline in only {:.0} of 100 cases",
            if best.in_time() < IN_TIME_HOPE { "about the fastest" } else { "about as safe as any size" },
            best.forecast.in_time.unwrap_or(0.0) * 100.0
        ),
        Bound::Efficiency => "is closest to the requested efficiency, which no size reaches".to_owned(),
    }
}

fn work(outlook: &Outlook<'_>) -> &'static str {
    if outlook.is_reported() { "the known work" } else { "the search" }
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is below 0")]
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is below 0")]
fn whole(number: f64) -> u32 {
    number.round() as u32
}
