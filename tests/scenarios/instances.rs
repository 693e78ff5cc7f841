//! Instance files in every variant that their formats allow. For malformed files the error names the file,
//! the line, the found and the expected text, and the exit code is 2.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::program;

fn solve(name: &str, file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(program(name).unwrap());
    command.arg("solve").arg(file).args(["--quiet", "--json"]).args(more).output().unwrap()
}

/// Returns the output of a program for a file, if it exits within 30 s.
fn solve_in_time(name: &str, file: &Path) -> Output {
    let mut command = Command::new(program(name).unwrap());
    let command = command.arg("solve").arg(file).args(["--quiet", "--json"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            process.kill().unwrap();
            panic!("{name} still reads {}", file.display());
        }
        thread::sleep(Duration::from_millis(10));
    }
    process.wait_with_output().unwrap()
}

/// Returns the output of a program for a text.
fn read(name: &str, text: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("instance.txt");
    fs::write(&file, text).unwrap();
    solve(name, &file, more)
}

fn answer(name: &str, text: &str, more: &[&str]) -> Value {
    let said = read(name, text, more);
    assert!(said.status.success(), "{name} {text:?}: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

fn assert_refused(name: &str, texts: &[(&str, &str)]) {
    for (text, wrong) in texts {
        let said = read(name, text, &[]);
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{name} {text:?}: {error}");
        assert!(error.contains("instance.txt") && error.contains(wrong), "{name} {text:?}: {error}");
    }
    let said = solve(name, Path::new("/no/such/file"), &[]);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("/no/such/file"));
}

/// Input that is not an instance file is refused before it takes time or memory: the program does not wait
/// for a pipe, or read a device.
#[test]
fn non_instance_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A sparse file: only its length is stored.
    fs::File::create(path("huge")).unwrap().set_len(900 << 20).unwrap();
    fs::File::create(path("zeros")).unwrap().set_len(3 << 20).unwrap();
    fs::write(path("latin"), b"\n\nc Gr\xf6tschel\n").unwrap();
    fs::create_dir(path("folder")).unwrap();
    let mut cases = vec![
        (path("huge"), "found more than"),
        (path("zeros"), "zeros:1: found \"\\0\", which is no text"),
        (path("latin"), "latin:3: found bytes that are no text in UTF-8"),
        (path("folder"), "found a folder; expected a regular file"),
    ];
    if Path::new("/dev/zero").exists() {
        cases.push(("/dev/zero".into(), "found a device; expected a regular file"));
    }
    if Command::new("mkfifo").arg(path("pipe")).status().is_ok_and(|made| made.success()) {
        cases.push((path("pipe"), "found a pipe; expected a regular file"));
    }
    for name in ["maxclique", "knapsack", "qap", "flowshop", "tsp"] {
        for (file, wrong) in &cases {
            let said = solve_in_time(name, file);
            let error = String::from_utf8_lossy(&said.stderr);
            assert_eq!(said.status.code(), Some(2), "{name} {}: {error}", file.display());
            assert!(error.contains(wrong), "{name}: {error}");
        }
    }
}

#[test]
fn graphs() {
    let free =
        "c a comment\r\n\r\np\tcol 4 4\r\nn 1 7\r\nn 4 20\r\nd 3 1\r\ne 1\t2\r\ne 2 3\r\ne 3 1\r\ne 3 4\r\n";
    assert_eq!(answer("maxclique", free, &[])["clique"], serde_json::json!([1, 2, 3]));
    let heaviest = answer("maxclique", free, &["--weighted"]);
    assert_eq!((&heaviest["clique"], &heaviest["weight"]), (&serde_json::json!([3, 4]), &21.into()));
    assert_eq!(answer("maxclique", "p edge 0 0\n", &[])["vertices"], 0);
    // Edges in both directions, with the edges or the lines counted; and underlined comments.
    let by_vertex = "c---\np edges 3 6\ne 1 2\ne 1 3\ne 2 1\ne 2 3\ne 3 1\ne 3 2\n";
    for text in
        [by_vertex, &by_vertex.replace("3 6", "3 3"), "p col 3 3\ne 1 2\ne 2 1\ne 2 3\ne 2 3\ne 1 3\n"]
    {
        assert_eq!(answer("maxclique", text, &[])["vertices"], 3, "{text}");
    }
    // An edge from a vertex to itself is ignored.
    assert_eq!(answer("maxclique", "p edge 3 2\ne 2 2\ne 1 2\n", &[])["vertices"], 2);
    let weightless = answer("maxclique", "p edge 2 1\nn 1 0\nn 2 0\ne 1 2\n", &["--weighted"]);
    assert_eq!((&weightless["weight"], &weightless["proven"]), (&0.into(), &true.into()));
    assert_ne!(weightless["clique"], Value::Null);
    assert_refused(
        "maxclique",
        &[
            ("", ":1: found the end of the file"),
            ("e 1 2\n", "before all else"),
            ("p edge many 3\n", ":1: found \"many\"; expected a number of vertices"),
            ("p edge 5000 3\n", "to 4096"),
            ("p edge\n", ":1: found the end of the line; expected a number of vertices"),
            ("p edge 3 1\np edge 3 1\n", ":2:"),
            ("p edge 3 1\ne 1 4\n", ":2: found \"4\"; expected a vertex from 1 to 3"),
            ("p edge 3 1\ne 1\n2\n", ":2: found the end of the line"),
            ("p edge 3 1\ne 0 1\n", ":2: found \"0\""),
            ("p edge 3 1\nn 1 heavy\n", "a weight"),
            ("p edge 3 1\nn 1 -4\n", ":2: found \"-4\"; expected a weight"),
            ("p edge 3 1\nq 1 2\n", ":2: found \"q\""),
            // Truncated files, or files with a wrong count.
            ("p edge 3 2\ne 1 2\n", ":2: found 1 edges; expected 2 edges, as line 1 says"),
            ("c\np edge 3 1\ne 1 2\ne 2 3\n", ":4: found 2 edges; expected 1 edges, as line 2 says"),
            ("p edge 4 3\ne 1 2\ne 2 1\ne 2 3\n", "found 2 different edges on 3 lines"),
            ("p edge 3 2\ne 1 2\ne 2 1\n", "found 1 different edges on 2 lines"),
            ("p edge 4 6\ne 1 2\ne 1 3\ne 2 1\ne 2 3\n", "found 3 different edges on 4 lines"),
            ("p 4 6\n", ":1: found \"4\"; expected p edge VERTICES EDGES"),
            ("p sp 4 6\n", "found \"sp\""),
            ("p edge 4\n", ":1: found the end of the line; expected a number of edges"),
            ("p edge 4 0 1\n", ":1: found \"1\"; expected the end of the line"),
            ("p edge 3 1\ne 1 2 3\n", ":2: found \"3\"; expected the end of the line"),
            ("p edge 3 1\nce 1 2\n", ":2: found \"ce\""),
            ("p edge 3 0\nn 1 2\nn 1 3\n", ":3: found \"n 1\"; expected the weight of each vertex once"),
            ("p edge 3 0\nn 1 2 3\n", ":2: found \"3\""),
        ],
    );
}

#[test]
fn knapsacks() {
    for text in
        ["3 50\n60 10\n100 20\n120 30\n", "3\r\n\n50\r\n60\t10\r\n 100 20 \r\n120 30\r\n0 1\r\n 1\r\n"]
    {
        let said = answer("knapsack", text, &[]);
        assert_eq!((&said["value"], &said["items"]), (&220.into(), &serde_json::json!([2, 3])));
    }
    // The capacity is on the last line.
    let last = answer("knapsack", "3\n1 60 10\n2 100 20\n3 120 30\n50\n", &[]);
    assert_eq!((&last["value"], &last["items"]), (&220.into(), &serde_json::json!([2, 3])));
    let said = answer("knapsack", "2 10.5\n0.125 10.25\n.25 10.5\n", &[]);
    assert_eq!((&said["value"], &said["items"]), (&0.25.into(), &serde_json::json!([2])));
    // Costs are printed as they are written.
    let decimals = "2 10.5\n0.125 10.25\n.25 10.5\n";
    assert_eq!(answer("knapsack", decimals, &["--target", "0.2"])["end"], "target");
    assert_eq!(answer("knapsack", decimals, &["--target", "0.251"])["items"], Value::Null);
    assert_eq!(answer("knapsack", decimals, &["--within", "0.13"])["collected"].as_array().unwrap().len(), 2);
    assert_refused(
        "knapsack",
        &[
            ("", "expected a number of items"),
            ("0 5", "found \"0\""),
            ("2 -5", ":1: found \"-5\"; expected the capacity"),
            ("2 5\n1 1\n2\n", ":3: found the end of the line; expected the weight of an item"),
            ("2 5\n1 1\n2 x\n", ":3: found \"x\""),
            ("2 5\n1 1\n2 1e9\n", ":3: found \"1e9\""),
            ("1 5\n1 1\n2\n", "expected whether an item is in the solution"),
            ("1 5\n1 1\n0 7\n", "expected the end of the file"),
            ("2 5\n9223372036854775807 1\n9223372036854775807 1\n", "below 2^63"),
            ("1 5\n. 1\n", "found \".\""),
            // If the order of the lines is wrong, the error names the supported orders.
            (
                "3\n60 10\n100 20\n120 30\n50\n",
                ":2: found \"10\"; expected the end of the line; the formats are",
            ),
            (
                "4 50\n60 100 120 1\n10 20 30 1\n",
                ":2: found \"120\"; expected the end of the line; the formats are",
            ),
            ("50 3\n60 10\n100 20\n120 30\n", "the end of the file; expected the value of an item"),
            (
                "3\n1 60 10\n2 100 20\n3 120 30\n",
                ":1: found a first line that may be the capacity, or the number",
            ),
            ("3\n50\n60 10 100 20 120 30\n", ":3: found \"100\""),
            ("2 5\n1 3\n2 4\n1 1\n", "a solution that weighs more than the capacity"),
            ("1 5\n1 0.0000000000001\n", "with at most 12 decimals"),
            ("1 5.0\n1e3 1\n", "found \"1e3\""),
            ("50\nlamp 10 60\nrope 20\n", ":3: found the end of the line; expected the value of an item"),
            ("50\nlamp 10 60 1\nrope 20 100\n", "expected"),
            ("50\nlamp heavy 60\n", ":2: found \"heavy\"; expected the weight of an item"),
            ("50\nlamp -1 60\n", ":2: found \"-1\""),
        ],
    );
}

/// The capacity, then the name, the weight and the value of each item: the order of PEBBL's example.
#[test]
fn knapsacks_of_pebbl() {
    let said = answer("knapsack", "50\nlamp 10 60\nrope 20 100\ntent 30 120\n", &[]);
    assert_eq!((&said["value"], &said["items"]), (&220.into(), &serde_json::json!([2, 3])));
    let said = answer("knapsack", "0.3\n1 0.1 0.7\n2 .2 1.55\n3 0.30000000001 9\n", &[]);
    assert_eq!((&said["value"], &said["items"]), (&2.25.into(), &serde_json::json!([1, 2])));
}

#[test]
fn quadratic_assignments() {
    let text = "2\r\n\r\n0 3 5 0\r\n\r\n0 10\r\n1 0\r\n";
    assert_eq!(answer("qap", text, &[])["cost"], 3 * 10 + 5);
    assert_eq!(answer("qap", "1 7 3", &[])["cost"], 21);
    assert_refused(
        "qap",
        &[
            ("", "expected a number of facilities"),
            ("200", "from 1 to 128"),
            ("2\n1 2 3 4\n1 2 3", ":3: found the end of the file"),
            ("2\n1 2 3 4\n1 2 3 4 5", "expected the end of the file"),
            ("1 99999999 1", "an entry of the first matrix"),
            ("1 1 1.5", ":1: found \"1.5\"; expected an entry of the second matrix"),
        ],
    );
}

#[test]
fn flow_shops() {
    let plain = "2 2\n3 1\n1 4\n";
    assert_eq!(answer("flowshop", plain, &[])["makespan"], 6);
    let titled = "number of jobs, number of machines, initial seed, upper bound and lower bound :\r\n  2 2 17 6 6\r\n\
                  processing times :\r\n 3 1\r\n 1 4\r\nnumber of jobs, …\r\n 1 1 1 1 1\r\nprocessing times :\r\n 9\r\n";
    assert_eq!(answer("flowshop", titled, &[])["makespan"], 6);
    assert_eq!(answer("flowshop", titled, &["--instance", "2"])["makespan"], 9);
    assert_refused(
        "flowshop",
        &[
            ("", "expected a number of jobs"),
            ("2", "expected a number of machines"),
            ("2 2\n1 2\n3", ":3: found the end of the line; expected the time of a job on a machine"),
            ("2 2\n1 2\n3 -4", ":3: found \"-4\""),
            ("5000 2\n", "from 1 to 1000"),
            ("2 2\n3 1\n1 4\n5 6\n", ":4: found \"6\"; expected the end of the line: of 2 machines"),
            ("2 2\n3 1\n1 4\n5\n", ":4: found a makespan of 5; expected one from 6 to 9"),
            ("2 2\n3 1\n1 4\n6\n2\n", "expected a job of the solution's order"),
            ("1 2\n3\n1\n2\n", ":4: found a makespan of 2; expected one from 4 to 4"),
            ("2 2\n3 1\n1 4\nxyz\n", ":4: found \"xyz\"; expected the end of the file"),
            ("2 2\n3 1 7\n1 4\n", ":2: found \"7\"; expected the end of the line"),
            ("three 2\n3 1\n1 4\n", ":1: found \"three\"; expected a number of jobs"),
            ("three two\n2 2\n3 1\n1 4\n", ":1: found \"three\""),
            ("2 2 17\n3 1\n1 4\n", "expected the upper bound"),
            ("2 2 17 6 6 1\n3 1\n1 4\n", ":1: found \"1\"; expected the end of the line"),
            (
                "2 3\n3 1 2\n1 4 5\n",
                ":2: found 3 times on the first line of times; expected the times of all 2 jobs on the first machine",
            ),
            ("2 2\n3 1\n1 4\n6\n2 2\n", "each job once"),
            ("2 2\n3 1\n1 4\n6\n1 2\n", ":5: found an order of makespan 8; expected one of 6"),
            ("2 2\n3 1\n1 4\n1 1\n7\n", ":4: found \"1\""),
        ],
    );
    assert_eq!(answer("flowshop", "2 2\n3 1\n1 4\n\n8\n", &[])["makespan"], 6);
    let solved = "2 2\n3 1\n1 4\n\n6\n\n2\t1\n";
    assert_eq!(answer("flowshop", solved, &[])["makespan"], 6);
    let third = read("flowshop", titled, &["--instance", "3"]);
    assert_eq!(third.status.code(), Some(2));
}

#[test]
fn directed_tours() {
    let text = "NAME: three\nTYPE: ATSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n\
                EDGE_WEIGHT_SECTION\n99 1 5\n5 99 1\n1 5 99\nEOF\n";
    let said = answer("tsp", text, &[]);
    assert_eq!((&said["length"], &said["tour"]), (&3.into(), &serde_json::json!([1, 2, 3])));
    for cities in ["1", "2"] {
        let matrix = if cities == "1" { "7" } else { "7 2 3 7" };
        let text = text.replace("DIMENSION: 3", &format!("DIMENSION: {cities}"));
        let text = text.replace("99 1 5\n5 99 1\n1 5 99", matrix);
        assert_eq!(answer("tsp", &text, &[])["length"], if cities == "1" { 0 } else { 5 }, "{text}");
    }
    let (before, _) = text.split_once("99 1 5").unwrap();
    let half = text.replace("FULL_MATRIX", "UPPER_ROW");
    let coordinates = text.replace("EXPLICIT", "EUC_2D");
    assert_refused(
        "tsp",
        &[
            (&format!("{before}99 1 5\n5 99 1\n1 5\n"), "8 distances"),
            (&format!("{before}99 1 5\n5 99 far\n1 5 99\n"), ":8:"),
            (&half, "FULL_MATRIX"),
            (&coordinates, ":4:"),
        ],
    );
    // The only known bound on a directed path is its length.
    let stopped = read("tsp", text, &["--no-pruning", "--start", "none", "--time-limit", "0"]);
    let stopped: Value = serde_json::from_slice(&stopped.stdout).unwrap();
    assert!(stopped["bound"].as_u64().unwrap() <= 3, "{stopped}");
    let said = read("tsp", text, &["--bound", "mst"]);
    assert_eq!(said.status.code(), Some(2), "{}", String::from_utf8_lossy(&said.stderr));
    // With four cities, one-trees are directed too: 1 2 3 4 has another length than 4 3 2 1.
    let four = text.replace("DIMENSION: 3", "DIMENSION: 4");
    let four = four.replace("99 1 5\n5 99 1\n1 5 99", "99 1 5 5\n5 99 1 5\n5 5 99 1\n1 5 5 99");
    for bound in ["one-tree", "assignment"] {
        let said = answer("tsp", &four, &["--bound", bound]);
        assert_eq!(
            (&said["length"], &said["tour"]),
            (&4.into(), &serde_json::json!([1, 2, 3, 4])),
            "{bound}"
        );
    }
}

#[test]
fn uncountable_searches_are_refused() {
    for (name, argument, wrong) in [
        ("uts", "T9", "no tree"),
        ("nqueens", "32", "at most 31"),
        ("numerical-semigroups", "81", "at most 80"),
        ("golomb", "1", "2 to 32"),
    ] {
        let said = Command::new(program(name).unwrap()).args(["solve", argument]).output().unwrap();
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{name} {argument}: {error}");
        assert!(error.contains(wrong), "{name} {argument}: {error}");
    }
}

#[test]
fn contradictory_options_are_refused() {
    let graph = "p edge 3 1\ne 1 2\n";
    for (more, wrong) in [
        (&["--target", "many"][..], "--target: found \"many\"; expected a cost"),
        (&["--gap=-1"], "0 or more"),
        (&["--relative-gap", "nan"], "0 or more"),
        (&["--time-limit", "soon"], "a number of seconds"),
        (&["--state-limit", "0"], "state-limit"),
        (&["--best", "0"], "--best"),
        (&["--replicable", "--best", "3"], "cannot be used with"),
        (&["--no-pruning", "--target", "3"], "cannot be used with"),
        (&["--best", "3"], "every solution"),
        (&["--sequential", "--target", "3"], "cannot be used with"),
    ] {
        let said = read("maxclique", graph, more);
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{more:?}: {error}");
        assert!(error.contains(wrong), "{more:?}: {error}");
    }
    // Every bound of tours can collect, including the default.
    let tour = "NAME: t\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: UPPER_ROW\n\
                EDGE_WEIGHT_SECTION\n1 2 3 4 5 6\nEOF\n";
    for bound in [&[][..], &["--bound", "one-tree"], &["--bound", "assignment"], &["--bound", "mst"]] {
        let said = answer("tsp", tour, &[&["--best", "3"], bound].concat());
        let collected = said["collected"].as_array().unwrap();
        assert_eq!(collected.len(), 3, "{bound:?}");
        assert_eq!(collected[0]["length"], said["length"], "{bound:?}");
    }
}
