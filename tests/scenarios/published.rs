//! Every program against its published results: alone without the runtime, on all cores, and on four nodes
//! within a process.

use std::process::Command;

use serde_json::Value;
use taskwork_tests::{
    cluster::program,
    data,
    published::{Case, counted, indexed},
};

fn solve(case: &Case, more: &[&str]) -> Value {
    let mut command = Command::new(program(case.program).unwrap());
    let said = command.args(case.command("solve", more)).output().unwrap();
    assert!(said.status.success(), "{case:?} {more:?}: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

fn agree(cases: &[Case]) {
    for case in cases {
        for how in [&["--sequential"][..], &["--workers", "2"], &["--nodes", "4", "--workers", "1"]] {
            case.check(&solve(case, how), &format!("{how:?}")).unwrap();
        }
    }
}

fn agrees(program: &str) {
    let Some(folder) = data::folder() else { return };
    agree(&indexed(&folder, program).unwrap());
}

#[test]
fn queens_semigroups_rulers_and_unbalanced_trees() {
    let Some(folder) = data::folder() else { return };
    agree(&counted(&folder).unwrap());
}

#[test]
fn cliques() {
    agrees("maxclique");
}

#[test]
fn knapsacks() {
    agrees("knapsack");
}

#[test]
fn quadratic_assignments() {
    agrees("qap");
}

#[test]
fn flow_shops() {
    agrees("flowshop");
}

#[test]
fn tours() {
    agrees("tsp");
}

/// Weights are those of the files, so the heaviest clique is not the largest. It is the same in every order,
/// on any number of nodes.
#[test]
fn heaviest_cliques() {
    let Some(folder) = data::folder() else { return };
    for case in indexed(&folder, "maxclique").unwrap() {
        let alone = solve(&case, &["--weighted", "--sequential"]);
        for how in [&["--workers", "2"][..], &["--nodes", "4"], &["--strategy", "best-first"]] {
            let said = solve(&case, &[&["--weighted"], how].concat());
            assert_eq!(said["weight"], alone["weight"], "{case:?} {how:?}");
        }
    }
}

/// The instances that Taillard's generator creates from its seeds equal the files, with their optima.
#[test]
fn generated_flow_shops_equal_their_files() {
    for (jobs, machines, seed, makespan) in [
        ("20", "5", "873654221", 1278),
        ("20", "5", "379008056", 1359),
        ("20", "10", "587595453", 1582),
        ("20", "10", "873136276", 1496),
        ("20", "10", "1672900551", 1591),
    ] {
        let arguments = ["--jobs", jobs, "--machines", machines, "--seed", seed].map(str::to_owned).to_vec();
        let case = Case { program: "flowshop", arguments, field: "makespan", answer: makespan };
        case.check(&solve(&case, &[]), "by its seed").unwrap();
    }
}

#[test]
fn every_strategy_and_split_finds_published_result() {
    let Some(folder) = data::folder() else { return };
    for program in ["knapsack", "qap", "flowshop", "maxclique", "tsp"] {
        let cases = indexed(&folder, program).unwrap();
        // The larger instances take long in unsuitable orders.
        let small = |case: &&Case| {
            [
                "nug12", "had12", "ta001", "ta003", "hamming8", "keller4", "MANN", "br17", "gr17", "kp_10",
                "knapPI_1",
            ]
            .iter()
            .any(|name| case.arguments[0].contains(name))
        };
        for case in cases.iter().filter(small) {
            for strategy in ["best-first", "best-child-first"] {
                for split in ["in-order", "half", "next", "alternating", "discrepancy"] {
                    let how = ["--strategy", strategy, "--split", split, "--open-max", "500", "--nodes", "2"];
                    case.check(&solve(case, &how), &format!("{how:?}")).unwrap();
                }
            }
            case.check(&solve(case, &["--split", "next", "--nodes", "3"]), "one state at a time").unwrap();
            case.check(&solve(case, &["--replicable", "--nodes", "3"]), "replicable").unwrap();
        }
    }
}
