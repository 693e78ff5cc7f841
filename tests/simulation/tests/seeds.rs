//! A fixed set of seeds that once found a bug, and a check that a seed always has the same history.

use std::collections::BTreeSet;

use taskwork_simulation::campaign::{self, Campaign};

/// Seeds that have found a bug, or are of the same kind. The history of a seed changes with the simulator;
/// they are kept because running them costs nothing.
const REGRESSIONS: &[(u64, &str)] = &[
    (10, "a node that was asked to leave after its session had ended joined again and stayed"),
    (43, "as 10, while the node was frozen"),
    (154, "a late claim left a txn id behind"),
    (169, "a thief at its limit of remembered grants accepted none, not even the oldest"),
    (5318, "a task that was parked, claimed and parked again was claimed after a stale read, and ran twice"),
    (5612, "a node of another program was considered starving"),
    (5842, "the last task moved between idle nodes forever"),
    (401_654, "a resumed task crashed its nodes forever: its trial was over, so no task was blamed"),
    (1_051_938, "the simulator did not count the loss of a node that resigned with its tasks"),
    (1_133_544, "a node that was asked to leave while closing its session left the request behind"),
];

fn run(seeds: std::ops::Range<u64>, nodes: Option<usize>) {
    let campaign = Campaign { seeds, nodes, time: None, keep_going: false, kind: None };
    let tally = campaign::run(&campaign, &|_| {});
    if let Some(failure) = tally.failures.first() {
        panic!("replay it with: cargo xtask sim --replay {}\n{:#?}", failure.seed, failure.violations);
    }
    assert_eq!(tally.seeds, campaign.seeds.end - campaign.seeds.start);
    println!("{} events in {:.0} s", tally.events, tally.seconds);
}

#[test]
fn small_clusters_keep_all_invariants() {
    let seeds = if std::env::var_os("TASKWORK_LONG").is_some() { 10_000 } else { 1_000 };
    run(0..seeds, None);
}

#[test]
fn large_cluster_keeps_all_invariants() {
    run(100_000..100_004, Some(60));
}

/// Checks the mean shares of three jobs in runs of this kind.
fn share_by_weight(kind: &str, tolerance: f64) {
    let kind = Some(kind.to_owned());
    let campaign = Campaign { seeds: 200_000..200_640, nodes: None, time: None, keep_going: false, kind };
    let tally = campaign::run(&campaign, &|_| {});
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    println!("{}", tally.shares);
    assert!(tally.shares.runs >= 10, "{}", tally.shares);
    for (share, due) in tally.shares.mean().into_iter().zip([0.125, 0.25, 0.625]) {
        assert!((share - due).abs() < tolerance, "{}", tally.shares);
    }
}

/// The number of seeds in which objects of companions meet the faults.
const OBJECT_SEEDS: u64 = 60;

#[test]
fn objects_of_companions_are_fetched_and_meet_faults() {
    let mut missing = BTreeSet::from(["answered", "ends", "the connection breaks"]);
    for seed in 300_000..300_000 + OBJECT_SEEDS {
        let trace = campaign::replay(seed, None, &BTreeSet::new(), false, true).trace;
        missing.retain(|event| !trace.iter().any(|line| line.ends_with(&format!("object: {event}"))));
    }
    assert!(missing.is_empty(), "no such event of an object in {OBJECT_SEEDS} seeds: {missing:?}");
}

#[test]
fn jobs_share_workers_by_weight() {
    share_by_weight("Weights", 0.01);
}

#[test]
fn faults_keep_shares_of_jobs_within_tolerance() {
    share_by_weight("WeightsAndFaults", 0.08);
}

#[test]
fn regression_seeds_pass() {
    for &(seed, what) in REGRESSIONS {
        println!("seed {seed}: {what}");
        run(seed..seed + 1, None);
    }
}

#[test]
fn seed_has_one_history_byte_for_byte() {
    for seed in [3, 7, 42, 1234] {
        let replay = || campaign::replay(seed, None, &BTreeSet::new(), false, true);
        let (first, second) = (replay(), replay());
        assert!(first.trace.len() > 50, "seed {seed} has a history");
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.fingerprint, second.fingerprint);
        let other = campaign::replay(seed + 1, None, &BTreeSet::new(), false, false);
        assert_ne!(first.fingerprint, other.fingerprint);
    }
}

/// UTS T1, whose size is published (Olivier et al., LCPC 2006).
#[test]
fn published_tree_has_its_size_despite_faults() {
    let (states, replay) = campaign::uts_t1(5);
    assert_eq!(states, 4_130_071);
    assert_eq!(replay.violations, Vec::<String>::new(), "{}", replay.plan);
    assert_eq!(replay.attempts, 1, "others continue the written work of a dead machine");
}
