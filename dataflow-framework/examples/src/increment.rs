//! A counter in a file, which is repeatedly read, increased and written: a traditional first program for such
//! systems (Tejedor 2013, section 2.3).
//!
//! Each call needs the output of the previous one, so nothing runs in parallel. The file is changed in place.

use std::{error::Error, io, path::PathBuf};

use dataflow_framework::{Data, File, program, task};

/// Increases the number in a file.
///
/// # Errors
/// If the file has no number, or cannot be read or written.
#[task]
pub fn add_one(counter: &mut File) -> io::Result<()> {
    let number: u64 = counter.read()?;
    let next = number.checked_add(1).ok_or_else(|| io::Error::other("there is no larger number"))?;
    counter.write(next)
}

/// Increases a counter in a file. Returns its final value.
///
/// # Errors
/// If a call fails, or the file cannot be written.
#[program(add_one)]
pub fn increment(
    /// The number of increments.
    #[arg(default = 10)]
    times: u64,
    /// The initial value.
    #[arg(default = 1)]
    first: u64,
    /// The path of the final file, on the node that runs the program; by default it is not written.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut counter = Data::new(File::new("counter", first.to_string())?);
    for _ in 0..times {
        add_one(&mut counter);
    }
    if let Some(output) = &output {
        counter.publish(output)?;
    }
    Ok(counter.get()?.read()?)
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow, WorkflowError};

    use super::increment;

    #[test]
    fn result_is_the_same_in_all_modes() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        assert_eq!(Workflow::new(increment::tasks())?.sequential().run(|| increment(50, 1, None))?, 51);
        for workers in [1, 3] {
            assert_eq!(
                Workflow::new(increment::tasks())?.workers(workers).run(|| increment(50, 1, None))?,
                51
            );
        }
        for nodes in [1, 3] {
            let report = Main::<increment>::job((50, 1, None)).nodes(nodes).run()?;
            assert_eq!(Main::<increment>::returned(&report)?, 51, "on {nodes} nodes");
        }
        Ok(())
    }

    #[test]
    fn each_call_depends_on_previous_one() -> Result<(), WorkflowError> {
        let (last, figures) =
            Workflow::new(increment::tasks())?.workers(2).run_with_stats(|| increment(100, 1, None))?;
        assert_eq!(last, 101);
        assert_eq!((figures.calls, figures.depth), (100, 100));
        // The first call reads imported data.
        assert_eq!(figures.dependencies, 99);
        Ok(())
    }
}
