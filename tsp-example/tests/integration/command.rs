//! The command `tsp` with valid and invalid input.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn tsp(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tsp")).args(arguments).output().unwrap()
}

pub(crate) fn instance(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instances").join(name).display().to_string()
}

pub(crate) struct Desk(TempDir);

impl Desk {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name).display().to_string()
    }
}

/// Asserts that the command refuses a file with exit code 2 and one line that has the place and these words.
#[track_caller]
fn refused(content: impl AsRef<[u8]>, place: &str, says: &[&str]) {
    let desk = Desk::new();
    let file = desk.write("bad.tsp", content);
    let output = tsp(&["solve", &file]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains(&format!("bad.tsp{place}")), "{place}: {message}");
    for words in says {
        assert!(message.contains(words), "{words:?} is not in: {message}");
    }
}

const EUCLIDEAN: &str = "TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n";
const MATRIX: &str = "TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n";

#[test]
fn invalid_instance_files_are_refused() {
    refused("", ":1", &["empty", "TSPLIB"]);
    refused(b"\x7fELF\0\x01\x02", ":1", &["no text"]);
    refused("hello world\n", ":1", &["hello world", "keyword"]);
    refused("NAME: x\n", ":1", &["no TYPE"]);
    refused("TYPE: CVRP\nDIMENSION: 3\n", ":1", &["CVRP", "TYPE: TSP"]);
    refused("TYPE: ATSP\nDIMENSION: 3\n", ":2", &["no EDGE_WEIGHT_TYPE"]);
    let directed = EUCLIDEAN.replace("TSP", "ATSP");
    refused(directed + "1 0 0\n2 0 1\n3 1 1\n4 1 0\n", ":3", &["same in both directions", "EXPLICIT"]);
    refused("TYPE: TSP\nDIMENSION: many\n", ":2", &["many", "number of cities"]);
    refused("TYPE: TSP\nDIMENSION: 0\n", ":2", &["no cities"]);
    refused("TYPE: TSP\nDIMENSION: 1000000\n", ":2", &["1000000", "4 TiB", "512 MiB"]);
    refused("TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: MOON\n", ":3", &["MOON", "EUC_2D"]);
    refused("TYPE: TSP\nDIMENSION: 4\nDIMENSION: 5\n", ":3", &["second", "line 2"]);
    refused(
        "TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: ROUND\n",
        ":4",
        &["ROUND"],
    );
}

#[test]
fn duplicate_entries_are_refused() {
    let rows = "1 0 0\n2 0 1\n3 1 1\n4 1 0\n";
    let (once, other) = (format!("{EUCLIDEAN}{rows}"), rows.replace('1', "7"));
    refused(
        format!("{once}NODE_COORD_SECTION\n{other}EOF\n"),
        ":9",
        &["second NODE_COORD_SECTION", "line 4"],
    );
    refused(format!("{once}node_coord_section\n{rows}EOF\n"), ":9", &["second", "line 4"]);
    let matrix = format!("{MATRIX}0 1 2\n1 0 3\n2 3 0\n");
    refused(
        format!("{matrix}EDGE_WEIGHT_SECTION\n0 9 9\n9 0 9\n9 9 0\n"),
        ":9",
        &["second EDGE_WEIGHT_SECTION"],
    );
    refused(format!("{once}EDGE_WEIGHT_SECTION\n0 1 2\n"), ":9", &["EDGE_WEIGHT_SECTION", "computed"]);
    refused(format!("{once}TYPE: ATSP\n"), ":9", &["second TYPE", "line 1"]);
    refused(format!("{once}EOF\n{once}"), ":10", &["TYPE: TSP", "nothing after EOF on line 9"]);
}

#[test]
fn endless_section_is_not_kept_in_memory() {
    let endless = format!("{MATRIX}{}", "0 1\n".repeat(600_000));
    refused(endless, ":524298", &["more than 1048585 words of EDGE_WEIGHT_SECTION", "DIMENSION"]);
}

#[test]
fn invalid_coordinates_are_refused() {
    let check = |rows: &str, place: &str, says: &[&str]| refused(format!("{EUCLIDEAN}{rows}"), place, says);
    check("1 0 0\n2 0 1\n3 1 1\nEOF\n", ":7", &["3 cities", "4"]);
    check("1 0 0\n2 0 1\n3 1 1\n4 1\n", ":8", &["1 coordinates", "2"]);
    check("1 0 0\n2 0 1\n3 1 1\n4 1 0\n5 2 2\n", ":9", &["more coordinates"]);
    check("1 0 0\n2 0 1\n2 1 1\n4 1 0\n", ":7", &["city 2 again", "line 6"]);
    check("1 0 0\n2 0 1\n9 1 1\n4 1 0\n", ":7", &["city 9", "1 to 4"]);
    check("1 0 0\n2 0 NaN\n3 1 1\n4 1 0\n", ":6", &["NaN", "finite"]);
    check("1 0 0\n2 0 1e999\n3 1 1\n4 1 0\n", ":6", &["1e999", "finite"]);
    check("1 0 0\n2 0 1e300\n3 1 1\n4 1 0\n", ":6", &["distance", "2147483647"]);
}

#[test]
fn invalid_matrices_are_refused() {
    let check = |rows: &str, place: &str, says: &[&str]| refused(format!("{MATRIX}{rows}"), place, says);
    check("0 1 2\n1 0 3\n2 3\nEOF\n", ":8", &["8 distances", "9"]);
    check("0 1 2\n1 0 3\n2 3 0 7\nEOF\n", ":8", &["10 distances", "9"]);
    check("0 1 2\n1 0 3\n2 4 0\nEOF\n", ":8", &["4 from city 3 to city 2", "3", "ATSP"]);
    check("0 -1 2\n-1 0 3\n2 3 0\nEOF\n", ":6", &["-1", "from 0"]);
    check("0 1.5 2\n1.5 0 3\n2 3 0\nEOF\n", ":6", &["1.5", "whole"]);
    check("0 9999999999 2\n1 0 3\n2 3 0\nEOF\n", ":6", &["9999999999", "2147483647"]);
}

#[test]
fn invalid_csv_files_are_refused() {
    refused("name,lat,lon\nParis,48.86\n", ":2", &["2 fields", "three"]);
    refused("name,lat,lon\nParis,98.86,2.35\n", ":2", &["98.86", "-90 to 90"]);
    refused("name,lat,lon\nParis,north,2.35\n", ":2", &["north", "finite"]);
    refused("name,lat,lon\n", ":1", &["no cities"]);
}

#[test]
fn wrong_usage_has_exit_code_2() {
    let desk = Desk::new();
    let missing = desk.path("nowhere.tsp").display().to_string();
    let small = instance("capitals15.csv");
    let cases: [(&[&str], &str); 6] = [
        (&["solve", &missing], "cannot be read"),
        (&["solve", &small, "--workers", "0"], "0 workers"),
        (&["solve", &small, "--nodes", "0"], "0 nodes"),
        (&["solve", &small, "--bound", "guess"], "guess"),
        (&["generate", "--cities", "0", "--seed", "1"], "0"),
        (&["dance"], "dance"),
    ];
    for (arguments, says) in cases {
        let output = tsp(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}

#[test]
fn bound_for_few_cities_refuses_many_before_local_search() {
    let desk = Desk::new();
    // Local search would take a minute.
    let file = desk.write("large.tsp", tsp(&["generate", "--cities", "2000", "--seed", "1"]).stdout);
    let refused = tsp(&["solve", &file, "--bound", "mst"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("2000 cities") && said.contains("at most 256"), "{said}");
}

#[test]
fn one_two_and_three_cities_have_one_tour() {
    let desk = Desk::new();
    for (cities, length) in [(1, 0), (2, 10), (3, 12)] {
        let file = desk.write("few.csv", ["a,0,0\n", "b,3,4\n", "c,3,0\n"][..cities].concat());
        for bound in ["one-tree", "mst"] {
            let output = tsp(&["solve", &file, "--json", "--bound", bound]);
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((answer["length"].as_u64(), answer["proven"].as_bool()), (Some(length), Some(true)));
            assert_eq!(answer["tour"].as_array().unwrap().len(), cities);
        }
    }
}

#[test]
fn json_result_has_every_figure_and_a_valid_tour() {
    let desk = Desk::new();
    let (file, tour) = (instance("random35.tsp"), desk.path("best.tour").display().to_string());
    let output = tsp(&["solve", &file, "--json", "--output", &tour, "--nodes", "2", "--workers", "1"]);
    assert_eq!(output.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in ["length", "bound", "states", "pruned", "tasks", "splits", "steals"] {
        assert!(answer[field].is_u64(), "{field}: {answer}");
    }
    assert_eq!((answer["length"].as_u64(), answer["proven"].as_bool()), (Some(4880), Some(true)));
    assert!(answer["seconds"].is_f64() && answer["gap"].as_f64() == Some(0.0));
    let tour_of = answer["tour"].as_array().unwrap();
    let mut cities: Vec<u64> = tour_of.iter().map(|city| city.as_u64().unwrap()).collect();
    cities.sort_unstable();
    assert_eq!(cities, (1..=35).collect::<Vec<_>>());

    let checked = tsp(&["check", &file, &tour]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(String::from_utf8(checked.stdout).unwrap().contains("length 4880"));
}

#[test]
fn check_without_a_tour_finds_no_mistake_in_any_search() {
    let desk = Desk::new();
    let matrix = "NAME: m\nTYPE: ATSP\nDIMENSION: 5\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n\
                  EDGE_WEIGHT_SECTION\n0 3 4 9 2\n1 0 6 2 8\n5 7 0 1 3\n4 2 8 0 6\n9 1 3 5 0\nEOF\n";
    let mut files = vec![desk.write("directed.atsp", matrix), instance("random35.tsp")];
    for cities in [1, 3, 4, 65] {
        let rows = (0..cities).map(|city| format!("c{city},{},{}\n", city * 37 % 101, city * 53 % 97));
        files.push(desk.write(&format!("{cities}.csv"), rows.collect::<String>()));
    }
    for file in files {
        let output = tsp(&["check", &file]);
        assert_eq!(output.status.code(), Some(0), "{file}: {output:?}");
        assert!(output.stdout.starts_with(b"no mistake was found"), "{file}: {output:?}");
    }
}

#[test]
fn tours_that_miss_or_repeat_a_city_are_refused() {
    let desk = Desk::new();
    let file = desk.write("four.csv", "a,0,0\nb,0,1\nc,1,1\nd,1,0\n");
    for (tour, place, says) in [
        ("TYPE: TOUR\nTOUR_SECTION\n1 2 3 -1\n", ":3", "without city 4"),
        ("TYPE: TOUR\nTOUR_SECTION\n1\n2\n2\n4\n-1\n", ":5", "city 2 again"),
        ("TYPE: TOUR\nTOUR_SECTION\n1\n2\n7\n4\n-1\n", ":5", "city 7"),
        ("TYPE: TOUR\nDIMENSION: 9\nTOUR_SECTION\n1\n-1\n", ":2", "9"),
        ("TYPE: TSP\n", ":1", "TOUR"),
        ("TYPE: TOUR\nTOUR_SECTION\n1 2 3 4 -1\n4 3 2 1 -1\n-1\n", ":4", "nothing after the -1"),
        ("TYPE: TOUR\nTOUR_SECTION\n1 2 3 4\nTOUR_SECTION\n4 3 2 1\n", ":4", "a second TOUR_SECTION"),
    ] {
        let tour = desk.write("bad.tour", tour);
        let output = tsp(&["check", &file, &tour]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("bad.tour{place}")) && message.contains(says), "{message}");
    }
}

#[test]
fn generated_instance_has_the_same_optimum_by_every_search() {
    let desk = Desk::new();
    for kind in ["euclidean", "random"] {
        let generated = tsp(&["generate", "--cities", "9", "--seed", "3", "--kind", kind]);
        let file = desk.write("generated.tsp", generated.stdout);
        let ways: [&[&str]; 3] = [&["--no-pruning"], &["--bound", "mst"], &[]];
        let lengths = ways.map(|way| {
            let output = tsp(&[&["solve", &file, "--json"][..], way].concat());
            serde_json::from_slice::<Value>(&output.stdout).unwrap()["length"].as_u64()
        });
        assert!(
            lengths[0].is_some() && lengths.iter().all(|length| *length == lengths[0]),
            "{kind}: {lengths:?}"
        );
    }
}

const SQUARE: &str = "a,0,0\nb,0,30\nc,40,30\nd,40,0\ne,20,-10\n";

#[test]
fn unwritable_output_is_reported_by_every_command() {
    let desk = Desk::new();
    let file = desk.write("five.csv", SQUARE);
    let tour = desk.write("five.tour", "TYPE : TOUR\nTOUR_SECTION\n1 2 3 4 5 -1\nEOF\n");
    let commands: [&[&str]; 8] = [
        &["solve", &file, "--quiet"],
        &["solve", &file, "--json", "--quiet"],
        &["check", &file, &tour],
        &["generate", "--cities", "5", "--seed", "1"],
        &["completions", "bash"],
        &["--help"],
        &["solve", "--help"],
        &["--version"],
    ];
    for command in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tsp")).args(command).stdout(full).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {message}");
        assert!(
            message.contains("standard output cannot be written: No space left"),
            "{command:?}: {message}"
        );
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_tsp")).args(command).stdout(closed).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: a closed pipe");
    }
}

#[test]
fn output_replacing_the_instance_is_refused_before_the_search() {
    let desk = Desk::new();
    let file = desk.write("five.csv", SQUARE);
    let (other, deep) = (desk.path("x").display().to_string(), desk.path("no/x").display().to_string());
    for (options, part) in [
        (vec!["--output", &file], "would be replaced"),
        (vec!["--plot", &file], "would be replaced"),
        (vec!["--output", &other, "--plot", &other], "the same file"),
        (vec!["--output", &deep], "there is no folder"),
    ] {
        let output = tsp(&[&["solve", &file, "--quiet"], &options[..]].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(part) && message.contains(options[0]), "{message}");
        assert_eq!(fs::read_to_string(&file).unwrap(), SQUARE);
    }
}

#[test]
fn coarse_distances_are_noted_by_solve_and_check() {
    let desk = Desk::new();
    let file = desk.write("unit.csv", "a,0.1,0.1\nb,0.9,0.1\nc,0.9,0.9\nd,0.1,0.9\n");
    let tour = desk.write("t", "TYPE : TOUR\nTOUR_SECTION\n1 2 3 4 -1\n");
    for command in [vec!["solve", &file, "--json", "--quiet"], vec!["check", &file, &tour]] {
        let output = tsp(&command);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && message.contains("rounding to whole numbers"), "{message}");
    }
}

/// Returns whether a process catches a signal, from its status.
fn catches(process: u32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1)
}

#[test]
fn termination_signals_stop_the_search_with_the_best_tour() {
    let desk = Desk::new();
    let large = tsp(&["generate", "--cities", "250", "--seed", "3", "--kind", "random"]);
    let file = desk.write("large.tsp", large.stdout);
    for (name, number) in [("HUP", 1), ("USR1", 10), ("USR2", 12), ("XCPU", 24), ("TERM", 15)] {
        // Where the tests run under nohup, SIGHUP would be ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tsp")]);
        command.args(["solve", &file, "--bound", "mst", "--json", "--quiet"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        while !catches(child.id(), number) {
            if Instant::now() >= until {
                // Otherwise it would keep searching after the test.
                child.kill().unwrap();
                panic!("{name} is not caught");
            }
            std::thread::yield_now();
        }
        let sent =
            Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["tour"].as_array().map(Vec::len), Some(250), "{name}");
    }
}

#[test]
fn signal_ignored_at_the_start_stays_ignored() {
    let desk = Desk::new();
    let large = tsp(&["generate", "--cities", "250", "--seed", "3", "--kind", "random"]);
    let file = desk.write("large.tsp", large.stdout);
    let line = "trap '' HUP; exec \"$0\" solve \"$1\" --bound mst --json --quiet";
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_tsp"), &file]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while !catches(child.id(), 10) && Instant::now() < until {
        std::thread::yield_now();
    }
    let [catches_other, catches_hup] = [10, 1].map(|signal| catches(child.id(), signal));
    // Otherwise it would keep searching after a failed test.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(catches_other && !catches_hup, "nohup is in force");
}
