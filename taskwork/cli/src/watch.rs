//! The progress line of a running job, and the signals that stop it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use taskwork::{Progress, Stopper};

use crate::{Failure, interrupts::Endings, target::runtime};

/// The interval at which the line is updated.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// The exit code of a command that was terminated by a second signal.
const INTERRUPTED: i32 = 130;

/// Returns a progress line on standard error.
pub(crate) fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

/// Formats the progress line of any job.
pub(crate) fn line_of(progress: &Progress) -> String {
    let (figures, elapsed) = (&progress.figures, progress.elapsed);
    let rate = figures.worked as f64 / elapsed.as_secs_f64().max(1e-3);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an approximate rate for display"
    )]
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

/// The job that a signal stops.
static CURRENT: Mutex<Option<Stopper>> = Mutex::new(None);

/// Whether the signal handler is installed.
static LISTENS: Mutex<bool> = Mutex::new(false);

/// Makes the [signals](Endings) stop the job; a second one ends the program at once.
pub(crate) fn stop_on_signal(stopper: Stopper) -> Result<(), Failure> {
    // A program may solve several problems, one after the other; the thread of the first one stays.
    *lock(&CURRENT) = Some(stopper);
    let mut listens = lock(&LISTENS);
    if *listens {
        return Ok(());
    }
    let runtime = runtime()?;
    // The signals are caught before the job starts.
    let mut endings = runtime.block_on(async { Endings::listen() })?;
    let await_signals = move || {
        runtime.block_on(async {
            loop {
                endings.next().await;
                match lock(&CURRENT).take() {
                    Some(stopper) => stopper.stop(),
                    None => std::process::exit(INTERRUPTED),
                }
            }
        })
    };
    let refused = |error| Failure::failed(format!("no thread could be started for signals: {error}"));
    thread::Builder::new().name("signals".to_owned()).spawn(await_signals).map_err(refused)?;
    *listens = true;
    Ok(())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
