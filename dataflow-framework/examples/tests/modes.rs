//! Every program prints the same bytes in all modes, and displays its calls on request.

use std::{collections::BTreeSet, error::Error, fs, path::Path, process::Command};

use serde_json::Value;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The programs, each with an input that takes little time.
const PROGRAMS: [(&str, &str, &str); 8] = [
    ("increment", env!("CARGO_BIN_EXE_increment"), "--times 5"),
    ("matmul", env!("CARGO_BIN_EXE_matmul"), "--blocks 4 --size 9"),
    ("sparse-lu", env!("CARGO_BIN_EXE_sparse-lu"), "--blocks 7 --size 6"),
    ("kmeans", env!("CARGO_BIN_EXE_kmeans"), "--fragments 9 --points 50 --rounds 4"),
    ("hmmpfam", env!("CARGO_BIN_EXE_hmmpfam"), "motifs.fasta sequences.fasta --sequence-fragments 3"),
    ("genes", env!("CARGO_BIN_EXE_genes"), "--regions 8 --bases 200"),
    ("mergesort", env!("CARGO_BIN_EXE_mergesort"), "--length 3000 --splits 3"),
    ("nbody", env!("CARGO_BIN_EXE_nbody"), "--bodies 6 --rounds 3"),
];

/// The modes of a run; the others are compared with the first one.
const WAYS: [&str; 5] = ["--sequential", "--workers 1", "--workers 3", "--nodes 3", "--nodes 2 --check"];

/// Returns the command of a program, in a folder with its files.
fn command(program: &str, input: &str, more: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("DATAFLOW_WORK_DIR", folder.join("work"));
    command.arg("solve").arg("--quiet").args(input.split(' ')).args(more.split(' '));
    command
}

fn folder() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let entry = |length: usize| {
        let letter = |place: usize| char::from(b"ACGT"[(place * place / 3) % 4]);
        (0..length).map(letter).collect::<String>()
    };
    let texts = |length: usize| {
        (0..5).map(|n| format!(">{n}\n{}\n", &entry(length + n)[n..])).collect::<Vec<_>>().concat()
    };
    fs::write(folder.path().join("motifs.fasta"), texts(3))?;
    fs::write(folder.path().join("sequences.fasta"), texts(60))?;
    Ok(folder)
}

#[test]
fn every_program_prints_same_output_in_all_modes() -> Result {
    let folder = folder()?;
    for (name, program, input) in PROGRAMS {
        let mut printed = BTreeSet::new();
        for way in WAYS {
            let output = command(program, input, &format!("{way} --json"), folder.path()).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} {way}: {said}");
            assert!(!output.stdout.is_empty(), "{name} {way} prints nothing");
            printed.insert(output.stdout);
            assert_eq!(printed.len(), 1, "{name} prints something else with {way}: {printed:?}");
        }
    }
    Ok(())
}

#[test]
fn test_covers_all_programs() -> Result {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))?;
    let names = manifest.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let programs: BTreeSet<_> =
        names.filter(|name| !["dataflow-examples", "hmmpfam-stub"].contains(name)).collect();
    assert_eq!(programs, PROGRAMS.iter().map(|(name, ..)| *name).collect());
    Ok(())
}

#[test]
fn program_shows_graph_trace_and_tasks_on_request() -> Result {
    let folder = folder()?;
    let (_, sparse_lu, _) = PROGRAMS[2];
    for (file, begins) in [("graph.svg", "<svg "), ("graph.dot", "digraph ")] {
        let more = format!("--nodes 2 --json --summary --graph {file} --trace trace.json");
        let output = command(sparse_lu, "--blocks 14 --size 4", &more, folder.path()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let graph = fs::read_to_string(folder.path().join(file))?;
        assert!(graph.starts_with(begins) && graph.contains("bmod × "), "{graph}");
        let shown: Value = serde_json::from_slice(&output.stdout)?;
        let calls = shown["calls"].as_u64().unwrap_or_default();
        let of_tasks = shown["tasks"].as_array().ok_or("the tasks are missing")?;
        let ended: u64 = of_tasks.iter().filter_map(|task| task["ended"].as_u64()).sum();
        assert!(ended > 200 && (calls == 0 || calls == ended), "{shown}");
        assert!(said.lines().next().is_some_and(|line| line.starts_with("TASK ")), "{said}");
        let trace: Value = serde_json::from_slice(&fs::read(folder.path().join("trace.json"))?)?;
        let events = trace["traceEvents"].as_array().ok_or("the events are missing")?;
        let runs: BTreeSet<_> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|run| run["args"]["call"].as_u64())
            .collect();
        assert_eq!(runs.len() as u64, ended, "each call has run, and is in the trace");
    }
    Ok(())
}

#[test]
fn display_option_that_cannot_work_is_refused() -> Result {
    let folder = folder()?;
    let (_, matmul, _) = PROGRAMS[1];
    for (more, expected) in [
        ("--sequential --graph graph.svg", "a sequential run records nothing"),
        ("--graph missing/graph.svg", "there is no folder missing: create it first"),
    ] {
        let output = command(matmul, "--blocks 2 --size 2", more, folder.path()).output()?;
        assert_eq!(output.status.code(), Some(2), "{more}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{more}: {said}");
    }
    Ok(())
}

#[test]
fn task_option_changes_calls_or_is_refused_with_known_names() -> Result {
    let folder = folder()?;
    let (_, matmul, _) = PROGRAMS[1];
    let run = |option: &str| {
        let more = format!("--nodes 2 --json --task-option {option}");
        command(matmul, "--blocks 2 --size 2", &more, folder.path()).output()
    };
    assert!(run("multiply.retry=2")?.status.success());
    // No node has the label, so the calls fail.
    let failed = run("multiply.needs=blast")?;
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        failed.status.code() == Some(1) && said.contains("task `multiply`") && said.contains("blast"),
        "{said}"
    );
    for (option, expected) in [
        ("multply.retry=2", "there is no task multply; the tasks are block, multiply, zeros"),
        ("multiply.retri=2", "there is no option retri; the options are priority, retry"),
    ] {
        let refused = run(option)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(expected), "{said}");
    }
    Ok(())
}
