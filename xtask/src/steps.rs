//! Steps: commands that are shown, timed, and named when they fail.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// One command.
#[derive(Debug)]
pub(crate) struct Step {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
}

impl Step {
    /// The cargo that runs this program.
    pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        Self { program: cargo.into(), arguments, environment: Vec::new() }
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The command as one would type it.
    fn line(&self) -> String {
        let environment = self.environment.iter().map(|(name, value)| format!("{name}={value:?}"));
        let program = self.program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let arguments = self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        environment.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

/// The steps done so far, with the time each took.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<(String, Duration)>);

impl Steps {
    /// Runs a step to its end.
    pub(crate) fn run(&mut self, step: Step) -> Result<()> {
        let line = step.line();
        eprintln!("\n=== {line}");
        let started = Instant::now();
        let status = Command::new(&step.program)
            .args(&step.arguments)
            .envs(step.environment)
            .current_dir(root())
            .status()
            .with_context(|| format!("could not start: {line}"))?;
        if !status.success() {
            bail!("this step failed ({status}): {line}");
        }
        self.0.push((line, started.elapsed()));
        Ok(())
    }

    /// Says what was done.
    pub(crate) fn print_table(&self) {
        eprintln!();
        for (line, took) in &self.0 {
            eprintln!("{:>7.1} s  {line}", took.as_secs_f64());
        }
        let total: Duration = self.0.iter().map(|(_, took)| *took).sum();
        eprintln!("{:>7.1} s  in all; every step passed", total.as_secs_f64());
    }
}
