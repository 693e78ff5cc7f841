//! Job files run by the command.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod map;
#[cfg(feature = "stores")]
mod uris;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a job file. Each command of the job adds a line to a log.
struct Job {
    folder: TempDir,
}

const PIPELINE: &str = r#"
[each]
sample = "samples/*.txt"
[task.sort]
in = ["samples/{sample}.txt"]
out = ["sorted/{sample}.txt"]
run = """
echo sort {sample} >> "$LOG"
sort {in} > {out}
"""
[task.merge]
in = ["sorted/{sample}.txt"]
out = ["merged.txt"]
run = 'echo merge >> "$LOG"; sort -m {in} > {out}'
[task.count]
in = ["merged.txt"]
out = ["count.txt"]
run = 'echo count >> "$LOG"; wc -l < {in} > {out}'
"#;

impl Job {
    fn new(text: &str) -> Self {
        let job = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(job.at("job/samples")).unwrap();
        for (sample, lines) in [("a", "3\n1\n"), ("b", "2\n"), ("c", "5\n4\n")] {
            fs::write(job.at("job/samples").join(format!("{sample}.txt")), lines).unwrap();
        }
        fs::write(job.at("job/job.toml"), text).unwrap();
        job
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at("job").join(path)).unwrap()
    }

    fn has(&self, path: &str) -> bool {
        self.at("job").join(path).exists()
    }

    fn edit(&self, from: &str, to: &str) {
        let text = self.text("job.toml");
        assert!(text.contains(from));
        fs::write(self.at("job/job.toml"), text.replace(from, to)).unwrap();
    }

    fn flow(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flow"));
        command.args(arguments).arg(self.at("job/job.toml"));
        command.env("LOG", self.at("log")).output().unwrap()
    }

    /// Runs the job, and returns the commands that have run, sorted.
    fn solve(&self) -> Vec<String> {
        self.solve_with(&[])
    }

    fn solve_with(&self, options: &[&str]) -> Vec<String> {
        let output = self.flow(&[&["solve", "--quiet", "--json"], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let ran = self.ran();
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["ran"], ran.len());
        ran
    }

    /// Runs a job that fails, and returns the error.
    fn fails(&self) -> String {
        let output = self.flow(&["solve", "--quiet"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the commands that have run since the last call, sorted.
    fn ran(&self) -> Vec<String> {
        let log = fs::read_to_string(self.at("log")).unwrap_or_default();
        let _ = fs::remove_file(self.at("log"));
        let mut ran: Vec<_> = log.lines().map(str::to_owned).collect();
        ran.sort();
        ran
    }
}

const ALL: [&str; 5] = ["count", "merge", "sort a", "sort b", "sort c"];

#[test]
fn only_commands_with_changes_and_their_dependents_run_again() {
    let job = Job::new(PIPELINE);
    assert_eq!(job.solve(), ALL);
    assert_eq!((job.text("merged.txt"), job.text("count.txt").trim()), ("1\n2\n3\n4\n5\n".into(), "5"));
    assert_eq!(job.solve(), [""; 0]);
    job.edit("sort -m {in}", "sort -r -m {in}");
    assert_eq!(job.solve(), ["count", "merge"]);
    fs::write(job.at("job/samples/b.txt"), "7\n").unwrap();
    assert_eq!(job.solve(), ["count", "merge", "sort b"]);
    // The same content again is no change.
    fs::write(job.at("job/samples/b.txt"), "7\n").unwrap();
    assert_eq!(job.solve(), [""; 0]);
    fs::remove_file(job.at("job/sorted/a.txt")).unwrap();
    assert_eq!(job.solve(), ["sort a"]);
    fs::write(job.at("job/sorted/a.txt"), "changed by hand").unwrap();
    assert_eq!(job.solve(), ["sort a"]);
    fs::write(job.at("job/samples/d.txt"), "9\n").unwrap();
    assert_eq!(job.solve(), ["count", "merge", "sort d"]);
    for record in fs::read_dir(job.at("job/.flow")).unwrap() {
        fs::write(record.unwrap().path(), "{").unwrap();
    }
    assert_eq!(job.solve().len(), 6);
    fs::remove_dir_all(job.at("job/.flow")).unwrap();
    assert_eq!(job.solve_with(&["--overwrite"]).len(), 6);
}

#[test]
fn temporary_outputs_are_not_kept_and_made_again_if_they_are_needed() {
    let job = Job::new(&PIPELINE.replace("[task.merge]", "temporary = true\n[task.merge]"));
    assert_eq!(job.solve(), ALL);
    assert!(job.has("merged.txt") && !job.has("sorted/a.txt"));
    assert_eq!(job.solve(), [""; 0]);
    job.edit("wc -l", "wc -c");
    assert_eq!(job.solve(), ["count"]);
    job.edit("sort -m", "sort -r -m");
    assert_eq!(job.solve(), ALL);
}

#[test]
fn readers_of_a_nondeterministic_command_that_runs_again_run_too() {
    let job = Job::new(
        "[task.a]\nout = [\"x\"]\nwith = { nondeterministic = true }\nrun = 'echo a >> \"$LOG\"; date +%s%N > x'\n\
         [task.b]\nin = [\"x\"]\nout = [\"y\"]\nrun = 'echo b >> \"$LOG\"; cp x y'\n\
         [task.c]\nin = [\"x\"]\nout = [\"z\"]\nrun = 'echo c >> \"$LOG\"; cp x z'",
    );
    assert_eq!(job.solve(), ["a", "b", "c"]);
    assert_eq!(job.solve(), [""; 0]);
    fs::remove_file(job.at("job/x")).unwrap();
    assert_eq!(job.solve(), ["a", "b", "c"]);
    assert_eq!((job.text("x"), job.text("x")), (job.text("y"), job.text("z")));
    // A temporary file is made again for one reader, and the other one has to read the same file.
    job.edit("[\"x\"]\nwith", "[\"x\"]\ntemporary = true\nwith");
    fs::remove_file(job.at("job/x")).unwrap();
    job.edit("cp x y", "cp x y; : changed");
    assert_eq!(job.solve(), ["a", "b", "c"]);
    assert_eq!(job.text("y"), job.text("z"));
    assert_eq!(job.solve(), [""; 0]);
}

#[test]
fn failed_command_is_reported_with_its_name_status_and_last_lines() {
    let job = Job::new(
        &PIPELINE.replace("sort {in} >", "[ {sample} != b ] || { echo it is b >&2; exit 3; }; sort {in} >"),
    );
    let error = job.fails();
    for expected in [
        "task `sort`",
        "sort (sample=b): `sh -eu -c",
        "exit status: 3",
        "it is b\n",
        "3 of 5 commands failed or did not run",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(error.matches("exit status").count(), 1, "{error}");
    // The others have completed, and need not run again.
    assert!(job.has("sorted/a.txt") && job.has("sorted/c.txt") && !job.has("sorted/b.txt"));
    assert_eq!(job.ran(), ["sort a", "sort b", "sort c"]);
    job.edit("!= b", "!= x");
    assert_eq!(job.solve(), ALL);
}

#[test]
fn timeout_is_reported_with_the_values_of_its_command() {
    let with = "sleep 60; sort {in} > {out}\n\"\"\"\nwith = { timeout = \"1 ms\" }\n[task.merge]";
    let job = Job::new(&PIPELINE.replace("sort {in} > {out}\n\"\"\"\n[task.merge]", with));
    let error = job.fails();
    assert!(error.contains("sort (sample=a): ") && error.contains("sort (sample=c): "), "{error}");
}

#[test]
fn count_of_one_command_is_singular() {
    let job = Job::new("[task.a]\nout = [\"x\"]\nrun = \"touch x\"");
    let text = String::from_utf8(job.flow(&["solve", "--quiet"]).stdout).unwrap();
    assert!(text.contains("1 command ran; 0 commands up to date"), "{text}");
}

#[test]
fn missing_output_of_a_command_is_reported() {
    let job = Job::new("[task.a]\nout = [\"one\", \"two\"]\nrun = \"echo half > one; touch tow\"");
    let error = job.fails();
    assert!(error.contains("a: `sh -eu -c") && error.contains("has not written the file `two`"), "{error}");
    assert!(!job.has("one"), "no output is written without the others");
}

#[test]
fn command_that_fails_once_is_repeated_by_retry() {
    let text = "[task.a]\nout = [\"x\"]\nwith = { retry = 1 }\nrun = 'echo a >> \"$LOG\"; [ $(wc -l < \"$LOG\") = 2 ]; echo > x'";
    let job = Job::new(text);
    assert!(job.flow(&["solve", "--quiet"]).status.success());
    assert_eq!(job.ran(), ["a", "a"]);
}

#[test]
fn worker_runs_other_commands_in_the_pause_of_a_failed_one() {
    let job = Job::new(
        "[task.a]\nout = [\"x\"]\nwith = { retry = 8, pause = \"100 ms\", priority = 1 }\nrun = '[ -e \"$LOG\" ]; touch x'\n\
         [task.b]\nout = [\"y\"]\nrun = 'echo b >> \"$LOG\"; touch y'",
    );
    let output = job.flow(&["solve", "--quiet", "--workers", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn commands_that_use_a_limit_run_one_at_a_time() {
    let job = Job::new(
        "[limits]\nlicence = 1\n[each]\nn = [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"]\n\
         [task.a]\nout = [\"a{n}\"]\nuses = [\"licence\"]\nrun = 'mkdir \"$LOG.used\"; sleep 0.05; rmdir \"$LOG.used\"; touch a{n}'",
    );
    let output = job.flow(&["solve", "--quiet", "--workers", "4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(job.has("a6"));
}

#[test]
fn files_whose_names_have_quotes_and_newlines_pass_between_commands() {
    let job = Job::new(
        "[task.a]\nout = [\"it's \\\"a\\\"\\n$(b)/x\"]\nrun = 'echo one > {out}'\n\
         [task.b]\nin = [\"it's \\\"a\\\"\\n$(b)/x\"]\nout = [\"-y;\"]\nrun = 'cat {in} > {out}'",
    );
    let output = job.flow(&["solve", "--quiet"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(job.text("-y;"), "one\n");
}

#[test]
fn check_prints_the_plan_and_what_has_to_run() {
    let job = Job::new(PIPELINE);
    let check = || serde_json::from_slice::<Value>(&job.flow(&["check", "--json"]).stdout).unwrap();
    let plan = check();
    assert_eq!(plan["tasks"]["sort"], 3);
    assert_eq!(plan["levels"], serde_json::json!([3, 1, 1]));
    assert_eq!((&plan["commands"], &plan["to_run"], &plan["widest"]), (&5.into(), &5.into(), &3.into()));
    job.solve();
    assert_eq!(check()["to_run"], 0);
    let text = String::from_utf8(job.flow(&["check"]).stdout).unwrap();
    let first =
        "5 commands, 0 to run; files: 3 read, 5 written; the widest level has 3\ncount 1, merge 1, sort 3\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains(&format!("    1 {} 3 sort\n", "█".repeat(40))), "{text}");
}

#[test]
fn existing_file_without_a_record_is_not_replaced() {
    let job = Job::new(PIPELINE);
    fs::write(job.at("job/count.txt"), "mine").unwrap();
    let refused = || {
        let output = job.flow(&["solve", "--quiet"]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused();
    assert!(text.contains("count would replace count.txt, which flow has not written: move"), "{text}");
    assert_eq!((job.ran(), job.text("count.txt")), (Vec::new(), "mine".into()));
    // The folder is locked before its files are compared with the records.
    let lock = fs::File::create(job.at("job/.flow/lock")).unwrap();
    lock.lock().unwrap();
    let text = refused();
    assert!(text.contains("another run of flow writes into"), "{text}");
    drop(lock);
    assert_eq!(job.solve_with(&["--overwrite"]), ALL);
    assert_eq!(job.solve(), [""; 0]);
}

#[test]
fn state_directory_is_refused() {
    let job = Job::new(PIPELINE);
    for option in [&["--state", "s"][..], &["--state=s"]] {
        let output = job.flow(&[&["solve", "--quiet"], option].concat());
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("flow does not use --state: the folder .flow"), "{text}");
    }
    assert_eq!(job.ran(), [""; 0]);
}
