//! Parallel branch and bound: the states that more workers visit compared with one, the speedup of two, and
//! the time until solutions are good.
//!
//! States are counts, so their ratios hold on any machine, even with more workers than processors. If the
//! initial solution of a search is already the best one, all states have to be visited in any order.
//! Therefore the same is measured without heuristics, where more workers may find the best solution earlier
//! or later than one.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use taskwork_tests::{cluster::program, data};
use tempfile::TempDir;

use crate::{
    measure::Sample,
    row::{self, Row, Target},
};

/// The numbers of workers that are compared with one.
const WORKERS: [usize; 5] = [2, 4, 8, 16, 32];
/// The minimum time of one worker at which the speedup of two is measured, in seconds.
const LONG_S: f64 = 2.0;
/// The time of one worker from which each number of workers has a single run, in seconds.
const VERY_LONG_S: f64 = 60.0;
/// The time after which the gap is measured, in seconds.
const GAP_AFTER_S: u32 = 10;

/// An instance, and the way to solve it.
struct Given {
    name: String,
    program: &'static str,
    arguments: Vec<String>,
    /// The field of the result that holds the cost.
    field: &'static str,
}

/// Runs the instances on one worker and on more.
///
/// # Errors
/// If the results for an instance differ, or the published instances are missing.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let made = tempfile::tempdir()?;
    let (mut rows, mut ratios, mut ratios_bare) = (Vec::new(), Ratios::default(), Ratios::default());
    for given in instances(&made)? {
        eprintln!("  {} …", given.name);
        let first = rows.len();
        let measured = compare(&given, rounds)?;
        ratios.add(&measured.states);
        rows.extend(measured.rows);
        rows.extend(solutions(&given, measured.cost)?);
        let given = given.without_heuristics();
        if measured.is_very_long || !given.is_proven_soon()? {
            eprintln!("  {}: not within {VERY_LONG_S} s", given.name);
        } else {
            let measured = compare(&given, rounds)?;
            ratios_bare.add(&measured.states);
            rows.extend(measured.rows);
        }
        // All together take half an hour.
        eprintln!("{}", row::table(&rows[first..]));
    }
    rows.extend(ratios.rows("all"));
    rows.extend(ratios_bare.rows(&format!("all{BARE}")));
    Ok(rows)
}

/// The suffix for searches without heuristics.
const BARE: &str = ", without heuristics";

/// For each number of workers, the median ratio of states of each instance.
#[derive(Default)]
struct Ratios([Vec<f64>; WORKERS.len()]);

impl Ratios {
    fn add(&mut self, samples: &[Sample]) {
        for (sample, ratios) in samples.iter().zip(&mut self.0) {
            ratios.push(sample.median);
        }
    }

    fn rows(self, what: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for (workers, ratios) in WORKERS.iter().zip(self.0) {
            let median = match workers {
                8 => Target::AtMost(1.15),
                32 => Target::AtMost(1.3),
                _ => Target::Told,
            };
            let sample = Sample::of(ratios);
            rows.push(Row::new(format!("{what}: states on {workers} workers ÷ 1"), "", median, sample));
            let most = Sample::of([sample.most]);
            rows.push(Row::new(
                format!("{what}: the most on {workers} workers"),
                "",
                Target::AtMost(1.6),
                most,
            ));
        }
        rows
    }
}

/// The measurements of an instance.
struct Measured {
    cost: f64,
    /// The states on more workers, as a multiple of those on one.
    states: Vec<Sample>,
    rows: Vec<Row>,
    is_very_long: bool,
}

fn compare(given: &Given, rounds: usize) -> Result<Measured> {
    let mut ones = vec![given.solve(&["--workers", "1"])?];
    // Long ones are compared less often.
    let rounds = if number(&ones[0], "seconds")? > VERY_LONG_S { 1 } else { rounds };
    // Heuristics take a share of the time, so that states differ from run to run.
    for _ in 1..rounds {
        ones.push(given.solve(&["--workers", "1"])?);
    }
    let sample = |field: &str| -> Result<Sample> {
        let numbers: Result<Vec<f64>> = ones.iter().map(|one| number(one, field)).collect();
        Ok(Sample::of(numbers?))
    };
    let one = &ones[0];
    let (states, seconds) = (sample("states")?, sample("seconds")?);
    let mut rows = vec![
        Row::new(format!("{}: 1 worker", given.name), "states", Target::Told, states),
        Row::new(format!("{}: 1 worker", given.name), "s", Target::Told, seconds),
    ];
    let mut samples = Vec::new();
    for workers in WORKERS {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let many = given.solve(&["--workers", &workers.to_string()])?;
            ensure!(many[given.field] == one[given.field], "{}: {many} after {one}", given.name);
            ratios.push(number(&many, "states")? / states.median);
        }
        let sample = Sample::of(ratios);
        rows.push(Row::new(
            format!("{}: states on {workers} workers ÷ 1", given.name),
            "",
            Target::Told,
            sample,
        ));
        samples.push(sample);
    }
    if seconds.median > LONG_S {
        let mut speedups = Vec::new();
        for _ in 0..rounds.min(3) {
            let [one, two] = ["1", "2"].map(|workers| given.solve(&["--workers", workers]));
            speedups.push(number(&one?, "seconds")? / number(&two?, "seconds")?);
        }
        let what = format!("{}: speedup of 2 workers", given.name);
        rows.push(Row::new(what, "", Target::AtLeast(1.85), Sample::of(speedups)));
    }
    let is_very_long = seconds.median > VERY_LONG_S;
    Ok(Measured { cost: number(one, given.field)?, states: samples, rows, is_very_long })
}

/// Measures the time until solutions are good.
fn solutions(given: &Given, cost: f64) -> Result<Vec<Row>> {
    let target = if given.maximises() { (cost * 0.99).ceil() } else { (cost * 1.01).floor() };
    let near = given.solve(&["--workers", "2", "--target", &target.to_string()])?;
    let seconds = Sample::of([number(&near, "seconds")?]);
    let limit = GAP_AFTER_S.to_string();
    let stopped = given.solve(&["--workers", "2", "--time-limit", &limit])?;
    let what = |what: &str| format!("{}: {what}", given.name);
    let mut rows =
        vec![Row::new(what("a solution within 1 % of the optimum after"), "s", Target::Told, seconds)];
    // Costs may have no gap, such as a best of 0.
    if let Some(gap) = stopped["gap"].as_f64() {
        let gap = Sample::of([gap]).times(100.0);
        rows.push(Row::new(what(&format!("gap after {limit} s")), "%", Target::Told, gap));
    }
    Ok(rows)
}

impl Given {
    /// Returns the same instance without heuristics.
    fn without_heuristics(mut self) -> Self {
        self.name += BARE;
        self.arguments.extend(["--heuristics", "0"].map(str::to_owned));
        if self.program == "tsp" {
            self.arguments.extend(["--start", "none"].map(str::to_owned));
        }
        self
    }

    /// Returns whether one worker proves its result within [`VERY_LONG_S`].
    fn is_proven_soon(&self) -> Result<bool> {
        let limit = VERY_LONG_S.to_string();
        let said = self.solve(&["--workers", "1", "--time-limit", &limit])?;
        said["proven"].as_bool().with_context(|| format!("there is no field proven: {said}"))
    }

    fn maximises(&self) -> bool {
        matches!(self.field, "vertices" | "value")
    }

    fn solve(&self, more: &[&str]) -> Result<Value> {
        let mut command = Command::new(program(self.program)?);
        command.args(["solve", "--quiet", "--json"]).args(&self.arguments).args(more);
        let said = command.output()?;
        // The exit code 1 means that a limit has stopped the search.
        ensure!(
            matches!(said.status.code(), Some(0 | 1)),
            "{}: {}: {}",
            self.name,
            said.status,
            String::from_utf8_lossy(&said.stderr)
        );
        let answer: Value = serde_json::from_slice(&said.stdout)
            .with_context(|| format!("{}: {}", self.name, String::from_utf8_lossy(&said.stderr)))?;
        Ok(answer)
    }
}

fn number(said: &Value, field: &str) -> Result<f64> {
    said[field].as_f64().with_context(|| format!("there is no {field}: {said}"))
}

fn instances(made: &TempDir) -> Result<Vec<Given>> {
    let folder = data::folder().context("no published instances")?;
    let published = |name: &str, program, file: &str, field| Given {
        name: name.to_owned(),
        program,
        arguments: vec![folder.join(file).display().to_string()],
        field,
    };
    let (graph, items) = (made.path().join("graph.clq"), made.path().join("items.txt"));
    dense_graph(&graph)?;
    hard_items(&items)?;
    let made = |name: &str, program, file: &Path, field| Given {
        name: name.to_owned(),
        program,
        arguments: vec![file.display().to_string()],
        field,
    };
    let ta017 = ["--seed", "73807235", "--jobs", "20", "--machines", "10"].map(str::to_owned).to_vec();
    Ok(vec![
        published("brock400_4", "maxclique", "clique/brock400_4.clq", "vertices"),
        published("p_hat300-3", "maxclique", "clique/p_hat300-3.clq", "vertices"),
        made("random graph of 200 vertices, density 0.9", "maxclique", &graph, "vertices"),
        published("ta012", "flowshop", "flowshop/ta012", "makespan"),
        Given { name: "ta017".to_owned(), program: "flowshop", arguments: ta017, field: "makespan" },
        published("ta022", "flowshop", "flowshop/ta022", "makespan"),
        published("nug15", "qap", "qap/nug15.dat", "cost"),
        published("kroA100", "tsp", "tsp/kroA100.tsp", "length"),
        published("ry48p", "tsp", "atsp/ry48p.atsp", "length"),
        made("strongly correlated knapsack of 500 items", "knapsack", &items, "value"),
    ])
}

/// Writes a random graph with 200 vertices and nine in ten of all possible edges.
fn dense_graph(file: &Path) -> Result<()> {
    const VERTICES: usize = 200;
    let mut random = StdRng::seed_from_u64(9);
    let mut edges = Vec::new();
    for i in 1..=VERTICES {
        edges.extend((1..i).filter(|_| random.random_bool(0.9)).map(|j| (i, j)));
    }
    let mut text = format!("p edge {VERTICES} {}\n", edges.len());
    for (i, j) in edges {
        writeln!(text, "e {i} {j}")?;
    }
    Ok(fs::write(file, text)?)
}

/// Writes a knapsack with each value equal to the weight plus a constant (D. Pisinger, Where are the hard
/// knapsack problems?, 2005).
fn hard_items(file: &Path) -> Result<()> {
    const ITEMS: u64 = 500;
    const RANGE: u64 = 1000;
    let mut random = StdRng::seed_from_u64(5);
    let weights: Vec<u64> = (0..ITEMS).map(|_| random.random_range(1..=RANGE)).collect();
    let mut text = format!("{ITEMS} {}\n", weights.iter().sum::<u64>() / 3);
    for weight in weights {
        writeln!(text, "{} {weight}", weight + RANGE / 10)?;
    }
    Ok(fs::write(file, text)?)
}
