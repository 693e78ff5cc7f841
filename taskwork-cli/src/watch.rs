//! The progress line of a running job, and Ctrl-C.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use taskwork::{Progress, Stopper};

use crate::Failure;

/// The interval at which the line is updated.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// The exit code of a command that was ended by a second Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Returns a progress line on standard error.
pub(crate) fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

/// Returns a progress line for any job.
pub(crate) fn line_of(progress: &Progress) -> String {
    let (figures, elapsed) = (&progress.figures, progress.elapsed);
    let rate = figures.worked as f64 / elapsed.as_secs_f64().max(1e-3);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = HumanCount(rate as u64);
    let share = figures.share().map(|share| format!("about {:.1} % done; ", 100.0 * share));
    format!(
        "{}{} units of work, {rate}/s; {} tasks, {} steals; {}",
        share.unwrap_or_default(),
        HumanCount(figures.worked),
        HumanCount(figures.tasks),
        HumanCount(figures.steals),
        HumanDuration(elapsed),
    )
}

/// The job that Ctrl-C stops.
static CURRENT: Mutex<Option<Stopper>> = Mutex::new(None);

/// Makes Ctrl-C stop the job; a second one ends the program at once.
pub(crate) fn stop_on_interrupt(stopper: Stopper) -> Result<(), Failure> {
    // A program may solve several problems, one after the other; the handler of the first one stays.
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopper);
    // It runs on a thread of its own, where locks may be taken.
    let handler = || match CURRENT.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(stopper) => stopper.stop(),
        None => std::process::exit(INTERRUPTED),
    };
    match ctrlc::set_handler(handler) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(Failure::failed(format!("Ctrl-C cannot be listened for: {error}"))),
    }
}
