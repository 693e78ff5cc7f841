//! Files in Taillard's format.

use bnb_framework::words::{ReadError, Words};

use super::FlowShop;

/// The most jobs.
pub const JOBS_MAX: usize = 1000;
/// The most machines.
pub const MACHINES_MAX: usize = 256;
/// The largest file that is read, in bytes: some of the largest instances.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// The longest that a job takes on a machine: sums of all stay within 32 bits.
const TIME_MAX: u32 = 8_000;

/// Reads the first instance, or a later one: the numbers of jobs and machines, then for each machine the times of all jobs. Titles are passed over, and so
/// are the seed and the bounds that may follow the numbers.
///
/// # Errors
/// Says the file, the line, what was found and what was expected.
pub fn parse(file: &str, text: &str, instance: u32) -> Result<FlowShop, ReadError> {
    let mut words = Words::new(file, text);
    for _ in 1..instance {
        one(&mut words)?;
    }
    one(&mut words)
}

fn one(words: &mut Words<'_>) -> Result<FlowShop, ReadError> {
    skip_title(words);
    let jobs = words.number_in("a number of jobs", 1..=JOBS_MAX)?;
    let machines = words.number_in("a number of machines", 1..=MACHINES_MAX)?;
    // The seed and two bounds.
    words.skip_line();
    skip_title(words);
    let times: Result<Vec<u32>, ReadError> = (0..jobs * machines)
        .map(|_| words.number_in("the time of a job on a machine,", 0..=TIME_MAX))
        .collect();
    Ok(FlowShop::new(jobs, machines, times?))
}

/// Passes over lines that begin with a letter.
fn skip_title(words: &mut Words<'_>) {
    while words.peek().is_some_and(|word| word.starts_with(|first: char| first.is_alphabetic())) {
        let _ = words.word("a title");
        words.skip_line();
    }
}
