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
    (301_083, "calls ran again whose ends only a head knew that left meanwhile"),
    (
        301_172,
        "a node was let go with what it had before the program had come to that; a call ran twice at a time",
    ),
    (7_060_884, "a head waited for ever for the journal of a later one that was gone"),
    (7_061_705, "the task of a program was twice on a node, and only the one was woken that did not count"),
    (8_042_784, "a head went on to write after the journal was another's"),
    (2_203, "a node that had been let go began the program, and nobody waited for its calls"),
    (12_035, "a node that could not get a version from one that had left had all copies given up"),
    (15_988, "what one node remembered was not told to others"),
    (9_887, "the head went although others left since it was let go"),
    (19_053, "a copy of what the program had not come to was tried once"),
    (23_397, "nodes went before what they had was in the journal"),
    (130_463, "a failure was forgotten that came before the program had made its call anew"),
    (109_326, "what a call would have changed in place was forgotten when it could not run"),
    (
        34_326,
        "a node gave up what had come with an order, when those were gone whom it had asked for it before",
    ),
    (39_671, "a head whose journal was taken by a run of which nothing came waited for ever"),
    (147_339, "a head that had been let go had others give to it what they had when they left, too"),
    (180_447, "nodes left their head for one that was cut off, and could not go back to it"),
    (203_287, "what a turn reads was made again that was to exchange with one that had ended"),
    (203_430, "the same, and twice"),
    (40_003, "a node went back to an earlier head, since it did not know yet that its head was there"),
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
        assert!(begins > 5, "calls begin in seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
