//! Effects, decisions and queries of the environment, on several nodes within this process and without nodes.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use crate::{
    Data, Failure, File, Main, Program, TaskDef, Workflow, flow, group, once_token, task, tasks, wait_any,
};

/// Appends a line to a file outside of the program's data.
#[task(effect)]
fn note(book: PathBuf, line: u64) -> io::Result<u64> {
    use io::Write as _;
    let token = once_token().ok_or_else(|| io::Error::other("it has an effect, and no token"))?;
    let mut book = fs::OpenOptions::new().append(true).create(true).open(book)?;
    book.write_all(format!("{line} {token:032x}\n").as_bytes())?;
    Ok(line)
}

#[task(nondeterministic)]
fn chance(number: u64) -> u64 {
    flow::random() ^ number
}

/// Returns more data than fits into the journal.
#[task(nondeterministic)]
fn much_chance(numbers: u64) -> Vec<u64> {
    (0..numbers).map(|_| flow::random()).collect()
}

#[task]
fn same(first: &u64, second: &u64) -> bool {
    first == second
}

#[task(on_failure = ignore)]
fn never(number: u64) -> Result<u64, String> {
    Err(format!("{number} is not tried"))
}

#[derive(Serialize, Deserialize)]
struct Places {
    book: PathBuf,
    report: PathBuf,
}

/// A program with all kinds of operations that must happen once.
struct Once;

impl Program for Once {
    type Arguments = Places;
    type Output = (u64, SystemTime);

    fn tasks() -> Vec<&'static TaskDef> {
        tasks![note, chance, much_chance, same, never].to_vec()
    }

    fn run(Places { book, report }: &Places) -> Result<Self::Output, Box<dyn Error + Send + Sync>> {
        let mut notes: Vec<Data<u64>> = (0..100).map(|line| note(book.clone(), line)).collect();
        let mut sum = 0;
        while let Some(next) = wait_any(&notes) {
            sum += *notes.swap_remove(next).get()?;
        }
        let number = chance(1);
        let large = much_chance(20_000);
        let snapshot = number.clone();
        assert!(*same(&number, &snapshot).get()?, "a version has one value");
        assert_eq!(*number.get()?, *number.get()?);
        assert_eq!(large.get()?.len(), 20_000);
        assert_eq!(*never(1).get()?, 0, "its failure is ignored");
        let (cancelled, _) = group(|| (0..50).map(|line| same(&number, &chance(line))).collect::<Vec<_>>());
        cancelled.cancel();
        let _ = cancelled.wait();
        let other = chance(2);
        while other.try_get()?.is_none() {}
        Data::new(File::new("report", "all is noted")?).publish(report)?;
        assert!(flow::env("a variable that is never set").is_none());
        Ok((sum, flow::now()))
    }
}

fn check(book: &Path, report: &Path, (sum, _): (u64, SystemTime)) {
    assert_eq!(sum, 99 * 100 / 2);
    let book = fs::read_to_string(book).expect("there are notes");
    let mut lines: Vec<u64> = book
        .lines()
        .map(|line| line.split(' ').next().expect("it is a number").parse().expect("it is"))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..100).collect::<Vec<_>>(), "each line was written once");
    let mut tokens: Vec<&str> = book.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 100, "each call has a token of its own");
    assert_eq!(fs::read_to_string(report).expect("it is published"), "all is noted");
}

fn places(folder: &tempfile::TempDir) -> Places {
    Places { book: folder.path().join("book"), report: folder.path().join("report") }
}

#[test]
fn effects_and_decisions_match_in_every_mode() {
    for nodes in [1, 3] {
        let folder = tempfile::tempdir().expect("there is a place for files");
        let Places { book, report } = places(&folder);
        let done = Main::<Once>::job(places(&folder)).nodes(nodes).run().expect("the job completes");
        check(&book, &report, Main::<Once>::returned(&done).expect("the program completes"));
    }
    for workers in [0, 3] {
        let folder = tempfile::tempdir().expect("there is a place for files");
        let Places { book, report } = places(&folder);
        let workflow = Workflow::new(Once::tasks()).expect("their names differ");
        let workflow = if workers == 0 { workflow.sequential() } else { workflow.workers(workers) };
        check(&book, &report, workflow.run(|| Once::run(&places(&folder))).expect("the program completes"));
    }
}

#[test]
fn task_without_effect_has_no_token() {
    #[task]
    fn token() -> bool {
        once_token().is_some()
    }
    let has_token =
        Workflow::new(tasks![token]).expect("there is one").run(|| Ok::<_, Failure>(*token().get()?));
    assert!(!has_token.expect("the program completes"));
}

#[test]
fn retried_effect_keeps_its_token() {
    #[task(effect, retry = 2)]
    fn tries(book: PathBuf) -> Result<String, Box<dyn Error + Send + Sync>> {
        let token = format!("{:032x}", once_token().ok_or("there is a token")?);
        let before = fs::read_to_string(&book).unwrap_or_default();
        fs::write(&book, format!("{before}{token}\n"))?;
        if before.lines().count() < 2 { Err("not yet".into()) } else { Ok(token) }
    }
    let folder = tempfile::tempdir().expect("there is a place for files");
    let book = folder.path().join("book");
    let workflow = Workflow::new(tasks![tries]).expect("there is one");
    let token =
        workflow.run(|| Ok::<_, Failure>(tries(book.clone()).get()?.clone())).expect("the third try is good");
    let all = fs::read_to_string(&book).expect("it was written");
    assert_eq!(all, format!("{token}\n").repeat(3));
}
