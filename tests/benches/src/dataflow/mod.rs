//! Workflows: the cost of a call, and the efficiency of tasks that work or wait.

mod again;
mod list;
pub mod shapes;

use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use dataflow_examples::matmul;
use dataflow_framework::{Program as _, Workflow};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use self::{
    list::Calls,
    shapes::{Input, Ran, Shape},
};
use crate::{
    cluster::PATIENCE,
    measure::{Contender, Sample, in_turn},
    row::{Row, Target},
};

/// The number of calls that do nothing.
const CALLS: usize = 10_000;
/// The number of processes of the waiting tasks.
const PROCESSES: usize = 16;
/// The number of workers of each process.
const WORKERS: usize = 4;
/// The maximum number of times that the node of a program is lost; each takes 15 s.
const AGAIN_MAX: usize = 3;

/// Runs all workflow benchmarks.
///
/// # Errors
/// If a program gives a wrong answer, or none.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Rows::default();
    here(rounds, &mut rows)?;
    two_processes(rounds, &mut rows)?;
    for row in real_product(rounds)? {
        rows.add(row);
    }
    waiting_here(&mut rows)?;
    waiting_processes(&mut rows)?;
    rows.add(again::run(rounds.min(AGAIN_MAX))?);
    Ok(rows.0)
}

/// The figures so far. Each is printed as it is measured, since all of them take some minutes.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.0.push(row);
    }
}

/// Returns a figure in microseconds by call.
fn by_call(what: &str, target: Target, seconds: &[f64]) -> Row {
    Row::new(what, "µs", target, Sample::of(seconds.iter().map(|seconds| seconds * 1e6 / CALLS as f64)))
}

/// Runs a program on the threads of this process.
fn run_here(input: Input, workers: usize, sum: u64) -> Result<f64> {
    let ran = Workflow::new(shapes::tasks())?.workers(workers).run(|| shapes::program(input))?;
    check(ran, sum)
}

fn check(ran: Ran, sum: u64) -> Result<f64> {
    ensure!(ran.sum == sum, "the calls add up to {}, not to {sum}", ran.sum);
    Ok(ran.seconds)
}

fn empty(shape: Shape) -> Input {
    Input { shape, size: CALLS, wait_us: 0, rounds: 1 }
}

/// Measures calls that do nothing in one process.
fn here(rounds: usize, rows: &mut Rows) -> Result<()> {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let runs = [(Shape::Independent, 1), (Shape::Independent, 2), (Shape::Chain, 2)];
    for round in 0..=rounds {
        for ((shape, workers), times) in runs.iter().zip(&mut times) {
            let seconds = run_here(empty(*shape), *workers, CALLS as u64)?;
            if round > 0 {
                times.push(seconds);
            }
        }
    }
    let [one, two, chain] = times;
    rows.add(by_call("an empty task, of 10,000 independent ones, 1 worker", Target::AtMost(3.0), &one));
    rows.add(by_call("an empty task, of 10,000 independent ones, 2 workers", Target::AtMost(3.0), &two));
    rows.add(by_call("a link of a chain of 10,000, 2 workers", Target::AtMost(10.0), &chain));
    Ok(())
}

fn start(processes: usize, workers: usize) -> Result<Cluster> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    cluster.start_nodes("shapes", processes, &["--workers", &workers.to_string()])?;
    Ok(cluster)
}

/// Runs a program on node processes.
fn submit(cluster: &Cluster, shape: &str, more: &[&str], sum: u64) -> Result<f64> {
    let job = cluster.begin("shapes", &[&["submit", shape, "--wait", "--quiet", "--json"], more].concat())?;
    let said = job.end_within(PATIENCE)?;
    ensure!(said.code == 0, "shapes has failed: {}", said.err);
    check(serde_json::from_str(&said.out).context("shapes printed no JSON")?, sum)
}

/// Measures calls that do nothing on two node processes.
fn two_processes(rounds: usize, rows: &mut Rows) -> Result<()> {
    let cluster = start(2, 1)?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (shape, times) in ["independent", "chain"].iter().zip(&mut times) {
            let seconds = submit(&cluster, shape, &[&CALLS.to_string()], CALLS as u64)?;
            if round > 0 {
                times.push(seconds);
            }
        }
    }
    let [independent, chain] = times;
    let what = "an empty task, of 10,000 independent ones, 2 processes";
    rows.add(by_call(what, Target::AtMost(25.0), &independent));
    rows.add(by_call("a link of a chain of 10,000, 2 processes", Target::AtMost(200.0), &chain));
    Ok(())
}

/// Compares a product of blocks by two workers with loops that call the same functions.
fn real_product(rounds: usize) -> Result<[Row; 2]> {
    let input = matmul::Input { blocks: 8, size: 200, wait_ms: 0 };
    let expected = by_hand(input, 0..input.blocks);
    let contenders = vec![
        Contender::new("loop", || {
            ensure!(by_hand(input, 0..input.blocks) == expected, "the loop does not repeat");
            Ok(())
        }),
        Contender::new("two loops", || {
            let middle = input.blocks / 2;
            let sums = thread::scope(|scope| {
                let other = scope.spawn(|| by_hand(input, 0..middle));
                let mine = by_hand(input, middle..input.blocks);
                other.join().map(|others| [others, mine].concat())
            });
            ensure!(sums.is_ok_and(|sums| sums == expected), "the halves differ from the whole");
            Ok(())
        }),
        Contender::new("workflow", || {
            let product = Workflow::new(matmul::matmul::tasks())?.workers(2).run(|| matmul::matmul(input))?;
            ensure!(product.blocks == expected, "the product differs from that of the loop");
            Ok(())
        }),
    ];
    let times = in_turn(rounds, contenders)?;
    let what = |rest: &str| format!("8 × 8 blocks of 200 × 200 multiplied, 2 workers ÷ {rest}");
    Ok([
        Row::new(what("loop"), "", Target::AtLeast(1.92), times.speedup("workflow", "loop")),
        Row::new(
            what("two loops side by side, each of one half"),
            "",
            Target::AtLeast(0.96),
            times.speedup("workflow", "two loops"),
        ),
    ])
}

/// Multiplies by a loop, and returns the sums of the blocks in these rows of the product.
#[allow(clippy::needless_range_loop, reason = "as in the program")]
fn by_hand(input: matmul::Input, rows: Range<usize>) -> Vec<f64> {
    let matmul::Input { blocks, size, .. } = input;
    let row = |row, factor| -> Vec<matmul::Block> {
        (0..blocks).map(|column| matmul::block::now(size, row, column, factor)).collect()
    };
    let a: Vec<_> = rows.map(|index| row(index, 1.0)).collect();
    let b: Vec<_> = (0..blocks).map(|index| row(index, -0.25)).collect();
    let mut sums = Vec::new();
    for i in 0..a.len() {
        for j in 0..blocks {
            let mut c = matmul::zeros::now(size);
            for k in 0..blocks {
                matmul::multiply::now(&a[i][k], &b[k][j], &mut c, 0);
            }
            sums.push(c.iter().sum());
        }
    }
    sums
}

/// Returns the actual duration of a wait of this length, in seconds.
fn really(wait_us: u64) -> f64 {
    let started = Instant::now();
    for _ in 0..50 {
        thread::sleep(Duration::from_micros(wait_us));
    }
    started.elapsed().as_secs_f64() / 50.0
}

fn efficiency(what: &str, target: f64, ideal: f64, seconds: f64) -> Row {
    Row::new(what, "", Target::AtLeast(target), Sample::of([ideal / seconds]))
}

/// Measures the sparse factorisation on waiting threads against its list schedule.
fn waiting_here(rows: &mut Rows) -> Result<()> {
    let (calls, wait_us) = (Calls::of_lu(64), 20_000);
    let input = Input { shape: Shape::Lu, size: 64, wait_us, rounds: 1 };
    let unit = really(wait_us);
    for workers in [32, 64, 128] {
        let seconds = run_here(input, workers, calls.len() as u64)?;
        let what = format!("sparse LU of 64 × 64 blocks, {workers} threads that wait for 20 ms");
        rows.add(efficiency(&what, 0.97, calls.schedule(workers) as f64 * unit, seconds));
    }
    Ok(())
}

/// Measures tasks that wait on sixteen processes of four workers.
fn waiting_processes(rows: &mut Rows) -> Result<()> {
    let cluster = start(PROCESSES, WORKERS)?;
    let workers = (PROCESSES * WORKERS) as f64;
    let of = "16 processes of 4 workers";
    let unit = really(20_000);
    let product = submit(&cluster, "product", &["32", "--wait-us", "40000"], 32 * 32 * 33)?;
    let ideal = f64::from(32 * 32 * 32) / workers * really(40_000);
    let what = format!("32 × 32 blocks multiplied, {of} that wait for 40 ms");
    rows.add(efficiency(&what, 0.97, ideal, product));
    let calls = Calls::of_lu(64);
    let lu = submit(&cluster, "lu", &["64", "--wait-us", "20000"], calls.len() as u64)?;
    let ideal = calls.schedule(PROCESSES * WORKERS) as f64 * unit;
    let what = format!("sparse LU of 64 × 64 blocks, {of} that wait for 20 ms");
    rows.add(efficiency(&what, 0.97, ideal, lu));
    let rounds = submit(&cluster, "rounds", &["4096", "--rounds", "5", "--wait-us", "20000"], 4096)?;
    let ideal = 5.0 * 4096.0 / workers * unit;
    let what = format!("5 rounds of k-means, 4,096 fragments, {of} that wait for 20 ms");
    rows.add(efficiency(&what, 0.95, ideal, rounds));
    Ok(())
}
