//! `ends`: a job of a single task that records its end, to measure the time from there to the result.

use std::{
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, Outcome, Output, Task};
use taskwork_cli::{Failure, Kinds, NoMore, Prepared, Program, Shown};

/// The duration of the task.
const WORK: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
struct Ends;

/// The time at which a task ended, in seconds since 1970.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct EndedAt(f64);

impl Output for EndedAt {
    fn merge(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Task for Ends {
    type Shared = ();
    type Output = EndedAt;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let started = Instant::now();
        while started.elapsed() < WORK {
            if cx.migrate() {
                return Outcome::Migrate;
            }
        }
        cx.output().merge(EndedAt(now()));
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[derive(clap::Args)]
struct Arguments {}

struct Command;

impl Program for Command {
    const NAME: &'static str = "ends";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Works for 50 ms, and reports the delay of its result";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Ends>("ends");
    }

    fn prepare(_: Arguments) -> Result<Prepared, Failure> {
        Ok(Prepared::new("ends", Job::new(Ends, ()), |report| {
            let late_ms = (now() - report.output.0) * 1000.0;
            let json = serde_json::json!({ "late_ms": late_ms });
            Ok(Shown::new(format!("{late_ms:.3} ms late"), json, report.finished))
        }))
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}
