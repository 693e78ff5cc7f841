//! The search by an external program.

use std::{error::Error, fs, path::PathBuf, process::Command};

use dataflow_examples::hmmpfam::{Hmmpfam, Input, entries, program, search, tasks};
use dataflow_framework::{Main, Workflow};

type Result = std::result::Result<(), Box<dyn Error + Send + Sync>>;

/// Returns texts with a number of entries, of letters that repeat with a period.
fn texts(name: &str, entries: usize, length: usize) -> String {
    let entry = |entry: usize| {
        let letter = |place: usize| char::from(b"ACGT"[(entry * 31 + place * place / 3) % 4]);
        format!(">{name}{entry:03}\n{}\n", (0..length).map(letter).collect::<String>())
    };
    (0..entries).map(entry).collect()
}

fn input(fragments: (usize, usize)) -> Input {
    Input {
        command: (PathBuf::from(env!("CARGO_BIN_EXE_hmmpfam-stub")), "-A 0".to_owned()),
        database: texts("motif", 7, 3),
        sequences: texts("sequence", 11, 60),
        fragments,
        output: None,
    }
}

#[test]
fn result_equals_loop_in_all_modes() -> Result {
    let whole = input((2, 4));
    let expected = search(&whole.database, &whole.sequences);
    assert!(expected.lines().count() > 100, "{expected}");
    assert_eq!(Workflow::new(tasks())?.sequential().run(|| program(&whole))?, expected);
    for workers in [1, 4] {
        assert_eq!(Workflow::new(tasks())?.workers(workers).run(|| program(&whole))?, expected);
    }
    let report = Main::<Hmmpfam>::job(whole).nodes(3).run()?;
    assert_eq!(Main::<Hmmpfam>::returned(&report)?, expected);
    Ok(())
}

/// Each pair of fragments is a task, and all reports but one are merged into another.
#[test]
fn program_makes_expected_number_of_calls() -> Result {
    for (fragments, calls, dependencies, depth) in
        [((2, 4), 15, 14, 4), ((1, 1), 1, 0, 1), ((3, 3), 17, 16, 5), ((20, 1), 39, 38, 6)]
    {
        let whole = input(fragments);
        let expected = search(&whole.database, &whole.sequences);
        let (report, figures) = Workflow::new(tasks())?.workers(2).run_with_stats(|| program(&whole))?;
        assert_eq!(report, expected, "of {fragments:?} fragments");
        assert_eq!((figures.calls, figures.dependencies, figures.depth), (calls, dependencies, depth));
    }
    Ok(())
}

#[test]
fn failed_search_is_reported_with_program_output() -> Result {
    let failing = Input { command: (input((1, 1)).command.0, "--fail".to_owned()), ..input((1, 2)) };
    let error =
        Workflow::new(tasks())?.workers(2).run(|| program(&failing)).expect_err("it fails").to_string();
    assert!(error.contains("task `hmmpfam`"), "{error}");
    assert!(error.contains("--fail database sequences` has failed: exit status: 1"), "{error}");
    assert!(error.ends_with("Error: \"it was to fail\""), "{error}");
    let missing = Input { command: ("no-such-hmmpfam".into(), String::new()), ..input((1, 1)) };
    let error = Workflow::new(tasks())?.run(|| program(&missing)).expect_err("there is none").to_string();
    assert!(error.contains("`no-such-hmmpfam` cannot be started"), "{error}");
    Ok(())
}

#[test]
fn command_searches_files() -> Result {
    let place = tempfile::tempdir()?;
    let at = |name: &str| place.path().join(name);
    let whole = input((2, 4));
    fs::write(at("database"), &whole.database)?;
    fs::write(at("sequences"), &whole.sequences)?;
    let solve = || {
        let mut solve = Command::new(env!("CARGO_BIN_EXE_hmmpfam"));
        solve.args(["solve", "--quiet"]).current_dir(place.path());
        solve
    };
    let output = solve().args(["database", "sequences", "--output", "report"]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(at("report"))?, search(&whole.database, &whole.sequences));
    let output = solve().args(["database", "missing"]).output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("missing: the file cannot be read: No such file")
    );
    Ok(())
}

#[test]
fn entries_start_with_angle_bracket_at_line_start_only() {
    let all = |text: &'static str| entries(text).collect::<Vec<_>>();
    let expected = [("s1 5'->3' exonuclease", "GGAC".to_owned()), ("s2", String::new())];
    for text in [
        ">s1 5'->3' exonuclease\nGG\nAC\n>s2\n",
        ">s1 5'->3' exonuclease\rGG\rAC\r>s2\r",
        "\u{feff}>s1 5'->3' exonuclease\r\nGGAC\r\n>s2\r\n\x1a",
    ] {
        assert_eq!(all(text), expected, "{text:?}");
    }
    assert_eq!(search(">m1\nACGT\n", ">s1\rGGACG\rTTT\r"), "s1\tm1\t00000003\n");
}

#[test]
fn files_without_entries_pipes_and_devices_are_refused() -> Result {
    let place = tempfile::tempdir()?;
    let at = |name: &str| place.path().join(name);
    fs::write(at("good"), ">m1\nACGT\n")?;
    fs::write(at("none"), "HMMER3/f\nNAME m1\n//\n")?;
    fs::write(at("late"), "\nACGT\n>m1\nACGT\n")?;
    fs::write(at("empty"), "")?;
    assert!(Command::new("mkfifo").arg(at("pipe")).status()?.success());
    for (bad, part) in [
        ("none", "none:1: found \"HMMER3/f\"; expected a line that begins with >"),
        ("late", "late:2: found \"ACGT\""),
        ("empty", "empty:1: found an empty file"),
        ("pipe", "found a pipe; expected a regular file"),
        ("/dev/zero", "found a device; expected a regular file"),
    ] {
        for files in [[bad, "good"], ["good", bad]] {
            let mut solve = Command::new(env!("CARGO_BIN_EXE_hmmpfam"));
            let output = solve.args(["solve", "--quiet"]).args(files).current_dir(place.path()).output()?;
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
    let mut solve = Command::new(env!("CARGO_BIN_EXE_hmmpfam"));
    solve.args(["solve", "--quiet", "good", "good", "--output", "good"]).current_dir(place.path());
    assert_eq!(solve.output()?.status.code(), Some(2), "the output is an input");
    assert_eq!(fs::read_to_string(at("good"))?, ">m1\nACGT\n");
    Ok(())
}
