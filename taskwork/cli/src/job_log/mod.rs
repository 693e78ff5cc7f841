//! The log of a running job on standard error, in the style of solvers: a line at every improvement, and one every
//! few seconds.

mod columns;
mod display;
mod numbers;
mod summary;

use std::{io::IsTerminal as _, time::Duration};

use clap::Args;
use indicatif::ProgressBar;
use taskwork::{Progress, report::Figures};

use self::columns::{Columns, Moment};
pub use self::{columns::LogColumn, display::ProgressDisplay};
use crate::{Shown, failure::tell, interrupts::Notes, watch};

/// The options of the log.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(skip)]
pub(crate) struct JobLogArguments {
    /// The interval of log lines on standard error, in seconds; improvements are always logged. With 0 only
    /// improvements. [default: 5, or 30 with a progress line; none with --json]
    #[arg(long, value_name = "SECONDS", value_parser = interval, conflicts_with = "quiet")]
    log_every: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    quiet: bool,
}

/// The interval of the lines without a terminal, and with a progress line.
const EVERY: Duration = Duration::from_secs(5);
const EVERY_BESIDE_A_LINE: Duration = Duration::from_secs(30);

/// The number of lines after which the header is repeated.
const HEADER_EVERY: usize = 20;

/// Parses an interval up to a day; 0 is none.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0 to 86400 seconds".to_owned())
    }
}

impl JobLogArguments {
    /// Returns the display settings of a job. `json` means that the output is for scripts.
    pub(crate) fn viewing(self, json: bool) -> Viewing {
        let quiet = self.quiet || json;
        let line = !quiet && std::io::stderr().is_terminal();
        let usual = if line { EVERY_BESIDE_A_LINE } else { EVERY };
        let every = self.log_every.or((!quiet).then_some(usual));
        Viewing { line, every, quiet }
    }
}

/// The display settings of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Viewing {
    /// Whether there is a progress line.
    line: bool,
    /// The interval of the log; zero means only at improvements, and `None` means that there is no log.
    every: Option<Duration>,
    /// Whether other messages are suppressed.
    pub(crate) quiet: bool,
}

impl Viewing {
    /// Returns whether there is a progress line.
    pub(crate) fn has_line(&self) -> bool {
        self.line
    }
}

/// The display of one job.
pub(crate) struct JobLog {
    display: ProgressDisplay,
    bar: Option<ProgressBar>,
    log: Option<Log>,
}

/// The state of the log.
struct Log {
    every: Duration,
    columns: Columns,
    lines: usize,
    /// The time of the last regular line, since the start.
    told_at: Duration,
    /// The last value of the marked column, as text: a number that is none differs from itself.
    marked: Option<String>,
    /// The last known number of nodes.
    nodes: Option<usize>,
    /// The last known share that is done.
    share: Option<f64>,
}

impl JobLog {
    pub(crate) fn new(display: ProgressDisplay, viewing: Viewing, notes: &Notes) -> Self {
        let bar = viewing.line.then(watch::bar);
        notes.set_bar(bar.as_ref());
        let log = viewing.every.map(|every| Log::new(every, display.log_columns()));
        Self { display, bar, log }
    }

    /// Returns whether the progress of the job is needed.
    pub(crate) fn needs_progress(&self) -> bool {
        self.bar.is_some() || self.log.is_some() || self.display.observe.is_some()
    }

    /// Displays the progress.
    pub(crate) fn show(&mut self, progress: &Progress) {
        if let Some(observe) = &mut self.display.observe {
            observe(progress);
        }
        if let Some(log) = &mut self.log {
            let own = self.display.values(progress);
            log.nodes = Some(progress.nodes);
            let moment = Moment::new(progress.elapsed, &progress.figures, log.nodes, own);
            if let Some(lines) = log.note(&moment) {
                say(self.bar.as_ref(), &lines);
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_message((self.display.line)(progress));
            bar.tick();
        }
    }

    /// Removes the progress line.
    pub(crate) fn finish_line(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Writes the last line, and the times of the workers.
    pub(crate) fn end(&mut self, elapsed: Duration, figures: &Figures, shown: &Shown) {
        self.finish_line();
        if let Some(log) = &mut self.log {
            let moment = Moment::new(elapsed, figures, log.nodes, shown.columns.clone());
            let lines = log.last(moment, shown.complete);
            let text = lines + &summary::text(figures.times);
            tell(format_args!("{}", text.trim_end()));
        }
    }
}

/// Prints lines, above the progress line if there is one.
fn say(bar: Option<&ProgressBar>, lines: &str) {
    let say = || tell(format_args!("{}", lines.trim_end()));
    match bar {
        Some(bar) => bar.suspend(say),
        None => say(),
    }
}

impl Log {
    fn new(every: Duration, columns: Columns) -> Self {
        Self { every, columns, lines: 0, told_at: Duration::ZERO, marked: None, nodes: None, share: None }
    }

    /// Returns the lines that are due.
    fn note(&mut self, moment: &Moment) -> Option<String> {
        self.share = moment.share();
        let is_new = self.has_news(moment);
        let is_due = !self.every.is_zero() && moment.elapsed.saturating_sub(self.told_at) >= self.every;
        if is_due {
            // Missed intervals are skipped.
            self.told_at = moment.elapsed;
        }
        (is_new || is_due).then(|| self.line(moment, is_new))
    }

    /// Returns the last line. At a limit unfinished tasks end, so the share is the last one known before.
    fn last(&mut self, moment: Moment, complete: bool) -> String {
        // The figures of a continued job do not include earlier runs.
        let share = if complete { moment.share().map(|_| 1.0) } else { self.share };
        let moment = moment.with_share(share);
        let is_new = self.has_news(&moment);
        self.line(&moment, is_new)
    }

    /// Updates the value of the marked column. Returns whether it is new.
    fn has_news(&mut self, moment: &Moment) -> bool {
        let marked = self.columns.marked(moment).map(|cell| format!("{cell:?}"));
        let is_new = marked.is_some() && marked != self.marked;
        if is_new {
            self.marked = marked;
        }
        is_new
    }

    fn line(&mut self, moment: &Moment, is_new: bool) -> String {
        let header =
            if self.lines.is_multiple_of(HEADER_EVERY) { self.columns.header() } else { String::new() };
        self.lines += 1;
        header + &self.columns.line(moment, is_new)
    }
}

#[cfg(test)]
mod tests {
    use taskwork::display::Cell;

    use super::*;

    fn moment(ms: u64, best: Option<&str>) -> Moment {
        let own = vec![best.map(Cell::from), None, None];
        Moment::new(Duration::from_millis(ms), &Figures::default(), Some(1), own)
    }

    fn log(every_ms: u64) -> Log {
        Log::new(Duration::from_millis(every_ms), columns::tests::search())
    }

    fn times(log: &mut Log, moments: &[(u64, Option<&str>)]) -> Vec<u64> {
        let due = |&&(ms, best): &&(u64, Option<&str>)| log.note(&moment(ms, best)).is_some();
        moments.iter().filter(due).map(|&(ms, _)| ms).collect()
    }

    #[test]
    fn line_is_due_at_improvements_and_intervals() {
        let run = [
            (0, None),
            (100, Some("9")),
            (200, Some("9")),
            (300, Some("8")),
            (1_000, Some("8")),
            (1_900, Some("8")),
            (5_500, Some("8")),
            (6_000, Some("8")),
            (6_500, Some("8")),
        ];
        assert_eq!(times(&mut log(1_000), &run), [100, 300, 1_000, 5_500, 6_500]);
        assert_eq!(times(&mut log(0), &run), [100, 300], "only at improvements");
    }

    #[test]
    fn value_that_is_no_number_is_new_once() {
        let mut log = log(0);
        let mut is_due = |ms| {
            let own = vec![Some(Cell::Number(f64::NAN)), None, None];
            log.note(&Moment::new(Duration::from_millis(ms), &Figures::default(), Some(1), own)).is_some()
        };
        assert_eq!([1, 2].map(&mut is_due), [true, false]);
    }

    #[test]
    fn header_is_repeated_and_lines_have_all_columns() {
        let mut log = log(1);
        let lines: String =
            (1..=2 * HEADER_EVERY as u64).filter_map(|ms| log.note(&moment(ms, None))).collect();
        let headers = lines.lines().filter(|line| line.starts_with('#'));
        assert_eq!(headers.count(), 2);
        let names = lines.lines().next().unwrap().trim_start_matches('#').split_whitespace().count();
        assert!(
            lines
                .lines()
                .filter(|line| !line.starts_with('#'))
                .all(|line| line.split_whitespace().count() == names)
        );
    }

    #[test]
    fn last_line_is_always_written_and_marks_unseen_improvement() {
        let mut log = log(1_000);
        let end = log.last(moment(20, Some("7")), true);
        assert!(end.trim_end().ends_with('*'), "{end}");
        assert_eq!(end.lines().count(), 2, "with the header: {end}");
        assert!(log.last(moment(20, Some("7")), true).trim_end().ends_with('-'), "it is known");
    }

    #[test]
    fn search_stopped_at_limit_is_not_shown_as_done() {
        let mut log = log(0);
        let done = |share| moment(20, None).with_share(share);
        assert_eq!(log.note(&done(Some(0.25))), None);
        let word = |line: String| line.split_whitespace().rev().nth(3).unwrap().to_owned();
        assert_eq!(word(log.last(done(Some(1.0)), false)), "25.0");
        assert_eq!(
            word(log.last(done(Some(0.072)), true)),
            "100.0",
            "the work of an earlier run is not counted"
        );
    }

    #[test]
    fn json_output_has_log_only_on_request() {
        let asked = JobLogArguments { log_every: Some(Duration::ZERO), quiet: false };
        assert_eq!(JobLogArguments::default().viewing(true).every, None);
        assert_eq!(asked.viewing(true), Viewing { line: false, every: Some(Duration::ZERO), quiet: true });
        let quiet = JobLogArguments { log_every: None, quiet: true };
        assert_eq!(quiet.viewing(false), Viewing { line: false, every: None, quiet: true });
        assert!(JobLogArguments::default().viewing(false).every.is_some());
    }

    #[test]
    fn interval_over_a_day_is_refused() {
        assert_eq!(interval("0"), Ok(Duration::ZERO));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["-1", "NaN", "86401", "5s", ""] {
            assert!(interval(bad).unwrap_err().starts_with("expected"), "{bad}");
        }
    }
}
