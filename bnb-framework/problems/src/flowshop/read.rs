//! Files in Taillard's format.

use bnb_framework::parse::{ReadError, Words};

use super::FlowShop;

/// The maximum number of jobs.
pub const JOBS_MAX: usize = 1000;
/// The maximum number of machines.
pub const MACHINES_MAX: usize = 256;
/// The maximum size of a file, in bytes: some of the largest instances.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// The maximum time of a job on a machine; the sum of all times stays within 32 bits.
const TIME_MAX: u32 = 8_000;

/// Reads one instance of a file, counted from 1. All instances of the file are checked.
///
/// An instance is a line with the numbers of jobs and machines, optionally followed by the seed and the two
/// bounds, and then a line for each machine with the times of all jobs. Either part may have Taillard's title
/// before it (`number of jobs, …`, `processing times :`); a second instance must have the first of these, so
/// that an extra machine is not taken for one. After the times there may be a makespan alone on a line, which
/// must be possible, and then the jobs in an order that has this makespan.
///
/// A file with a line for each job is refused. If there are as many jobs as machines, the two kinds of files
/// look the same, and the lines are taken as machines.
///
/// # Errors
/// Fails with the file, the line, the found and the expected text.
pub fn parse(file: &str, text: &str, instance: u32) -> Result<FlowShop, ReadError> {
    let mut words = Words::new(file, text);
    let (mut wanted, mut count) = (None, 0);
    loop {
        let shop = one(&mut words)?;
        count += 1;
        if words.peek().is_some_and(|word| !is_title(word, "number")) {
            solution(&mut words, &shop)?;
        }
        if count == instance {
            wanted = Some(shop);
        }
        match words.peek() {
            None => break,
            Some(word) if is_title(word, "number") => {}
            Some(_) => {
                let word = words.word("a title")?;
                return Err(words.wrong(word, "the end of the file, or another instance with its title"));
            }
        }
    }
    wanted.ok_or_else(|| words.missing(&format!("instance {instance}: the file has {count}")))
}

fn one(words: &mut Words<'_>) -> Result<FlowShop, ReadError> {
    skip_title(words, "number");
    let jobs = words.number_in("a number of jobs", 1..=JOBS_MAX)?;
    let machines = words.number_here("a number of machines", 1..=MACHINES_MAX)?;
    if words.peek_here().is_some() {
        for what in ["the seed", "the upper bound", "the lower bound"] {
            words.number_here(what, 0..=u32::MAX)?;
        }
    }
    words.end_here(" after the numbers of jobs and machines, or after a seed and two bounds behind them")?;
    skip_title(words, "processing");
    let mut times = Vec::with_capacity(jobs * machines);
    for machine in 1..=machines {
        const TIME: &str = "the time of a job on a machine,";
        times.push(words.number_in(TIME, 0..=TIME_MAX)?);
        if machine == 1 && jobs != machines && words.count_here() + 1 == machines {
            let found = format!("{machines} times on the first line of times");
            let expected = format!(
                "the times of all {jobs} jobs on the first machine: a line for each machine, not for each job"
            );
            return Err(words.at(words.line(), &found, &expected));
        }
        for _ in 1..jobs {
            times.push(words.number_here(TIME, 0..=TIME_MAX)?);
        }
        words.end_here(&format!(" after the times of {jobs} jobs on machine {machine}"))?;
    }
    Ok(FlowShop::new(jobs, machines, times))
}

/// Reads a makespan, and an order if one follows, and checks that they are possible for the instance, so that
/// an extra line is not taken for a solution.
fn solution(words: &mut Words<'_>, shop: &FlowShop) -> Result<(), ReadError> {
    const MAKESPAN: &str = "the end of the file, or the makespan of a solution";
    let makespan: u32 = words.number_in(MAKESPAN, 0..=u32::MAX)?;
    words.end_here(&format!(": of {} machines the times are given", shop.machines))?;
    let possible = shop.makespans();
    if !possible.contains(&makespan) {
        let expected = format!("one from {} to {}", possible.start(), possible.end());
        return Err(words.at(words.line(), &format!("a makespan of {makespan}"), &expected));
    }
    if words.peek().is_none_or(|word| is_title(word, "number")) {
        return Ok(());
    }
    let jobs = u16::try_from(shop.jobs).unwrap_or(u16::MAX);
    let (mut order, mut is_left) = (Vec::with_capacity(shop.jobs), vec![true; shop.jobs]);
    for _ in 0..jobs {
        let job = words.number_in("a job of the solution's order,", 1..=jobs)? - 1;
        if !std::mem::replace(&mut is_left[usize::from(job)], false) {
            return Err(words.wrong(&(job + 1).to_string(), "each job once in the solution's order"));
        }
        order.push(job);
    }
    let real = shop.makespan(&order);
    if real != makespan {
        let found = format!("an order of makespan {real}");
        return Err(words.at(
            words.line(),
            &found,
            &format!("one of {makespan}, as the file says before it"),
        ));
    }
    Ok(())
}

/// Skips a title that starts with this word.
fn skip_title(words: &mut Words<'_>, first: &str) {
    if words.peek().is_some_and(|word| is_title(word, first)) {
        let _ = words.word("a title");
        words.skip_line();
    }
}

fn is_title(word: &str, first: &str) -> bool {
    word.eq_ignore_ascii_case(first)
}
