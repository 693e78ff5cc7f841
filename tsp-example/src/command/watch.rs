//! What is to be seen while a search runs, and Ctrl-C.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use bnb_framework::{Problem, Progress, Solver, Stopper};
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use super::CommandError;

/// How often the line is renewed.
const EVERY: Duration = Duration::from_millis(100);

/// The exit code of a command that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// A line on standard error that says how the search gets on; nothing if that is no terminal, or silence is wanted.
pub(super) fn line(quiet: bool) -> Option<ProgressBar> {
    let shown = !quiet && std::io::stderr().is_terminal();
    shown.then(|| {
        let style = ProgressStyle::with_template("{spinner} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        ProgressBar::new_spinner().with_style(style)
    })
}

/// Lets a solver renew the line.
pub(super) fn watched<P: Problem<Cost = u64>>(solver: Solver<P>, line: Option<&ProgressBar>) -> Solver<P> {
    let Some(line) = line.cloned() else { return solver };
    solver.on_progress(EVERY, move |progress| {
        line.set_message(message(progress));
        line.tick();
    })
}

fn message<P: Problem<Cost = u64>>(progress: &Progress<P>) -> String {
    let rate = progress.states as f64 / progress.elapsed.as_secs_f64().max(1e-3);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
    let rate = HumanCount(rate as u64);
    let best = progress.best.map_or_else(|| "none".to_owned(), |best| best.to_string());
    format!(
        "{} states, {rate}/s; {} tasks, {} steals; best tour {best}; {}",
        HumanCount(progress.states),
        HumanCount(progress.figures.tasks),
        HumanCount(progress.figures.steals),
        HumanDuration(progress.elapsed),
    )
}

/// Lets Ctrl-C stop the search; a second one ends the program at once.
pub(super) fn stop_on_interrupt(stopper: Stopper) -> Result<(), CommandError> {
    let pressed = AtomicU32::new(0);
    ctrlc::set_handler(move || {
        if pressed.fetch_add(1, SeqCst) == 0 {
            stopper.stop();
        } else {
            std::process::exit(INTERRUPTED);
        }
    })
    .map_err(|error| CommandError::Usage(format!("Ctrl-C cannot be listened for: {error}")))
}
