//! The examples that count, against what is published: OEIS and the trees of UTS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, process::Command};

use serde_json::Value;
use taskwork_tests::{cluster::program, data};

/// What an example says, solved on so many nodes within a process.
fn solve(example: &str, arguments: &[&str], nodes: &str) -> Value {
    let said = Command::new(program(example).unwrap())
        .arg("solve")
        .args(arguments)
        .args(["--nodes", nodes, "--quiet", "--json"])
        .output()
        .unwrap();
    assert!(said.status.success(), "{example} {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// The rows of a table, without its head.
fn rows(table: &str) -> Vec<Vec<String>> {
    let Some(folder) = data::folder() else { return Vec::new() };
    let table = fs::read_to_string(folder.join(table)).unwrap();
    table.lines().skip(1).map(|row| row.split('\t').map(str::to_owned).collect()).collect()
}

/// Compares a column of a table with what an example says, for the rows up to the given first value.
fn agrees_with(table: &str, example: &str, field: &str, up_to: u64) {
    let rows = rows(table);
    for row in rows.iter().filter(|row| row[0].parse::<u64>().unwrap() <= up_to) {
        for nodes in ["1", "4"] {
            let said = solve(example, &[&row[0]], nodes);
            assert_eq!(said[field].to_string(), row[1], "{example} {} on {nodes} nodes", row[0]);
        }
    }
}

#[test]
fn queens() {
    agrees_with("enum/nqueens_A000170.tsv", "nqueens", "ways", 12);
}

#[test]
fn numerical_semigroups() {
    agrees_with("enum/numerical_semigroups_A007323.tsv", "numerical-semigroups", "semigroups", 22);
}

#[test]
fn golomb_rulers() {
    agrees_with("enum/golomb_A003022.tsv", "golomb", "length", 9);
}

/// All five families, in the sizes that take a second.
#[test]
fn unbalanced_trees() {
    for row in rows("uts/trees.tsv").iter().filter(|row| ["T1", "T2", "T3", "T4", "T5"].contains(&&*row[0])) {
        for nodes in ["1", "4"] {
            let said = solve("uts", &[&row[0]], nodes);
            let counted = [&said["nodes"], &said["depth"], &said["leaves"]].map(Value::to_string);
            assert_eq!(counted, row[3..6], "{} on {nodes} nodes", row[0]);
        }
    }
}

#[test]
fn what_cannot_be_counted_is_refused() {
    for (example, argument, wrong) in [
        ("uts", "T9", "no tree"),
        ("nqueens", "32", "at most 31"),
        ("numerical-semigroups", "81", "at most 80"),
        ("golomb", "1", "2 to 32"),
    ] {
        let said = Command::new(program(example).unwrap()).args(["solve", argument]).output().unwrap();
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{example} {argument}: {error}");
        assert!(error.contains(wrong), "{example} {argument}: {error}");
    }
}
