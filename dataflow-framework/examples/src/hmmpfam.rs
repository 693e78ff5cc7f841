//! A search for the motifs of a database in sequences, by an external program: `hmmpfam` (Tejedor 2013, section 4.5.2).
//!
//! Both are in the format FASTA: a line that starts with `>` and a name, then lines of letters. Both are divided into
//! fragments. Each fragment of the database is searched for in each fragment of the sequences, by a run of
//! the program; the reports are merged. The result does not depend on the number of fragments.
//!
//! The program is called as `hmmpfam OPTIONS DATABASE SEQUENCES` and writes a report of sorted lines. The report of
//! HMMER has another format; `hmmpfam-stub` is a program that searches for texts.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt::Write as _,
    io::{self, BufRead as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bnb_framework::parse::{self, ReadError};
use dataflow_framework::{
    Data, File, Program, Run, TaskDef,
    cli::{self, Command, Failure, Shown, is_same_file},
    reduce, task, tasks,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The input of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Input {
    /// The program, and its options.
    pub command: (PathBuf, String),
    /// The motifs, each a line `>name` and the lines after it.
    pub database: String,
    /// The sequences, likewise.
    pub sequences: String,
    /// The numbers of fragments of both.
    pub fragments: (usize, usize),
    /// The path of the report on the node that runs the program; by default it is not written.
    pub output: Option<PathBuf>,
}

/// The options of the program.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file of the motifs: each a line `>name` and the lines after it.
    pub database: PathBuf,
    /// The file of the sequences, likewise.
    pub sequences: PathBuf,
    /// The search program, on every node; by default `hmmpfam-stub` next to this one.
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// Its options, as one text.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub options: String,
    /// The number of fragments of the database.
    #[arg(long, default_value_t = 2)]
    pub database_fragments: usize,
    /// The number of fragments of the sequences.
    #[arg(long, default_value_t = 4)]
    pub sequence_fragments: usize,
    /// Also write the report to this file, on the node that runs the program.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Searches for a fragment of a database in one of sequences.
///
/// # Errors
/// If the program is missing or fails.
#[task]
pub fn hmmpfam(program: PathBuf, options: String, database: &File, sequences: &File) -> io::Result<File> {
    Run::new(program).words(&options).arg(database).arg(sequences).stdout_to("report")
}

/// Merges the lines of a report, which are in order, with those of another one.
///
/// # Errors
/// If a file cannot be read or written.
#[task]
pub fn merge(to: &mut File, from: &File) -> io::Result<()> {
    let merged = File::made("report", |merged| {
        let (mut left, mut right) = (to.reader()?.lines(), from.reader()?.lines());
        let mut heads = (left.next().transpose()?, right.next().transpose()?);
        loop {
            let line = match &heads {
                (Some(left_line), Some(right_line)) if left_line > right_line => {
                    std::mem::replace(&mut heads.1, right.next().transpose()?)
                }
                (Some(_), _) => std::mem::replace(&mut heads.0, left.next().transpose()?),
                (None, Some(_)) => std::mem::replace(&mut heads.1, right.next().transpose()?),
                (None, None) => return Ok(()),
            };
            writeln!(merged, "{}", line.unwrap_or_default())?;
        }
    });
    *to = merged?;
    Ok(())
}

/// Returns the tasks of the program.
pub fn tasks() -> Vec<&'static TaskDef> {
    tasks![hmmpfam, merge].to_vec()
}

/// Returns the entries of a text: names and the content after them, without line breaks. An entry starts with `>` at
/// the start of a line; lines before the first entry are ignored.
pub fn entries(text: &str) -> impl Iterator<Item = (&str, String)> {
    let mut lines = parse::lines(text).map(|(_, line)| line).peekable();
    std::iter::from_fn(move || {
        let name = lines.find_map(|line| line.strip_prefix('>'))?;
        let mut content = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('>')) {
            content.extend(line.split_whitespace());
        }
        Some((name.trim(), content))
    })
}

/// Divides a text into fragments of whole entries, with numbers of entries that differ by at most one.
fn divide(text: &str, fragments: usize, name: &str) -> io::Result<Vec<Data<File>>> {
    let entries: Vec<_> = entries(text).collect();
    let fragment = |number: usize| {
        let range = number * entries.len() / fragments..(number + 1) * entries.len() / fragments;
        let file = File::made(name, |to| {
            entries[range].iter().try_for_each(|(name, content)| writeln!(to, ">{name}\n{content}"))
        });
        file.map(Data::new)
    };
    (0..fragments).map(fragment).collect()
}

/// Searches for every motif in every sequence, as `hmmpfam-stub` does: returns a line with both names and the place,
/// from 1, for each time that a motif is found, in order.
pub fn search(database: &str, sequences: &str) -> String {
    let mut found = BTreeSet::new();
    for (motif, pattern) in entries(database) {
        for (sequence, letters) in entries(sequences) {
            let places = letters.as_bytes().windows(pattern.len().max(1)).enumerate();
            for (place, _) in places.filter(|(_, window)| *window == pattern.as_bytes()) {
                found.insert(format!("{sequence}\t{motif}\t{:08}", place + 1));
            }
        }
    }
    found.iter().fold(String::new(), |mut report, line| {
        let _ = writeln!(report, "{line}");
        report
    })
}

/// Returns the report of the whole search.
///
/// # Errors
/// If a call fails, or a file cannot be written.
///
/// # Panics
/// If there are no fragments.
pub fn program(input: &Input) -> Result<String, Box<dyn Error + Send + Sync>> {
    let (program, options) = &input.command;
    let databases = divide(&input.database, input.fragments.0, "database")?;
    let sequences = divide(&input.sequences, input.fragments.1, "sequences")?;
    let mut reports = Vec::new();
    for database in &databases {
        for sequences in &sequences {
            reports.push(hmmpfam(program.clone(), options.clone(), database, sequences));
        }
    }
    let report = reduce(reports, merge).expect("there are fragments");
    if let Some(output) = &input.output {
        report.publish(output)?;
    }
    Ok(report.get()?.read_to_string()?)
}

/// The program `hmmpfam`.
#[derive(Debug)]
pub struct Hmmpfam;

impl Program for Hmmpfam {
    type Arguments = Input;
    type Output = String;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks()
    }

    fn run(input: &Input) -> Result<String, Box<dyn Error + Send + Sync>> {
        program(input)
    }
}

/// The maximum size of a file, in bytes. The whole of it is sent to the node that runs the program.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads a file of entries.
fn read(path: &Path) -> Result<String, Failure> {
    let text = parse::text_of(path, FILE_BYTES_MAX).map_err(Failure::usage)?;
    let file = path.display().to_string();
    let first = parse::lines(&text).find(|(_, line)| !line.trim().is_empty());
    match first {
        Some((_, line)) if line.starts_with('>') => Ok(text),
        first => {
            let (line, found) = first.map_or((1, "an empty file".to_owned()), |(number, line)| {
                (number, format!("{:?}", line.chars().take(40).collect::<String>()))
            });
            let expected = "a line that begins with >, as in the format FASTA";
            Err(Failure::usage(ReadError::at(&file, line, &found, expected)))
        }
    }
}

impl Command for Hmmpfam {
    const NAME: &'static str = "hmmpfam";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Searches for motifs in sequences by an external program";
    type Options = Options;

    fn arguments(options: Options) -> Result<Input, Failure> {
        let fragments = (options.database_fragments, options.sequence_fragments);
        if fragments.0 == 0 || fragments.1 == 0 {
            return Err(Failure::usage("there is at least one fragment of both"));
        }
        let stub = || std::env::current_exe().unwrap_or_default().with_file_name("hmmpfam-stub");
        if let Some(output) = &options.output
            && [&options.database, &options.sequences].into_iter().any(|input| is_same_file(input, output))
        {
            return Err(Failure::usage(format!(
                "--output {}: it is an input, which would be replaced",
                output.display()
            )));
        }
        Ok(Input {
            command: (options.program.unwrap_or_else(stub), options.options),
            database: read(&options.database)?,
            sequences: read(&options.sequences)?,
            fragments,
            output: options.output,
        })
    }

    fn show(report: String) -> Shown {
        let found: Vec<_> = report.lines().collect();
        Shown::done(report.trim_end().to_owned(), json!({ "found": found }))
    }
}

/// Runs the program `hmmpfam`.
pub fn main() -> ExitCode {
    cli::main::<Hmmpfam>()
}
