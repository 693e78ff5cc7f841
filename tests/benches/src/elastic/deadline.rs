//! A job with a deadline: `taskwork scale` starts as few processes as suffice on this machine, and ends them
//! again.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use plotters::prelude::*;
use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, SOON, program};
use zk_server::Setup;

use super::{
    job::{Job, Size},
    lanes, plot, trace,
};
use crate::{machine, measure::Sample, walk::parts};

/// The deadlines, from the start of the controller, in seconds.
const DEADLINES_S: [u32; 3] = [75, 120, 240];
/// The maximum number of processes.
const NODES_MAX: usize = 12;
const LOOK_EVERY: Duration = Duration::from_millis(100);

const COLOURS: [RGBColor; DEADLINES_S.len()] =
    [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];

/// All measurements.
#[derive(Debug)]
pub struct Measured(Vec<Run>);

#[derive(Debug)]
struct Run {
    deadline_s: u32,
    /// The time from the start of the controller to the result.
    seconds: f64,
    /// The sum over all processes of the time from the first to the last state.
    nodes_s: f64,
    /// The time from the result until all processes have exited.
    gone_s: f64,
    /// The number of states that were visited more than once.
    again: u64,
    /// The number of nodes at work, from each moment on.
    at_work: Vec<(f64, usize)>,
}

impl Run {
    fn nodes_most(&self) -> usize {
        self.at_work.iter().map(|&(_, nodes)| nodes).max().unwrap_or_default()
    }
}

/// A cluster without nodes, for several consecutive runs.
struct Stage {
    cluster: Cluster,
    connector: PathBuf,
    jobs: usize,
}

impl Stage {
    fn new() -> Result<Self> {
        let cluster = Cluster::start(&Setup::standalone())?;
        let connector = cluster.folder().join("connector.json");
        // The controller does not own the processes: they exit by themselves if a measurement is aborted.
        let node = ["node", "--workers", "1", "--any-build", "--max-lifetime", "15m"];
        let path = program("walk")?;
        let path = path.to_str().context("a path that is not UTF-8")?;
        let content = json!({
            "kind": "local",
            "currency": "EUR",
            "program": ([&[path], &node[..]].concat()),
            "folder": "machines",
            "grace_s": 30,
            "offers": [{
                "name": "process", "workers": 1, "price_per_hour": 0.05, "max": NODES_MAX, "start_s": 1,
            }],
        });
        fs::write(&connector, content.to_string())?;
        Ok(Self { cluster, connector, jobs: 0 })
    }

    fn run(&mut self, deadline_s: u32) -> Result<Run> {
        self.jobs += 1;
        let (deadline, most) = (format!("{deadline_s}s"), NODES_MAX.to_string());
        let file = self.connector.to_str().context("a path that is not UTF-8")?;
        let began = Instant::now();
        let scale = ["scale", "--connector", file, "--min", "0", "--max", &most, "--deadline", &deadline];
        let controller = self
            .cluster
            .begin("taskwork", &[&scale[..], &["--every", "1", "--zk-session-timeout", "4"]].concat())?;
        let job = Job::submit(&self.cluster, Size::SHORT, self.jobs)?;
        let (folder, submitted_us) = (job.folder.clone(), job.submitted_us);
        let ended = job.end(&self.cluster).with_context(|| controller.errors())?;
        let over = Instant::now();
        let parts = parts(&folder)?;
        let nodes_s = parts.values().map(|part| (part.last_us - part.first_us) as f64 / 1e6).sum();
        while !self.nodes()?.is_empty() {
            ensure!(over.elapsed() < SOON, "nodes remain:\n{}", controller.errors());
            thread::sleep(LOOK_EVERY);
        }
        Ok(Run {
            deadline_s,
            seconds: over.duration_since(began).as_secs_f64(),
            nodes_s,
            gone_s: over.elapsed().as_secs_f64(),
            again: ended.again,
            at_work: trace::at_work(parts.values(), submitted_us),
        })
    }

    fn nodes(&self) -> Result<Vec<Value>> {
        let nodes = self.cluster.json("taskwork", &["nodes"])?;
        Ok(nodes.as_array().context("no list of nodes")?.clone())
    }
}

/// Runs the job with each deadline, on concurrent clusters.
///
/// # Errors
/// If a count is wrong, or a step takes too long.
pub fn run(rounds: usize) -> Result<Measured> {
    let work: Vec<u32> = (0..rounds).flat_map(|_| DEADLINES_S).collect();
    let runs = lanes::run(DEADLINES_S.len(), &work, Stage::new, |stage, &deadline_s| {
        let run = stage.run(deadline_s).with_context(|| format!("the deadline of {deadline_s} s"))?;
        eprintln!("  deadline of {deadline_s} s: {:.1} s, {} nodes at most", run.seconds, run.nodes_most());
        Ok(run)
    })?;
    Ok(Measured(runs))
}

impl Measured {
    fn of(&self, deadline_s: u32) -> impl Iterator<Item = &Run> {
        self.0.iter().filter(move |run| run.deadline_s == deadline_s)
    }

    /// Returns the table.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN).set_header([
            "deadline, s",
            "result, s",
            "in time",
            "most nodes",
            "time of all nodes, s",
            "processes gone after, s",
            "states visited again",
        ]);
        for deadline_s in DEADLINES_S {
            let of = |value: &dyn Fn(&Run) -> f64| Sample::of(self.of(deadline_s).map(value));
            let in_time = self.of(deadline_s).filter(|run| run.seconds <= f64::from(deadline_s)).count();
            let seconds = of(&|run| run.seconds);
            table.add_row([
                deadline_s.to_string(),
                format!("{:.1} ({:.1} to {:.1})", seconds.median, seconds.least, seconds.most),
                format!("{in_time} of {}", self.of(deadline_s).count()),
                format!("{}", of(&|run| run.nodes_most() as f64).median),
                format!("{:.0}", of(&|run| run.nodes_s).median),
                format!("{:.1}", of(&|run| run.gone_s).median),
                format!("{}", of(&|run| run.again as f64).most),
            ]);
        }
        table
    }

    /// Returns all runs.
    pub fn json(&self) -> Value {
        let runs = self.0.iter().map(|run| {
            json!({
                "deadline_s": run.deadline_s,
                "seconds": run.seconds,
                "nodes_s": run.nodes_s,
                "gone_s": run.gone_s,
                "states_visited_again": run.again,
                "at_work": run.at_work,
            })
        });
        json!({ "machine": machine::describe(), "states": Size::SHORT.states(), "runs": runs.collect::<Vec<_>>() })
    }

    /// Draws the numbers of nodes at work in the first run with each deadline.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::new(path, (760, 300)).into_drawing_area();
        root.fill(&WHITE)?;
        let right = plot::end_of_axis(DEADLINES_S.map(f64::from), 20.0);
        let mut chart = plot::chart(&root, (right, 0.0, NODES_MAX as f64))?;
        chart
            .configure_mesh()
            .x_desc("seconds since the submission (dotted: the deadline)")
            .y_desc("nodes at work")
            .draw()?;
        for (deadline_s, colour) in DEADLINES_S.into_iter().zip(COLOURS) {
            let Some(run) = self.of(deadline_s).next() else { continue };
            let at = f64::from(deadline_s);
            let ends = [(at, 0.0), (at, NODES_MAX as f64)];
            chart.draw_series(DashedLineSeries::new(ends, 2, 4, colour.stroke_width(1)))?;
            chart
                .draw_series(LineSeries::new(plot::corners(&run.at_work), colour.stroke_width(2)))?
                .label(format!("within {deadline_s} s"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        plot::legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        drop(chart);
        root.present()?;
        Ok(())
    }
}
