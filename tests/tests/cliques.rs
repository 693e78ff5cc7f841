//! The example `maxclique`, against published clique numbers; and files that are none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use taskwork_tests::{cluster::program, data};

fn solve(file: &Path, nodes: &str) -> Output {
    let mut command = Command::new(program("maxclique").unwrap());
    command.arg("solve").arg(file).args(["--nodes", nodes, "--quiet", "--json"]).output().unwrap()
}

#[test]
fn the_clique_numbers_are_the_published_ones() {
    let Some(folder) = data::folder() else { return };
    let index = fs::read_to_string(folder.join("INDEX.tsv")).unwrap();
    let mut solved = 0;
    for row in index.lines().map(|row| row.split('\t').collect::<Vec<_>>()) {
        // That one takes a minute without the optimisation of a release.
        if !row[1].starts_with("maxclique") || row[0].ends_with("brock400_4.clq") {
            continue;
        }
        for nodes in ["1", "4"] {
            let said = solve(&folder.join(row[0]), nodes);
            assert!(said.status.success(), "{}: {}", row[0], String::from_utf8_lossy(&said.stderr));
            let said: Value = serde_json::from_slice(&said.stdout).unwrap();
            assert_eq!(said["vertices"].to_string(), row[2], "{} on {nodes} nodes", row[0]);
        }
        solved += 1;
    }
    assert!(solved > 0, "the index has no clique problem");
}

#[test]
fn the_form_of_a_file_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("free.clq");
    fs::write(&file, "c a comment\r\n\r\np\tcol 4 4\r\nn 1 7\r\ne 1\t2\r\ne 2 3\r\ne 3 1\r\ne 3 4\r\n")
        .unwrap();
    let said = solve(&file, "1");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["clique"], serde_json::json!([1, 2, 3]));
}

#[test]
fn a_file_that_is_no_graph_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.clq");
    for (text, wrong) in [
        ("", "line 1: found the end of the file"),
        ("e 1 2\n", "before all else"),
        ("p edge many 3\n", "line 1: found \"many\", expected a number of vertices"),
        ("p edge 5000 3\n", "at most 4096"),
        ("p edge 3\n", "p edge VERTICES EDGES"),
        ("p edge 3 1\np edge 3 1\n", "line 2"),
        ("p edge 3 1\ne 1 4\n", "line 2: found \"4\", expected a vertex from 1 to 3"),
        ("p edge 3 1\ne 0 1\n", "line 2: found \"0\""),
        ("p edge 3 1\ne 2 2\n", "two different vertices"),
        ("p edge 3 1\nn 1 heavy\n", "a weight"),
        ("p edge 3 1\nx 1 2\n", "line 2: found \"x 1 2\""),
    ] {
        fs::write(&file, text).unwrap();
        let said = solve(&file, "1");
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{text:?}: {error}");
        assert!(error.contains("wrong.clq") && error.contains(wrong), "{text:?}: {error}");
    }
    assert_eq!(solve(Path::new("/no/such/file"), "1").status.code(), Some(2));
}
