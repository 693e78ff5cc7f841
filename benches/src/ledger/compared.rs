//! The same jobs on nodes that write their holdings, and on nodes that do not: alternately, on the same
//! ZooKeeper, by the same program.

use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::Cluster, data};
use zk_server::Setup;

use super::progress;
use crate::{
    cluster::PATIENCE,
    measure::Sample,
    row::{Row, Target},
};

/// The number of pairs in each round: jobs of a few seconds need many to resolve one percent.
const PAIRS: usize = 2;
/// The size of the cluster for which writes are extrapolated, and their bound.
const MANY: (f64, f64) = (100.0, 1_000.0);
/// The operating system's unit of processor time.
const TICKS_BY_S: f64 = 100.0;

/// The write intervals of the nodes of one cluster.
#[derive(Clone, Copy)]
struct Writing {
    /// The name of their cluster.
    name: &'static str,
    /// Its place among the clusters, in the order in which their nodes were started.
    place: usize,
    interval_ms: u32,
    pause_ms: u32,
}

const WITH: Writing = Writing { name: "with", place: 0, interval_ms: 1_000, pause_ms: 1 };
const WITHOUT: Writing = Writing { name: "without", place: 1, interval_ms: 0, pause_ms: 1 };
/// Four nodes with the pause between two writes of a cluster of 100.
const AS_OF_MANY: Writing = Writing { name: "as-of-many", place: 2, interval_ms: 1_000, pause_ms: 33 };

/// A job with its result.
struct Measured {
    program: &'static str,
    /// The argument of `submit`, a file if there is one of that name.
    instance: &'static str,
    /// The name and value of its result.
    answer: (&'static str, u64),
    /// The name of the number of states that were visited.
    states: &'static str,
    /// Whether much is stolen, so that the durations of steals are compared.
    steals: bool,
}

const JOBS: [Measured; 3] = [
    Measured {
        program: "uts",
        instance: "T1L",
        answer: ("nodes", 102_181_082),
        states: "nodes",
        steals: false,
    },
    Measured {
        program: "uts",
        instance: "T3L",
        answer: ("nodes", 111_345_631),
        states: "nodes",
        steals: true,
    },
    Measured {
        program: "maxclique",
        instance: "clique/brock400_4.clq",
        answer: ("vertices", 33),
        states: "states",
        steals: false,
    },
];

/// The measurements of one job.
struct Took {
    /// States by second.
    rate: f64,
    /// States by second of processor time of the nodes and ZooKeeper: other load on the machine matters less.
    economy: f64,
    /// The median duration of a steal, in microseconds.
    steal_us: f64,
    /// ZooKeeper's writes, per node and second.
    writes: f64,
    /// ZooKeeper's share of all processors.
    server: f64,
}

/// Runs the comparison on two and on four processes with one worker each.
/// If a result is wrong.
/// # Errors
/// If an answer is wrong.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in [2, 4] {
        for job in &JOBS {
            if job.program != "maxclique" || data::folder().is_some() {
                rows.extend(compare(job, nodes, rounds)?);
            }
        }
    }
    Ok(rows)
}

fn compare(job: &Measured, nodes: usize, rounds: usize) -> Result<Vec<Row>> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    let counts_writes = job.steals && nodes == 4;
    for Writing { name, interval_ms, pause_ms, .. } in [WITH, WITHOUT, AS_OF_MANY] {
        let (interval, pause) = (interval_ms.to_string(), pause_ms.to_string());
        let node = [job.program, "--ledger-interval-ms", &interval, "--ledger-pause-ms", &pause];
        if name != AS_OF_MANY.name || counts_writes {
            cluster.start_nodes("limited", nodes, &[&node[..], &["--cluster", name]].concat())?;
        }
    }
    let what = format!("{}, {nodes} processes", job.instance);
    let (mut ratios, mut economy) = (Vec::new(), Vec::new());
    let (mut steals, mut writes, mut server) = (Vec::new(), Vec::new(), Vec::new());
    let pairs = rounds * PAIRS;
    // The first pair does not count.
    for pair in 0..=pairs {
        let measure = |writing| job.run(&cluster, nodes, writing);
        // The second of a pair finds warmer caches.
        let (with, without) = if pair % 2 == 0 {
            let with = measure(WITH)?;
            (with, measure(WITHOUT)?)
        } else {
            let without = measure(WITHOUT)?;
            (measure(WITH)?, without)
        };
        if pair > 0 {
            ratios.push(with.rate / without.rate);
            economy.push(with.economy / without.economy);
            progress(&what, pair - 1, pairs, with.rate / without.rate);
            steals.push((with.steal_us, without.steal_us));
            writes.push((with.writes, without.writes));
            server.push((with.server, without.server));
        }
    }
    let row = |text: &str, unit, target, sample| Row::new(format!("{what}, {text}"), unit, target, sample);
    let told = |text: &str, unit, values: Vec<f64>| row(text, unit, Target::Told, Sample::of(values));
    let of = |pairs: &[(f64, f64)]| -> (Vec<f64>, Vec<f64>) { pairs.iter().copied().unzip() };
    let mut rows = vec![
        row("states by second, with ÷ without", "", Target::AtLeast(0.98), Sample::of(ratios)),
        told("states by second of processor time, with ÷ without", "", economy),
    ];
    if job.steals {
        let ratio = Sample::of(steals.iter().map(|(with, without)| with / without));
        let (with, without) = of(&steals);
        rows.push(told("median steal, with", "µs", with));
        rows.push(told("median steal, without", "µs", without));
        // The same as before, within the resolution of the histogram, whose classes are 1.4 wide.
        rows.push(row("median steal, with ÷ without", "", Target::AtMost(1.1), ratio));
    }
    let (with, without) = of(&writes);
    if counts_writes {
        let measure = |_| Ok(job.run(&cluster, nodes, AS_OF_MANY)?.writes);
        let by_node = (0..rounds).map(measure).collect::<Result<Vec<_>>>()?;
        rows.push(many(&format!("{what} that pause as 100 do"), Sample::of(by_node)));
    }
    rows.push(told("ZooKeeper's writes by node, with", "/s", with));
    rows.push(told("ZooKeeper's writes by node, without", "/s", without));
    let (with, without) = of(&server);
    rows.push(told("ZooKeeper's share of the processors, with", "", with));
    rows.push(told("ZooKeeper's share of the processors, without", "", without));
    Ok(rows)
}

/// Extrapolates the writes per node and second to all nodes of a large cluster.
pub(super) fn many(what: &str, by_node: Sample) -> Row {
    let (nodes, most) = MANY;
    let what = format!("{what}, ZooKeeper's writes, extrapolated to {nodes:.0} nodes");
    Row::new(what, "/s", Target::AtMost(most), by_node.times(nodes))
}

impl Measured {
    fn run(&self, cluster: &Cluster, nodes: usize, writing: Writing) -> Result<Took> {
        let file = data::folder().map(|folder| folder.join(self.instance)).filter(|file| file.is_file());
        let instance = file.as_deref().map_or(Some(self.instance), |file| file.to_str());
        let instance = instance.context("a path that is not UTF-8")?;
        let (name, first) = (writing.name, writing.place * nodes);
        let nodes_s = || {
            let own = cluster.nodes[first..first + nodes].iter();
            own.map(|node| processor_s(node.id())).sum::<Result<f64>>()
        };
        let server = cluster.servers().process_id(0).context("ZooKeeper does not run")?;
        let (before, server_s, own_s) = (writes(cluster)?, processor_s(server)?, nodes_s()?);
        let job = ["submit", instance, "--any-build", "--cluster", name, "--wait", "--quiet", "--json"];
        let said = cluster.begin(self.program, &job)?.end_within(PATIENCE)?;
        let (server_s, own_s) = (processor_s(server)? - server_s, nodes_s()? - own_s);
        let written = writes(cluster)? - before;
        ensure!(said.code == 0, "{} has failed: {said:?}\n{}", self.program, cluster.logs());
        let said: Value = serde_json::from_str(&said.out).context("the program printed no JSON")?;
        let (found, answer) = self.answer;
        ensure!(said[found] == answer, "{} has {answer} {found}: {said}", self.instance);
        let number = |name: &str| said[name].as_f64().with_context(|| format!("no {name}: {said}"));
        let (seconds, states) = (number("seconds")?, number(self.states)?);
        Ok(Took {
            rate: states / seconds,
            economy: states / (own_s + server_s),
            steal_us: median_us(&said["figures"]["steal_times"])?,
            writes: written / seconds / nodes as f64,
            server: server_s / seconds / thread::available_parallelism()?.get() as f64,
        })
    }
}

/// Returns the number of writes, including multis, that the server has executed so far.
pub(super) fn writes(cluster: &Cluster) -> Result<f64> {
    let figures = cluster.servers().figures(0)?;
    Ok(figures.get("cnt_updatelatency").context("ZooKeeper does not count its writes")?.parse()?)
}

/// Returns the processor time that a process has used so far, in seconds.
fn processor_s(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the command may contain spaces.
    let (_, fields) = status.rsplit_once(") ").context("a status without a command")?;
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| Ok(ticks.parse::<f64>()?));
    Ok(ticks.sum::<Result<f64>>()? / TICKS_BY_S)
}

/// The upper end of the first class of a histogram of steals, in microseconds; each further class is √2 times
/// as long.
const FIRST_CLASS_US: f64 = 7.812;

/// Returns the median of a histogram of durations, interpolated within its class.
fn median_us(histogram: &Value) -> Result<f64> {
    let classes: Vec<f64> = serde_json::from_value(histogram.clone()).context("no durations of steals")?;
    let half = classes.iter().sum::<f64>() / 2.0;
    let mut before = 0.0;
    for (class, times) in (0..).zip(&classes) {
        if *times > 0.0 && before + times >= half {
            let place = f64::from(class) - 1.0 + (half - before) / times;
            return Ok(FIRST_CLASS_US * std::f64::consts::SQRT_2.powf(place));
        }
        before += times;
    }
    anyhow::bail!("nothing was stolen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_lies_within_its_class() {
        let median = |classes: &[u32]| median_us(&serde_json::json!(classes)).unwrap();
        assert!((median(&[0, 2, 0]) - FIRST_CLASS_US * 2.0_f64.powf(0.25)).abs() < 1e-9);
        assert!((median(&[1, 1, 0]) - FIRST_CLASS_US).abs() < 1e-9);
        assert!(median_us(&serde_json::json!([0, 0])).is_err());
    }
}
