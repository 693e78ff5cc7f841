//! A workflow for scenarios: chains of calls, each of which also reads the output of its neighbour. A gate,
//! which is a file with a number, limits the progress of the chains, so that a test can inject faults into a
//! job that cannot end in the meantime. Calls record their runs, and events that must happen once, in a book.

use std::{
    error::Error,
    fs,
    io::{self, Write as _},
    path::PathBuf,
    time::SystemTime,
};

use dataflow_framework::{Data, File, commute, flow, program, reduce, task};

use crate::gate::Gate;

fn write(book: Option<&PathBuf>, line: &str) -> io::Result<()> {
    let Some(book) = book else { return Ok(()) };
    // In one write, so that lines of several nodes do not mix.
    fs::OpenOptions::new().append(true).create(true).open(book)?.write_all(format!("{line}\n").as_bytes())
}

#[task(cached)]
fn begin(chain: u64, numbers: u64) -> io::Result<(Vec<u64>, File)> {
    Ok(((0..numbers).map(|place| place * 7 + chain).collect(), File::new("diary", format!("{chain}:"))?))
}

#[task(cached)]
fn link(
    numbers: &mut Vec<u64>,
    diary: &mut File,
    neighbour: &Vec<u64>,
    place: u64,
    gate: Option<Gate>,
    book: Option<PathBuf>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    write(book.as_ref(), &format!("begin {place}"))?;
    if let Some(gate) = &gate {
        gate.pass(place)?;
    }
    for (number, other) in numbers.iter_mut().zip(neighbour) {
        *number = number.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other;
    }
    diary.append(format!(" {:x}", sum(numbers) >> 48))?;
    Ok(write(book.as_ref(), &format!("link {place}"))?)
}

/// Adds up numbers of two chains.
#[task]
fn add(numbers: &mut Vec<u64>, others: &Vec<u64>) {
    for (number, other) in numbers.iter_mut().zip(others) {
        *number = number.wrapping_add(*other);
    }
}

/// A note that must be written once.
#[task(effect)]
fn note(book: PathBuf, place: u64) -> io::Result<u64> {
    write(Some(&book), &format!("note {place}"))?;
    Ok(place)
}

/// Returns another value on each run.
#[task(nondeterministic)]
fn salt() -> u64 {
    flow::random()
}

#[task]
fn is(salt: &u64, value: u64) -> bool {
    *salt == value
}

/// A value that differs on each run, and was read once.
struct Chance {
    salt: Data<u64>,
    grain: u64,
    started: SystemTime,
}

impl Chance {
    fn see() -> Result<Self, dataflow_framework::Failure> {
        let salt = salt();
        let grain = *salt.get()?;
        Ok(Self { salt, grain, started: flow::now() })
    }

    fn check_unchanged(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let is_it = *is(&self.salt, self.grain).get()? && self.started <= SystemTime::now();
        if is_it { Ok(()) } else { Err("something has two values".into()) }
    }
}

/// The sum of the numbers of all chains, made by calls in any order, in two ways.
type Sums = [Data<Vec<u64>>; 2];

fn added(chains: &[(Data<Vec<u64>>, Data<File>)], length: usize) -> Sums {
    let numbers: Vec<_> = chains.iter().map(|(numbers, _)| numbers.clone()).collect();
    let mut updated = Data::new(vec![0; length]);
    for numbers in &numbers {
        add(commute(&mut updated), numbers);
    }
    [reduce(numbers, add).any_order().expect("there is a chain"), updated]
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number))
}

/// Runs chains of calls that read from each other. Returns the content of the files of the chains.
///
/// # Errors
/// If a call fails, or data differs from that of an earlier run.
#[program(begin, link, add, note, salt, is)]
pub fn mesh(
    /// The number of chains.
    #[arg(default = 8, value_parser = clap::value_parser!(u64).range(1..))]
    width: u64,
    /// The number of links of each chain.
    #[arg(default = 12)]
    length: u64,
    /// The number of numbers of each chain.
    #[arg(long, default = 1000)]
    numbers: u64,
    /// A file with the number of links of each chain that may run; by default all.
    #[arg(long, value_name = "FILE")]
    gate: Option<Gate>,
    /// A file to which calls add lines: links when they start and end, notes once each. Without it there are
    /// no notes.
    #[arg(long)]
    book: Option<PathBuf>,
    /// The file to which the first diary is published, after the second link.
    #[arg(long)]
    report: Option<PathBuf>,
) -> Result<Vec<String>, Box<dyn Error + Send + Sync>> {
    let mut chains: Vec<_> = (0..width).map(|chain| begin(chain, numbers)).collect();
    // The program's further steps depend on its reads.
    let (mut seen, mut sums) = (0, Vec::new());
    let chance = book.as_ref().map(|_| Chance::see()).transpose()?;
    for place in 0..length {
        let before: Vec<Data<Vec<u64>>> = chains.iter().map(|(numbers, _)| numbers.clone()).collect();
        for (chain, (numbers, diary)) in chains.iter_mut().enumerate() {
            let neighbour = &before[(chain + 1 + seen) % before.len()];
            link(numbers, diary, neighbour, place, gate.clone(), book.clone());
        }
        if place % 4 == 1 {
            seen = usize::from(sum(&chains[0].0.get()?) % 2 == 1);
            if let Some(book) = &book {
                // The next links start once the note is written.
                note(book.clone(), place).get()?;
            }
        }
        if place % 3 == 2 && book.is_some() {
            sums.push(added(&chains, usize::try_from(numbers)?));
        }
        if let (1, Some(report)) = (place, &report) {
            chains[0].1.publish(report)?;
        }
    }
    if let Some(chance) = chance {
        chance.check_unchanged()?;
    }
    for [merged, updated] in sums {
        if *merged.get()? != *updated.get()? {
            return Err("a sum has two values".into());
        }
    }
    chains.iter().map(|(_, diary)| Ok(diary.get()?.read_to_string()?)).collect()
}
