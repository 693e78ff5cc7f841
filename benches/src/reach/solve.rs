//! Runs of a program on an instance, for a limited time.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::program, published::Case};

use super::{GAP_AFTER_S, Reached};

/// The time that a program may exceed its limit before it is killed: older programs do not check it at every
/// stage.
const GRACE: Duration = Duration::from_secs(20);
/// The interval at which a program is checked for its exit.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The folder of the programs.
pub(super) struct Programs<'a>(Option<&'a Path>);

/// The output of a program.
struct Said {
    answer: Value,
    seconds: f64,
}

/// Returns the name of an instance.
pub(super) fn name(case: &Case) -> String {
    let stem = case.arguments.first().and_then(|file| Path::new(file).file_stem());
    stem.map_or_else(|| case.program.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

impl<'a> Programs<'a> {
    pub(super) fn of(folder: Option<&'a Path>) -> Self {
        Self(folder)
    }

    /// Measures the result for an instance.
    pub(super) fn reach(&self, case: &Case, limit_s: u64) -> Result<Reached> {
        let whole = self.solve(case, limit_s, None)?;
        let said = whole.as_ref().map(|said| &said.answer);
        let number = |field: &str| said.and_then(|said| said[field].as_f64());
        let proven = said.is_some_and(|said| said["proven"] == true);
        if let Some(said) = said.filter(|_| proven) {
            case.check(said, "as proven")?;
        }
        // A program that was killed has taken at least that long, and has no output.
        let seconds = whole.as_ref().map_or_else(|| seconds(limit_s).as_secs_f64(), |said| said.seconds);
        let (best, bound) = (number(case.field), number("bound"));
        let gap_after = if proven && seconds <= GAP_AFTER_S as f64 {
            Some(0.0)
        } else if limit_s < GAP_AFTER_S {
            None
        } else {
            let early = self.solve(case, GAP_AFTER_S, None)?;
            early.and_then(|Said { answer, .. }| gap_of(&answer, case.field))
        };
        let near = self.solve(case, limit_s, Some(near(case)))?;
        let near_s = near.filter(|said| said.answer[case.field].is_number()).map(|said| said.seconds);
        Ok(Reached {
            instance: name(case),
            program: case.program.to_owned(),
            optimum: case.answer,
            proven,
            seconds,
            best,
            bound,
            gap_after,
            near_s,
        })
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        match self.0 {
            None => program(name),
            Some(folder) => {
                let path = folder.join(name);
                ensure!(path.is_file(), "there is no program {}", path.display());
                Ok(path)
            }
        }
    }

    /// Solves an instance, or searches for a solution that is as good as the target. Returns `None` if the
    /// program had to be killed.
    fn solve(&self, case: &Case, limit_s: u64, target: Option<u64>) -> Result<Option<Said>> {
        let limit = limit_s.to_string();
        let mut more = vec!["--workers".to_owned(), "2".to_owned(), "--time-limit".to_owned(), limit];
        more.extend(target.iter().flat_map(|target| ["--target".to_owned(), target.to_string()]));
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let mut command = Command::new(self.path(case.program)?);
        command.args(case.command("solve", &more)).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut process = command.spawn().context("it cannot be started")?;
        // The output is a few lines, which fit into the pipe.
        while process.try_wait()?.is_none() {
            if began.elapsed() > seconds(limit_s) {
                process.kill()?;
                process.wait()?;
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
        let taken = began.elapsed().as_secs_f64();
        let said = process.wait_with_output()?;
        let (code, error) = (said.status.code(), String::from_utf8_lossy(&said.stderr));
        // The exit code 1 means that a limit has stopped the search.
        ensure!(matches!(code, Some(0 | 1)), "it has ended with {}: {error}", said.status);
        let answer = serde_json::from_slice(&said.stdout).with_context(|| format!("no JSON: {error}"))?;
        Ok(Some(Said { answer, seconds: taken }))
    }
}

/// Returns the time after which a program is killed.
fn seconds(limit_s: u64) -> Duration {
    Duration::from_secs(limit_s) + GRACE
}

/// Returns the worst cost that is within 1 % of the optimum.
fn near(case: &Case) -> u64 {
    let maximises = matches!(case.field, "vertices" | "value");
    let by = case.answer / 100;
    if maximises { case.answer - by } else { case.answer + by }
}

fn gap_of(answer: &Value, field: &str) -> Option<f64> {
    if answer["proven"] == true { Some(0.0) } else { gap(answer[field].as_f64(), answer["bound"].as_f64()) }
}

fn gap(best: Option<f64>, bound: Option<f64>) -> Option<f64> {
    let (best, bound) = best.zip(bound)?;
    (best != 0.0).then(|| (best - bound).abs() / best.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_cost_is_worse_than_the_best() {
        let case =
            |field, answer| Case { program: "p", arguments: vec!["a/b.dat".to_owned()], field, answer };
        assert_eq!([near(&case("length", 1250)), near(&case("value", 1250))], [1262, 1238]);
        assert_eq!(near(&case("vertices", 33)), 33);
        assert_eq!(name(&case("length", 1)), "b");
    }

    #[test]
    fn gap_is_a_share_of_the_best() {
        assert_eq!(gap(Some(200.0), Some(150.0)), Some(0.25));
        assert_eq!([gap(Some(0.0), Some(1.0)), gap(None, Some(1.0)), gap(Some(1.0), None)], [None; 3]);
        let said = serde_json::json!({ "length": 7, "bound": 7, "proven": true });
        assert_eq!(gap_of(&said, "length"), Some(0.0));
    }
}
