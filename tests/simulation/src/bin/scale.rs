//! `scale`: measures how the runtime scales, prints a table, writes JSON and a plot.

use std::{error::Error, fs, path::PathBuf};

use clap::Parser;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use plotters::prelude::*;
use taskwork_simulation::scale::{Losses, Point, Share, measure, measure_losses};

/// Simulate clusters with more and more nodes and print their performance.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench scale")]
struct Arguments {
    /// The numbers of nodes.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 20, 50, 100, 200, 500, 1000])]
    nodes: Vec<usize>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure instead the cost of losing a node every this many seconds, and of the state that nodes write
    /// as a precaution.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    lost_every_s: Option<u64>,
    /// The folder for `scale.json` and `scale.svg`, or for `losses.json`.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// The minimum efficiency with lost nodes.
const EFFICIENCY_MIN: f64 = 0.9;
/// The maximum number of writes per second, and the largest cluster to which it applies.
const WRITES_MAX: (f64, usize) = (1_000.0, 100);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(every_s) = arguments.lost_every_s {
        return losses(&arguments, every_s);
    }
    let mut points = Vec::new();
    for &nodes in &arguments.nodes {
        eprintln!("{nodes} nodes …");
        points.push(measure(nodes, arguments.seed));
    }
    println!("{}", table(&points));
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("scale.json"), serde_json::to_string_pretty(&json(&points))? + "\n")?;
        plot(&folder.join("scale.svg"), &points)?;
    }
    Ok(())
}

fn losses(arguments: &Arguments, every_s: u64) -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::new();
    for &nodes in &arguments.nodes {
        eprintln!("{nodes} nodes, one lost every {every_s} s …");
        measured.push(measure_losses(nodes, arguments.seed, every_s));
    }
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "nodes",
        "lost",
        "efficiency without",
        "with losses",
        "writes a s without",
        "with losses",
        "reached",
    ]);
    let (writes_max, small) = WRITES_MAX;
    let reached = |it: &Losses| {
        let few_writes = it.nodes > small || it.lossy.writes_per_s <= writes_max;
        it.lossy.efficiency >= EFFICIENCY_MIN && few_writes
    };
    for it in &measured {
        let Losses { nodes, lost, steady, lossy } = it;
        table.add_row([
            nodes.to_string(),
            lost.to_string(),
            format!("{:.3}", steady.efficiency),
            format!("{:.3}", lossy.efficiency),
            format!("{:.0}", steady.writes_per_s),
            format!("{:.0}", lossy.writes_per_s),
            if reached(it) { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    println!(
        "{table}\none lost every {every_s} s; efficiency ≥ {EFFICIENCY_MIN}; writes a second ≤ {writes_max} \
         by at most {small} nodes"
    );
    if let Some(folder) = &arguments.out {
        let share = |share: &Share| {
            serde_json::json!({
                "took_ms": share.took_ms,
                "efficiency": share.efficiency,
                "zookeeper_writes_per_s": share.writes_per_s,
            })
        };
        let json = measured.iter().map(|it| {
            serde_json::json!({
                "nodes": it.nodes,
                "lost": it.lost,
                "lost_every_s": every_s,
                "without": share(&it.steady),
                "with": share(&it.lossy),
                "reached": reached(it),
            })
        });
        fs::create_dir_all(folder)?;
        let json: serde_json::Value = json.collect();
        fs::write(folder.join("losses.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    }
    Ok(())
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "nodes",
        "efficiency",
        "job, s",
        "steals a node",
        "messages a node and s",
        "ZooKeeper reads a s",
        "writes a s",
        "90 % of joined nodes at work, ms",
    ]);
    for point in points {
        table.add_row([
            point.nodes.to_string(),
            format!("{:.3}", point.efficiency),
            format!("{:.1}", point.took_ms as f64 / 1000.0),
            format!("{:.1}", point.steals),
            format!("{:.1}", point.messages_per_s),
            format!("{:.0}", point.reads_per_s),
            format!("{:.0}", point.writes_per_s),
            point.absorbed_ms.to_string(),
        ]);
    }
    table
}

fn json(points: &[Point]) -> serde_json::Value {
    let point = |point: &Point| {
        serde_json::json!({
            "nodes": point.nodes,
            "states": point.states,
            "took_ms": point.took_ms,
            "efficiency": point.efficiency,
            "steals_per_node": point.steals,
            "messages_per_node_and_s": point.messages_per_s,
            "zookeeper_reads_per_s": point.reads_per_s,
            "zookeeper_writes_per_s": point.writes_per_s,
            "absorbed_ms": point.absorbed_ms,
        })
    };
    points.iter().map(point).collect()
}

/// Plots the efficiency over the number of nodes, on a logarithmic axis.
fn plot(path: &std::path::Path, points: &[Point]) -> Result<(), Box<dyn Error>> {
    let most = points.iter().map(|point| point.nodes).max().unwrap_or(10);
    let root = SVGBackend::new(path, (640, 360)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((10_f64..most as f64).log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc("nodes").y_desc("efficiency").draw()?;
    let line = points.iter().map(|point| (point.nodes as f64, point.efficiency));
    chart.draw_series(LineSeries::new(line.clone(), &BLUE))?;
    chart.draw_series(line.map(|at| Circle::new(at, 3, BLUE.filled())))?;
    root.present()?;
    Ok(())
}
