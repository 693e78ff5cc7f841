//! One command of a check: announced, timed, and listed in a final table.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader},
    panic::resume_unwind,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{failures::Failures, workspace};

/// The maximum wait for the rest of the output of a step that has ended.
const REST_MAX: Duration = Duration::from_secs(5);

/// A command with a name, as a value, so that the commands can be tested without running them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    name: &'static str,
    program: &'static str,
    args: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// Whether the next steps start before this one ends.
    is_concurrent: bool,
}

struct Finished<'a> {
    step: &'a Step,
    took: Duration,
    outcome: Result<()>,
    /// The failed tests with their messages.
    failures: String,
}

impl Step {
    pub(crate) fn new<'a>(
        name: &'static str,
        program: &'static str,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let args = args.into_iter().map(str::to_owned).collect();
        Self { name, program, args, environment: Vec::new(), is_concurrent: false }
    }

    /// Creates a cargo step from its arguments as one line without quotes.
    pub(crate) fn cargo(name: &'static str, line: &str) -> Self {
        Self::new(name, "cargo", line.split_whitespace())
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Lets the next steps start before this one ends. Its lines are printed with its name.
    pub(crate) fn concurrent(self) -> Self {
        Self { is_concurrent: true, ..self }
    }

    /// Lets this step use only the time of the processors that others leave.
    pub(crate) fn at_low_priority(mut self) -> Self {
        self.args.splice(0..0, ["-n", "10", self.program].map(str::to_owned));
        Self { program: "nice", ..self }
    }

    /// Returns the command that repeats this step alone in the workspace root.
    pub(crate) fn line(&self) -> String {
        let environment = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words =
            environment.chain([self.program.to_owned()]).chain(self.args.iter().map(|arg| quoted(arg)));
        words.collect::<Vec<_>>().join(" ")
    }

    fn run(&self, failures: &Arc<Mutex<Failures>>) -> Result<()> {
        let mut command = workspace::command(self.program);
        command.args(&self.args).envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program))?;
        let (is_read, ended) = mpsc::channel::<()>();
        if let Some(stdout) = child.stdout.take() {
            let failures = Arc::clone(failures);
            let prefix = if self.is_concurrent { [self.name, " | "].concat() } else { String::new() };
            thread::spawn(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(io::Result::ok) {
                    let line = String::from_utf8_lossy(&line);
                    println!("{prefix}{line}");
                    failures.lock().unwrap_or_else(PoisonError::into_inner).read(&line);
                }
                drop(is_read);
            });
        }
        let status = child.wait()?;
        // A process that the step has left running may keep the pipe open.
        let _closed = ended.recv_timeout(REST_MAX);
        ensure!(status.success(), "{status}");
        Ok(())
    }

    fn announce_and_run(&self) -> Finished<'_> {
        println!("\n==> {}: {}", self.name, self.line());
        let started = Instant::now();
        let failures = Arc::default();
        let outcome = self.run(&failures);
        let took = started.elapsed();
        let verdict = if outcome.is_ok() { "passed" } else { "FAILED" };
        println!("==> {}: {verdict} after {:.1} s", self.name, took.as_secs_f64());
        let failures = failures.lock().unwrap_or_else(PoisonError::into_inner).text();
        Finished { step: self, took, outcome, failures }
    }
}

/// Runs all steps, even after a failure, so that one run shows every problem.
///
/// # Errors
/// Names every failed step, with the command that repeats it.
pub(crate) fn run_all(steps: &[Step]) -> Result<()> {
    let started = Instant::now();
    let finished = finish_all(steps);
    println!("\n{}", table(&finished, started.elapsed()));
    conclude(&finished)
}

fn finish_all(steps: &[Step]) -> Vec<Finished<'_>> {
    thread::scope(|scope| {
        let started: Vec<_> = steps
            .iter()
            .map(|step| {
                let running = scope.spawn(|| step.announce_and_run());
                if step.is_concurrent { Err(running) } else { Ok(joined(running)) }
            })
            .collect();
        started.into_iter().map(|step| step.unwrap_or_else(joined)).collect()
    })
}

fn joined<'a>(running: ScopedJoinHandle<'_, Finished<'a>>) -> Finished<'a> {
    running.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs steps that each need the previous one.
///
/// # Errors
/// Names the first step that failed, with the command that repeats it.
pub(crate) fn run_chain(steps: &[Step]) -> Result<()> {
    steps.iter().try_for_each(|step| conclude(&[step.announce_and_run()]))
}

fn table(finished: &[Finished<'_>], total: Duration) -> String {
    let width = finished.iter().map(|done| done.step.name.len()).max().unwrap_or(0);
    let mut table = String::new();
    for done in finished {
        let verdict = if done.outcome.is_ok() { "passed" } else { "FAILED" };
        let _infallible =
            writeln!(table, "  {:width$}  {verdict}  {:8.1} s", done.step.name, done.took.as_secs_f64());
    }
    let failed = finished.iter().filter(|done| done.outcome.is_err()).count();
    let verdict = if failed == 0 { "all passed".to_owned() } else { format!("{failed} FAILED") };
    table + &format!("{} steps in {:.1} s: {verdict}", finished.len(), total.as_secs_f64())
}

fn conclude(finished: &[Finished<'_>]) -> Result<()> {
    let failures: Vec<_> = finished
        .iter()
        .filter_map(|done| {
            let error = done.outcome.as_ref().err()?;
            let summary =
                format!("{} failed: {error:#}\n    repeat it with: {}", done.step.name, done.step.line());
            Some([&done.failures, "\n"].concat().trim_start().to_owned() + &summary)
        })
        .collect();
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{}", failures.join("\n"))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:+,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Step {
        Step::new("good", "true", [])
    }

    fn bad() -> Step {
        Step::new("bad", "false", ["--now"]).env("MOOD", "not so good")
    }

    #[test]
    fn printed_line_can_be_pasted_into_shell() {
        assert_eq!(bad().line(), "MOOD='not so good' false --now");
        assert_eq!(Step::cargo("lints", "clippy -- -D  warnings").line(), "cargo clippy -- -D warnings");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn concurrent_step_runs_with_the_next_ones() {
        let folder = tempfile::tempdir().expect("a folder can be created");
        let file = folder.path().join("second").display().to_string();
        let wait = format!("for i in $(seq 600); do test -e '{file}' && exit; sleep 0.1; done; exit 1");
        let first = Step::new("first", "sh", ["-c", &wait]).concurrent();
        let second = Step::new("second", "touch", [file.as_str()]).at_low_priority();
        assert_eq!(second.line(), format!("nice -n 10 touch {}", quoted(&file)));
        run_all(&[first, second]).expect("the first one sees the file of the second one");
    }

    #[test]
    fn failure_names_step_and_command_to_repeat_it() {
        let error = run_all(&[good(), bad(), good()]).expect_err("one of three fails").to_string();
        assert!(error.starts_with("bad failed: exit status: 1"), "{error}");
        assert!(error.ends_with("repeat it with: MOOD='not so good' false --now"), "{error}");
    }

    #[test]
    fn failed_test_is_named_with_its_message_at_the_end() {
        let script = "echo '---- deep::bad stdout ----'; echo \"thread 'x' panicked at a.rs:1:2:\"; exit 1";
        let error = run_all(&[Step::new("tests", "sh", ["-c", script])]).expect_err("it fails").to_string();
        let start = "deep::bad\n    thread 'x' panicked at a.rs:1:2:\ntests failed: exit status: 1";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn every_failure_is_named() {
        let missing = Step::new("missing", "no-such-program-anywhere", []);
        let error = run_all(&[missing, bad()]).expect_err("both fail").to_string();
        assert!(error.contains("missing failed: cannot start no-such-program-anywhere"), "{error}");
        assert!(error.contains("bad failed"), "{error}");
    }

    #[test]
    fn chain_stops_at_first_failure() {
        let second = Step::new("second", "no-such-program-anywhere", []);
        let error = run_chain(&[bad(), second]).expect_err("the first fails").to_string();
        assert!(!error.contains("second"), "{error}");
        assert!(run_chain(&[good(), good()]).is_ok());
    }

    #[test]
    fn table_counts_failures() {
        let (good, bad) = (good(), bad());
        let took = Duration::from_millis(1500);
        let done = |step, outcome| Finished { step, took, outcome, failures: String::new() };
        assert_eq!(
            table(&[done(&good, Ok(())), done(&bad, Err(anyhow::anyhow!("why")))], 2 * took),
            "  good  passed       1.5 s\n  bad   FAILED       1.5 s\n2 steps in 3.0 s: 1 FAILED"
        );
        assert!(table(&[done(&good, Ok(()))], took).ends_with("1 steps in 1.5 s: all passed"));
    }
}
