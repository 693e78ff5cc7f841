//! `simulate`: runs seeds, replays one, or shrinks one that fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use taskwork_simulation::{
    campaign::{self, Campaign, Failure, Tally},
    shrink::shrink,
};

/// Simulate clusters with all kinds of faults, and check the invariants at every step.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Arguments {
    #[command(flatten)]
    campaign: CampaignArguments,
    #[command(flatten)]
    replay: ReplayArguments,
    /// The number of nodes at the start of each cluster; by default it depends on the seed, 3 to 12.
    #[arg(long)]
    nodes: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct CampaignArguments {
    /// The number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Start no further seed after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Continue after a failed seed.
    #[arg(long)]
    keep_going: bool,
    /// Run only seeds whose plans are of these kinds, such as workflow,leaves; the first line of a plan names its kind.
    #[arg(long)]
    kind: Option<String>,
    /// Write the results as JSON.
    #[arg(long)]
    json: bool,
    /// Do not shrink the plan of a failed seed.
    #[arg(long)]
    terse: bool,
}

#[derive(Debug, clap::Args)]
struct ReplayArguments {
    /// Replay this seed alone, and print every event.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// Indices of faults in the plan to leave out of a replay, such as 0,3,4.
    #[arg(long, value_delimiter = ',', requires = "replay")]
    without: Vec<usize>,
    /// Leave random faults, such as lost messages, out of a replay.
    #[arg(long, requires = "replay")]
    without_rates: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.replay.replay {
        return replay(seed, arguments.nodes, &arguments.replay);
    }
    let told = &arguments.campaign;
    let campaign = Campaign {
        seeds: told.first..told.first.saturating_add(told.seeds),
        nodes: arguments.nodes,
        time: told.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        keep_going: told.keep_going,
        kind: told.kind.clone(),
    };
    let tally = campaign::run(&campaign, &|tally| {
        if tally.seeds % 500 == 0 && !told.json {
            eprintln!("{} seeds, {} failed, {:.0} s", tally.seeds, tally.failures.len(), tally.seconds);
        }
    });
    if told.json {
        println!("{}", json(&tally));
    } else {
        report(&tally);
    }
    for failure in tally.failures.iter().take(3).filter(|_| !told.terse) {
        explain(failure, arguments.nodes);
    }
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(tally: &Tally) {
    let seconds = tally.seconds.max(1e-9);
    println!(
        "{} seeds, {} failed; {} events in {:.0} s, {:.0} a second; {:.1} virtual hours, {} \
         attempts, {} states",
        tally.seeds,
        tally.failures.len(),
        tally.events,
        seconds,
        tally.events as f64 / seconds,
        tally.virtual_ms as f64 / 3_600_000.0,
        tally.attempts,
        tally.states,
    );
    if tally.shares.runs > 0 {
        println!("{}", tally.shares);
    }
    if !tally.failures.is_empty() {
        let mut alike: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
        for failure in &tally.failures {
            let first = failure.violations.first().map_or("", String::as_str);
            let seeds = alike.entry((&failure.kind, without_numbers(first))).or_default();
            seeds.push(failure.seed.to_string());
        }
        for ((kind, what), seeds) in alike {
            let some = seeds.iter().take(12).cloned().collect::<Vec<_>>().join(" ");
            println!("{:>5}  {kind}: {what}\n       seeds {some}", seeds.len());
        }
    }
}

/// Removes the parts of a violation that differ from seed to seed.
fn without_numbers(what: &str) -> String {
    let word = |word: &str| {
        if word.contains(|c: char| c.is_ascii_digit()) { "…".to_owned() } else { word.to_owned() }
    };
    what.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn json(tally: &Tally) -> serde_json::Value {
    serde_json::json!({
        "seeds": tally.seeds,
        "broken": tally.failures.first().and_then(|failure| failure.violations.first()?.split(" at ").next()),
        "failed": tally.failures.iter().map(|failure| failure.seed).collect::<Vec<_>>(),
        "events": tally.events,
        "states": tally.states,
        "attempts": tally.attempts,
        "virtual_ms": tally.virtual_ms,
        "shares": tally.shares.mean(),
        "seconds": tally.seconds,
    })
}

/// Prints the violations, the command that replays the seed, and a minimal plan that still fails.
fn explain(failure: &Failure, nodes: Option<usize>) {
    println!("\nseed {} fails:", failure.seed);
    for violation in &failure.violations {
        println!("  {violation}");
    }
    let shrunk = shrink(failure.seed, nodes);
    println!("minimal failing plan: {}", shrunk.plan);
    let nodes = nodes.map_or_else(String::new, |nodes| format!(" --nodes {nodes}"));
    let faults: Vec<String> = shrunk.without_faults.iter().map(ToString::to_string).collect();
    let without = if faults.is_empty() { String::new() } else { format!(" --without {}", faults.join(",")) };
    let rates = if shrunk.without_rates { " --without-rates" } else { "" };
    println!("replay it with: cargo xtask sim --replay {}{nodes}{without}{rates}", failure.seed);
}

fn replay(seed: u64, nodes: Option<usize>, arguments: &ReplayArguments) -> ExitCode {
    let without: BTreeSet<usize> = arguments.without.iter().copied().collect();
    let replay = campaign::replay(seed, nodes, &without, arguments.without_rates, true);
    for line in &replay.trace {
        println!("{line}");
    }
    println!("{}", replay.plan);
    println!(
        "over after {} ms, attempt {}, fingerprint {:016x}",
        replay.over_ms, replay.attempts, replay.fingerprint
    );
    if replay.shares.runs > 0 {
        println!("{}", replay.shares);
    }
    for violation in &replay.violations {
        println!("{violation}");
    }
    if replay.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
