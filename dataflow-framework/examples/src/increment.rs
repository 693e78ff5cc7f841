//! A counter in a file, which is repeatedly read, increased and written: a traditional first program for such
//! systems (Tejedor 2013, section 2.3).
//!
//! Each call needs the output of the previous one, so nothing runs in parallel. The file is changed in place.

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use dataflow_framework::{
    Data, File, Program, TaskDef,
    cli::{self, Command, Failure, Shown},
    task, tasks,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The parameters of the counter.
#[derive(Debug, Clone, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of increments.
    #[arg(long, default_value_t = 10)]
    pub times: u64,
    /// The initial value.
    #[arg(long, default_value_t = 1)]
    pub first: u64,
    /// The path of the final file, on the node that runs the program; by default it is not written.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Increases the number in a file.
///
/// # Errors
/// If the file has no number, or cannot be read or written.
#[task]
pub fn increment(counter: &mut File) -> io::Result<()> {
    let number: u64 = counter.read()?;
    counter.write(number + 1)
}

/// Returns the tasks of the program.
pub fn tasks() -> Vec<&'static TaskDef> {
    tasks![increment].to_vec()
}

/// Returns the final value.
///
/// # Errors
/// If a call fails, or the file cannot be written.
pub fn program(input: &Input) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut counter = Data::new(File::new("counter", input.first.to_string())?);
    for _ in 0..input.times {
        increment(&mut counter);
    }
    if let Some(output) = &input.output {
        counter.publish(output)?;
    }
    Ok(counter.get()?.read()?)
}

/// The program `increment`.
#[derive(Debug)]
pub struct Increment;

impl Program for Increment {
    type Arguments = Input;
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks()
    }

    fn run(input: &Input) -> Result<u64, Box<dyn Error + Send + Sync>> {
        program(input)
    }
}

impl Command for Increment {
    const NAME: &'static str = "increment";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Increases a counter in a file";
    type Options = Input;

    fn arguments(input: Input) -> Result<Input, Failure> {
        if input.first.checked_add(input.times).is_none() {
            return Err(Failure::usage("the last number is larger than 18446744073709551615"));
        }
        Ok(input)
    }

    fn show(number: u64) -> Shown {
        Shown::done(number.to_string(), json!({ "counter": number }))
    }
}

/// Runs the program `increment`.
pub fn main() -> ExitCode {
    cli::main::<Increment>()
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Workflow, WorkflowError};

    use super::{Increment, Input, program, tasks};

    fn input(times: u64) -> Input {
        Input { times, first: 1, output: None }
    }

    #[test]
    fn result_is_the_same_in_all_modes() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let input = input(50);
        assert_eq!(Workflow::new(tasks())?.sequential().run(|| program(&input))?, 51);
        for workers in [1, 3] {
            assert_eq!(Workflow::new(tasks())?.workers(workers).run(|| program(&input))?, 51);
        }
        for nodes in [1, 3] {
            let report = Main::<Increment>::job(input.clone()).nodes(nodes).run()?;
            assert_eq!(Main::<Increment>::returned(&report)?, 51, "on {nodes} nodes");
        }
        Ok(())
    }

    #[test]
    fn each_call_depends_on_previous_one() -> Result<(), WorkflowError> {
        let (last, figures) = Workflow::new(tasks())?.workers(2).run_with_stats(|| program(&input(100)))?;
        assert_eq!(last, 101);
        assert_eq!((figures.calls, figures.depth), (100, 100));
        // The first call reads imported data.
        assert_eq!(figures.dependencies, 99);
        Ok(())
    }
}
