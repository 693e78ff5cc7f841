//! The progress of a search.

use std::fmt::Write as _;

use indicatif::{HumanCount, HumanDuration};

use crate::{problem::Problem, solver::Progress};

/// Formats the progress of a search in one line.
pub fn line<P: Problem>(progress: &taskwork::Progress) -> String {
    let progress = Progress::<P>::from_progress(progress);
    let rate = progress.states as f64 / progress.elapsed.as_secs_f64().max(1e-3);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
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
