//! The program `shapes`: workflows of tasks that do nothing, or wait, in the shapes of known programs. It
//! reports the duration of its calls, excluding any start-up.

use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

use dataflow_examples::sparse_lu::is_empty;
use dataflow_framework::{
    Data, Program, TaskDef, barrier,
    cli::{Command, Failure, Shown},
    reduce, task, tasks,
};
use serde::{Deserialize, Serialize};

/// A shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Shape {
    /// Independent calls.
    Independent,
    /// Calls that each depend on the previous one.
    Chain,
    /// The product of two matrices of blocks.
    Product,
    /// The LU factorisation of a sparse matrix of blocks.
    Lu,
    /// Rounds of calls that are reduced to one value, on which the next round depends.
    Rounds,
    /// Independent calls, and one that waits after all have completed.
    Again,
}

/// The calls to make.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The shape.
    #[arg(value_enum)]
    pub shape: Shape,
    /// The number of calls, of blocks in each direction, or of calls of a round.
    pub size: usize,
    /// The time for which a call waits, in microseconds.
    #[arg(long, default_value_t = 0)]
    pub wait_us: u64,
    /// The number of rounds.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ran {
    /// The time from the first call to the last result, in seconds.
    pub seconds: f64,
    /// The sum computed by the calls, which is known in advance.
    pub sum: u64,
}

fn wait(wait_us: u64) {
    if wait_us > 0 {
        thread::sleep(Duration::from_micros(wait_us));
    }
}

/// Checks the inputs of a task: each value that a call has written is at least one.
fn assert_written<const N: usize>(read: [&u64; N]) {
    assert!(read.iter().all(|value| **value > 0), "a call was run before those that it needs");
}

#[task]
fn one(wait_us: u64) -> u64 {
    wait(wait_us);
    1
}

#[task]
fn count(of: &mut u64, wait_us: u64) {
    wait(wait_us);
    *of += 1;
}

#[task]
fn multiply(a: &u64, b: &u64, c: &mut u64, wait_us: u64) {
    wait(wait_us);
    *c += a * b;
}

#[task]
fn from_one(pivot: &u64, of: &mut u64, wait_us: u64) {
    assert_written([pivot]);
    count::now(of, wait_us);
}

#[task]
fn from_two(left: &u64, above: &u64, of: &mut u64, wait_us: u64) {
    assert_written([left, above]);
    count::now(of, wait_us);
}

#[task]
fn new_from_two(left: &u64, above: &u64, wait_us: u64) -> u64 {
    assert_written([left, above]);
    one::now(wait_us)
}

#[task]
fn one_of(fragment: &u64, centres: &u64, wait_us: u64) -> u64 {
    assert_written([fragment, centres]);
    one::now(wait_us)
}

#[task]
fn add(to: &mut u64, more: &u64) {
    *to += more;
}

/// Returns the tasks of the program.
pub fn tasks() -> Vec<&'static TaskDef> {
    tasks![one, count, multiply, from_one, from_two, new_from_two, one_of, add].to_vec()
}

type Ended<T> = Result<T, dataflow_framework::Failure>;

fn sum(all: impl IntoIterator<Item = Data<u64>>) -> Ended<u64> {
    all.into_iter().map(|data| data.get().map(|value| *value)).sum()
}

fn product(size: usize, wait_us: u64) -> Ended<(Instant, u64)> {
    let matrix = || -> Vec<Vec<_>> { (0..size).map(|_| (0..size).map(|_| one(0)).collect()).collect() };
    let (a, b, mut c) = (matrix(), matrix(), matrix());
    // The blocks exist before the clock starts.
    sum(a.iter().chain(&b).flatten().cloned())?;
    let started = Instant::now();
    for i in 0..size {
        for j in 0..size {
            for k in 0..size {
                multiply(&a[i][k], &b[k][j], &mut c[i][j], wait_us);
            }
        }
    }
    Ok((started, sum(c.into_iter().flatten())?))
}

/// Every call adds one to its block, so the sum of all is their number.
#[allow(clippy::needless_range_loop, reason = "as in the books")]
fn lu(size: usize, wait_us: u64) -> Ended<u64> {
    let make = |row, column| (!is_empty(row, column)).then(|| one(wait_us));
    let mut a: Vec<Vec<Option<Data<u64>>>> =
        (0..size).map(|row| (0..size).map(|column| make(row, column)).collect()).collect();
    for k in 0..size {
        let Some(pivot) = &mut a[k][k] else { unreachable!("no block on the diagonal is empty") };
        count(pivot, wait_us);
        let pivot = pivot.clone();
        for right in a[k][k + 1..].iter_mut().flatten() {
            from_one(&pivot, right, wait_us);
        }
        for i in k + 1..size {
            let Some(left) = &mut a[i][k] else { continue };
            from_one(&pivot, left, wait_us);
            let left = left.clone();
            for j in k + 1..size {
                let Some(above) = a[k][j].clone() else { continue };
                match &mut a[i][j] {
                    Some(inner) => from_two(&left, &above, inner, wait_us),
                    none => *none = Some(new_from_two(&left, &above, wait_us)),
                }
            }
        }
    }
    sum(a.into_iter().flatten().flatten())
}

fn in_rounds(size: usize, rounds: usize, wait_us: u64) -> Ended<(Instant, u64)> {
    let fragments: Vec<_> = (0..size).map(|_| one(0)).collect();
    let mut centres = sum(fragments.iter().cloned())?;
    let started = Instant::now();
    for _ in 0..rounds {
        let current = Data::new(centres);
        let ones: Vec<_> = fragments.iter().map(|fragment| one_of(fragment, &current, wait_us)).collect();
        centres = reduce(ones, add).data().map_or(Ok(0), |total| total.get().map(|total| *total))?;
    }
    Ok((started, centres))
}

/// The program's log message before the last call.
pub(super) const HAVE_ENDED: &str = "all calls but one have ended";

fn again(size: usize, wait_us: u64) -> Ended<u64> {
    let all: Vec<_> = (0..size).map(|_| one(0)).collect();
    barrier()?;
    eprintln!("{HAVE_ENDED}");
    let last = *one(wait_us).get()?;
    Ok(last + all.len() as u64)
}

/// Makes the calls.
///
/// # Errors
/// If a call fails.
pub fn program(input: Input) -> Ended<Ran> {
    let Input { shape, size, wait_us, rounds } = input;
    let started = Instant::now();
    let (started, sum) = match shape {
        Shape::Independent => (started, sum((0..size).map(|_| one(wait_us)).collect::<Vec<_>>())?),
        Shape::Chain => {
            let mut counter = Data::new(0);
            (0..size).for_each(|_| count(&mut counter, wait_us));
            (started, *counter.get()?)
        }
        Shape::Product => product(size, wait_us)?,
        Shape::Lu => (started, lu(size, wait_us)?),
        Shape::Rounds => in_rounds(size, rounds, wait_us)?,
        Shape::Again => (started, again(size, wait_us)?),
    };
    Ok(Ran { seconds: started.elapsed().as_secs_f64(), sum })
}

/// The program `shapes`.
#[derive(Debug)]
pub struct Shapes;

impl Program for Shapes {
    type Arguments = Input;
    type Output = Ran;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks()
    }

    fn run(input: &Input) -> Result<Ran, Box<dyn Error + Send + Sync>> {
        Ok(program(*input)?)
    }
}

impl Command for Shapes {
    const NAME: &'static str = "shapes";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Runs calls that do nothing, or wait";
    type Options = Input;

    fn arguments(input: Input) -> Result<Input, Failure> {
        Ok(input)
    }

    fn show(ran: Ran) -> Shown {
        Shown::done(format!("{:.3} s", ran.seconds), serde_json::json!(ran))
    }
}
