//! The log of `tsp solve`, as a script reads it.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::command::{instance, tsp};

/// A log: the names of its columns, the lines below them, and the rest.
struct Log {
    columns: Vec<String>,
    lines: Vec<Vec<String>>,
    summary: Vec<String>,
}

impl Log {
    fn read(output: &Output) -> Self {
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        let (notes, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        let (headers, summary): (Vec<&str>, Vec<&str>) =
            notes.iter().partition(|line| line.contains("time[s]"));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let header = headers.first().unwrap_or_else(|| panic!("no header in {text:?}"));
        let log = Self {
            columns: words(header.trim_start_matches('#')),
            lines: lines.iter().map(|line| words(line)).collect(),
            summary: summary.into_iter().map(str::to_owned).collect(),
        };
        for line in &log.lines {
            assert_eq!(line.len(), log.columns.len(), "{line:?} of {text:?}");
            assert!(line.iter().all(|word| !word.contains("NaN")), "{text:?}");
        }
        log
    }

    fn last(&self, column: &str) -> &str {
        let place = self.columns.iter().position(|name| name == column).unwrap();
        &self.lines.last().unwrap()[place]
    }
}

#[test]
fn log_ends_with_the_result_and_the_total_time() {
    let output = tsp(&["solve", &instance("europe.csv"), "--log-every", "1", "--json"]);
    assert!(output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let log = Log::read(&output);
    assert_eq!(
        log.columns,
        ["time[s]", "states", "open", "best", "bound", "gap[%]", "done[%]", "nodes", "steals", "new"]
    );
    assert_eq!(log.last("best"), answer["length"].to_string());
    assert_eq!((log.last("bound"), log.last("gap[%]")), (log.last("best"), "0.00"), "it is proven");
    assert_eq!(log.last("states"), answer["states"].to_string());
    let improved = log.lines.iter().filter(|line| line[9] == "*").count();
    assert!(improved >= 1, "a tour was found: {:?}", log.lines);
    let tenths = |line: &String| {
        let word = line.split_whitespace().rev().nth(1).unwrap();
        word.replace('.', "").parse::<u64>().unwrap()
    };
    let (all, parts) = log.summary.split_first().unwrap();
    assert!(all.contains("time of the workers") && tenths(all) == 1_000, "{all}");
    assert_eq!(parts.iter().map(tenths).sum::<u64>(), 1_000, "{parts:?}");
    assert!(parts.iter().any(|part| part.contains("searching")), "{parts:?}");
}

#[test]
fn unknown_values_are_logged_as_dashes() {
    // Without a start tour, and without time to find one.
    let file = instance("random35.tsp");
    let limits = ["--bound", "mst", "--heuristics", "0", "--start", "none", "--state-limit", "1"];
    let output = tsp(&[&["solve", file.as_str()][..], &limits].concat());
    let log = Log::read(&output);
    assert_eq!((log.last("best"), log.last("gap[%]"), log.last("new")), ("-", "-", "-"));
}

#[test]
fn quiet_and_json_output_have_no_log() {
    for option in ["--quiet", "--json"] {
        let output = tsp(&["solve", &instance("capitals15.csv"), option]);
        assert!(output.status.success() && output.stderr.is_empty(), "{option}: {output:?}");
    }
    let output = tsp(&["solve", &instance("capitals15.csv"), "--quiet", "--log-every", "1"]);
    assert_eq!(output.status.code(), Some(2), "it is one or the other");
}

#[test]
fn closed_log_changes_no_result() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tsp"));
    command.args(["solve", &instance("capitals15.csv"), "--log-every", "1", "--json"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stderr.take());
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["length"].is_u64(), "{answer}");
}
