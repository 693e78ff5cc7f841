//! Random workflows on clusters with faults, against their sequential runs.

use std::collections::BTreeSet;

use taskwork_simulation::campaign::{self, Campaign};

/// The kinds of plans with workflows.
const KINDS: &str = "workflow,leaves";

fn run(seeds: std::ops::Range<u64>) {
    let kind = Some(KINDS.to_owned());
    let campaign = Campaign { seeds, nodes: None, time: None, keep_going: false, kind };
    let tally = campaign::run(&campaign, &|_| {});
    if let Some(failure) = tally.failures.first() {
        panic!("replay it with: cargo xtask sim --replay {}\n{:#?}", failure.seed, failure.violations);
    }
    assert!(tally.seeds > 0, "some of the seeds are of these kinds");
    println!("{} workflows, {} events in {:.0} s", tally.seeds, tally.events, tally.seconds);
}

#[test]
fn workflows_keep_all_invariants() {
    let seeds = if std::env::var_os("TASKWORK_LONG").is_some() { 64_000 } else { 4_800 };
    run(400_000..400_000 + seeds);
}

/// Seeds that have found a bug. Their histories change with the simulator.
const REGRESSIONS: &[(u64, &str)] = &[
    (301_083, "calls ran again because only a leaving coordinator knew their ends"),
    (
        301_172,
        "a node was released with data that the program had not reached; a call ran twice at the same time",
    ),
    (7_060_884, "a coordinator waited forever for the journal of a later one that had left"),
    (7_061_705, "the task of a program was on a node twice, and the wrong one was woken"),
    (8_042_784, "a coordinator continued to write after another had taken the journal"),
    (2_203, "a released node started the program, and no node waited for its calls"),
    (12_035, "a node that could not fetch a version from a departed node dropped all copies"),
    (15_988, "the recorded ends of one node were not sent to others"),
    (9_887, "the coordinator left although other nodes had left since it was released"),
    (19_053, "fetching a copy that the program had not reached was tried only once"),
    (23_397, "nodes left before their data was in the journal"),
    (130_463, "a failure was dropped that arrived before the program repeated its call"),
    (109_326, "the data that a call would have changed in place was dropped when it could not run"),
    (34_326, "a node dropped data received with an order when the nodes it had asked before were gone"),
    (39_671, "a coordinator waited forever after an abandoned run had taken its journal"),
    (147_339, "leaving nodes handed their data to a coordinator that was already released"),
    (180_447, "nodes followed a coordinator that was cut off, and could not return to their own"),
    (203_287, "the input of a turn was recomputed although its exchange partner had ended"),
    (203_430, "as 203287, and twice"),
    (
        40_003,
        "a node returned to an earlier coordinator because it did not know yet that its own was a member",
    ),
];

#[test]
fn regression_seeds_pass() {
    for &(seed, what) in REGRESSIONS {
        println!("seed {seed}: {what}");
        run(seed..seed + 1);
    }
}

#[test]
fn workflow_seed_has_one_history_despite_program_threads() {
    let workflows = (400_000..).filter(|seed| KINDS.split(',').any(|kind| kind == campaign::kind(*seed)));
    for seed in workflows.take(4) {
        let replay = || campaign::replay(seed, None, &BTreeSet::new(), false, true);
        let (first, second) = (replay(), replay());
        let begins = first.trace.iter().filter(|line| line.contains("Begins")).count();
        assert!(begins > 5, "calls start in seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}

/// The number of seeds in which objects meet all faults.
const OBJECT_SEEDS: usize = 60;

#[test]
fn large_versions_are_fetched_as_objects_and_meet_faults() {
    let mut missing = BTreeSet::from(["answered", "ends", "the connection breaks"]);
    let workflows = (400_000..).filter(|seed| KINDS.split(',').any(|kind| kind == campaign::kind(*seed)));
    for seed in workflows.take(OBJECT_SEEDS) {
        let trace = campaign::replay(seed, None, &BTreeSet::new(), false, true).trace;
        missing.retain(|event| !trace.iter().any(|line| line.ends_with(&format!("object: {event}"))));
    }
    assert!(missing.is_empty(), "no such event of an object in {OBJECT_SEEDS} seeds: {missing:?}");
}
