//! Commands for each of many values.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use super::{Job, PIPELINE};

fn map(job: &Job, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flow"));
    command.arg("map").args(arguments).current_dir(job.at("job")).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn map_prints_the_result_of_each_value() {
    let job = Job::new(PIPELINE);
    fs::write(job.at("job/values"), "it's\n\nsamples/b.txt\n").unwrap();
    let count = "[ -f {} ] && sort -n {} || echo none: {}";
    let arguments = ["--quiet", "--json", count, "samples/a.txt", "--lines", "values", "--workers", "2"];
    let expected = json!([
        { "value": "samples/a.txt", "failure": null, "output": "1\n3\n" },
        { "value": "it's", "failure": null, "output": "none: it's\n" },
        { "value": "samples/b.txt", "failure": null, "output": "2\n" },
    ]);
    for _ in 0..2 {
        // Nothing is recorded.
        let shown = json_of(&map(&job, &arguments));
        assert_eq!((&shown["values"], &shown["ran"]), (&expected, &json!(3)));
    }
}

#[test]
fn map_reads_a_file_with_the_name_of_the_standard_output() {
    let job = Job::new(PIPELINE);
    fs::write(job.at("job/stdout"), "of the user\n").unwrap();
    let shown = json_of(&map(&job, &["--quiet", "--json", "cat {}", "samples/b.txt", "stdout"]));
    let outputs = [&shown["values"][0]["output"], &shown["values"][1]["output"]];
    assert_eq!(outputs, ["2\n", "of the user\n"]);
    assert_eq!(job.text("stdout"), "of the user\n");
}

#[test]
fn map_shows_failures_in_its_table() {
    let job = Job::new(PIPELINE);
    let output = map(
        &job,
        &[
            "--quiet",
            "[ {} != b ] || { echo it is b >&2; exit 3; }; [ {} != d ]; echo {}{}; echo more",
            "a",
            "b",
            "c",
            "d",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let expected = "a  done    aa\nb  failed  it is b\nc  done    cc\nd  failed  exit status: 1; it has printed nothing\n\
                    2 of 4 commands failed or did not run\n2 commands ran";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn map_writes_outputs_and_runs_again_only_after_changes() {
    let job = Job::new(PIPELINE);
    let files = ["samples/a.txt", "samples/b.txt", "samples/c.txt"];
    let all = [&["--quiet", "--json", "sort -n {} > {.}.sorted", "--out", "{.}.sorted"], &files[..]].concat();
    assert_eq!(json_of(&map(&job, &all))["ran"], 3);
    assert_eq!(job.text("samples/c.sorted"), "4\n5\n");
    fs::write(job.at("job/samples/b.txt"), "9\n8\n").unwrap();
    let again = json_of(&map(&job, &all));
    assert_eq!((&again["ran"], &again["skipped"]), (&json!(1), &json!(2)));
    assert_eq!(job.text("samples/b.sorted"), "8\n9\n");
}

#[test]
fn values_without_map_are_refused() {
    let job = Job::new(PIPELINE);
    let output = job.flow(&["solve", "--quiet", "other.toml"]);
    assert_eq!(output.status.code(), Some(2));
}
