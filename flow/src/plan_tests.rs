//! Tests of job files and plans.

use std::{fs, path::Path};

use super::{Plan, variables};
use crate::job_file::JobFile;

/// Plans a job file in a folder with these files.
fn plan(files: &[&str], text: &str) -> Result<Plan, String> {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let file = JobFile::parse(Path::new("job.toml"), text.to_owned()).map_err(|error| error.to_string())?;
    let variables = variables(&file, folder.path()).map_err(|error| error.to_string())?;
    Plan::new(&file, &variables, |path| folder.path().join(path).is_file()).map_err(|error| error.to_string())
}

/// Checks that a job file is refused with this text, which starts with the line.
fn refused(text: &str, expected: &str) {
    let error = plan(&["a.txt"], text).expect_err(expected);
    assert!(error.contains(&format!("job.toml:{expected}")), "{error}");
}

/// Aligns, sorts, merges and calls.
const PIPELINE: &str = r#"
[limits]
licence = 2
disk = 1
[each]
sample = "samples/*.fq"
region = ["chr1", "chr2", "chr3"]
[task.align]
uses = ["licence", "disk"]
in = ["hg38.fa", "samples/{sample}.fq"]
out = ["sam/{sample}.sam"]
run = "bwa mem {in} > {out}"
with = { cores = 2, memory = "8 GiB", retry = 3, pause = "1 s", timeout = "1 h", needs = "bwa,os=linux" }
temporary = true
[task.sort]
in = ["sam/{sample}.sam"]
out = ["bam/{sample}.bam"]
run = "samtools sort {in} -o {out}"
[task.merge]
in = ["bam/{sample}.bam"]
out = ["all.bam"]
run = "samtools merge {out} {in}"
[task.call]
in = ["hg38.fa", "all.bam"]
out = ["calls/{region}.vcf"]
run = "bcftools call -r {region} {in} > {out}"
"#;

#[test]
fn pipeline_over_200_samples_has_a_command_for_each_combination_of_output_variables() {
    let samples: Vec<_> = (0..200).map(|number| format!("samples/s{number:03}.fq")).collect();
    let files: Vec<_> = samples.iter().map(String::as_str).chain(["hg38.fa"]).collect();
    let plan = plan(&files, PIPELINE).unwrap();
    assert_eq!(plan.levels, [200, 200, 1, 3]);
    assert_eq!(plan.sources().len(), 201);
    let by_label = |label: &str| plan.steps.iter().find(|step| step.label == label).unwrap();
    let align = by_label("align (sample=s007)");
    assert_eq!(align.command, "bwa mem hg38.fa samples/s007.fq > sam/s007.sam");
    assert_eq!(by_label("merge").inputs.len(), 200);
    assert!(by_label("merge").command.starts_with("samtools merge all.bam bam/s000.bam bam/s001.bam "));
    assert_eq!(by_label("call (region=chr2)").outputs, ["calls/chr2.vcf"]);
    let options = plan.kinds[0].options;
    assert_eq!((options.cores, options.memory, options.retry), (2, 8 << 30, 3));
    assert_eq!((options.pause, options.pause_max), (Some(std::time::Duration::from_secs(1)), None));
    assert_eq!(options.needs, ["bwa", "os=linux"]);
    assert_eq!(options.limits, ["licence=2", "disk=1"]);
    assert!(plan.kinds[0].is_temporary && !plan.kinds[1].is_temporary);
}

#[test]
fn names_with_special_characters_are_quoted_for_the_shell() {
    let text = "[task.a]\nout = [\"it's here\", \"-x\", \"plain\"]\nrun = \"touch {out} ${in}\"";
    assert_eq!(plan(&[], text).unwrap().steps[0].command, "touch 'it'\\''s here' ./-x plain ${in}");
}

#[test]
fn two_writers_of_a_file_are_refused_with_both_lines() {
    let task = |name: &str| format!("[task.{name}]\nout = [\"x\"]\nrun = \"\"\n");
    refused(&(task("one") + &task("two")), "4: one (line 1) and two both write x: each output");
}

#[test]
fn output_without_the_variable_of_its_task_is_refused() {
    let text = "[each]\ns = [\"1\", \"2\"]\n[task.a]\nout = [\"{s}.x\", \"log\"]\nrun = \"\"";
    refused(text, "3: a (s=1) (line 3) and a (s=2) both write log: each output");
}

#[test]
fn output_that_would_change_the_job_is_refused() {
    let text = |out: &str| {
        format!("[each]\ns = \"*.txt\"\n[task.t]\nin = [\"{{s}}.txt\"]\nout = [\"{out}\"]\nrun = \"\"")
    };
    refused(&text("job.toml"), "5: task t writes job.toml, which is the job file");
    refused(
        &text("{s}.sorted.txt"),
        "5: task t writes a.sorted.txt, which the next run would take as a value of variable s",
    );
    for accepted in ["sub/{s}.txt", "sub/job.toml", ".{s}.txt"] {
        plan(&["a.txt"], &text(accepted)).unwrap();
    }
}

#[test]
fn output_that_is_the_folder_of_another_file_is_refused() {
    for (first, second) in [("a/x", "a"), ("a", "a/x/y")] {
        let text = format!(
            "[task.one]\nout = [\"{first}\"]\nrun = \"\"\n[task.two]\nout = [\"{second}\"]\nrun = \"\""
        );
        let error = plan(&[], &text).unwrap_err();
        assert!(error.contains(": a is a file of the job and the folder of a/x"), "{error}");
    }
    let text = "[task.one]\nin = [\"a.txt\"]\nout = [\"a.txt/x\"]\nrun = \"\"";
    refused(text, "1: task one: a.txt is a file of the job and the folder of a.txt/x");
}

#[test]
fn cycle_is_refused_with_its_tasks() {
    let task = |name: &str, from: &str| {
        format!("[task.{name}]\nin = [\"{from}\"]\nout = [\"{name}\"]\nrun = \"\"\n")
    };
    let text = task("a", "c") + &task("b", "a") + &task("c", "b");
    refused(&text, "1: a cycle of inputs: each of these commands waits for another one of them: a, b, c");
    refused(
        &task("a", "a"),
        "1: a cycle of inputs: each of these commands waits for another one of them: a; remove",
    );
    // Commands after a cycle do not belong to it.
    let text = task("a", "b") + &task("b", "d") + &task("c", "b") + &task("d", "c");
    refused(
        &text,
        "5: a cycle of inputs: each of these commands waits for another one of them: b, c, d; remove",
    );
}

#[test]
fn command_longer_than_an_argument_is_refused() {
    let text = |bytes: usize| format!("[task.a]\nout = [\"x\"]\nrun = \"{}\"", "x".repeat(bytes));
    plan(&[], &text(120_000)).unwrap();
    refused(
        &text(120_001),
        "3: a command of task a has 120001 bytes, and at most 120000 are possible: divide",
    );
}

#[test]
fn job_with_too_many_inputs_is_refused_before_they_fill_the_memory() {
    let values =
        |count: u32| format!("{:?}", (0..count).map(|number| number.to_string()).collect::<Vec<_>>());
    let each = format!("[each]\na = {}\nb = {}\n", values(100_000), values(10_000));
    let folder = "long".repeat(1_000);
    let text = each + &format!("[task.t]\nin = [\"{folder}/{{b}}\"]\nout = [\"x/{{a}}\"]\nrun = \"\"");
    refused(&text, "4: the commands of the job and the names of their files have more than 134217728 bytes");
}

#[test]
fn huge_lists_and_paths_of_a_task_are_refused() {
    let outputs: Vec<_> = (0..=10_000).map(|number| format!("x{number}")).collect();
    let text = |outputs: &[String]| format!("[task.a]\nout = {outputs:?}\nrun = \"\"");
    refused(&text(&outputs), "1: a command of task a writes more than 10000 files");
    plan(&[], &text(&outputs[1..])).unwrap();
    let error = plan(&[], &text(&["a/".repeat(400_000) + "x"])).unwrap_err();
    assert!(error.ends_with("a path has at most 4,095 bytes") && error.len() < 300, "{} bytes", error.len());
}

#[test]
fn control_characters_of_names_are_escaped_in_errors() {
    let task = |name: &str| format!("[task.{name}]\nout = [\"a\\nb\"]\nrun = \"\"\n");
    refused(&(task("one") + &task("two")), "4: one (line 1) and two both write a\\nb: each output");
}

#[test]
fn input_that_nobody_makes_is_refused() {
    let text = "[task.a]\nin = [\"a.txt\", \"b.txt\"]\nout = [\"x\"]\nrun = \"\"";
    refused(text, "1: task a reads b.txt, which no task writes and which does not exist");
}

#[test]
fn variable_without_values_is_refused() {
    let task = "\n[task.a]\nout = [\"{s}\"]\nrun = \"\"";
    for values in ["\"*.fq\"", "[]"] {
        refused(&format!("[each]\ns = {values}{task}"), "2: variable s has no values");
    }
    for (values, expected) in [
        ("\"none/*.fq\"", "2: s = \"none/*.fq\": No such file"),
        ("\"a.txt\"", "2: s = \"a.txt\": a pattern has one `*`"),
        ("[\"a b\"]", "2: variable s has the value \"a b\""),
        ("3", "2: expected a pattern"),
    ] {
        refused(&format!("[each]\ns = {values}{task}"), expected);
    }
}

#[test]
fn absolute_and_escaping_paths_are_refused() {
    for path in ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "", "a/", ".flow/lock"] {
        for (field, verb) in [("out", "writes"), ("in", "reads")] {
            let other = if field == "in" { "out = [\"x\"]" } else { "" };
            let text = format!("[task.a]\nrun = \"\"\n{field} = [\"{path}\"]\n{other}");
            refused(&text, &format!("3: task a {verb} \"{path}\": "));
        }
    }
    // A value may lead out as well.
    let text = "[each]\ns = [\"..\"]\n[task.a]\nout = [\"{s}/x\"]\nrun = \"\"";
    refused(text, "4: task a writes \"../x\": a path is relative");
}

#[test]
fn wrong_fields_are_refused_with_their_lines() {
    for (text, expected) in [
        ("", "1: it has no task"),
        ("[task.a]\nout = [\"x\"]", "1: missing field `run`"),
        ("[task.a]\nout = [\"x\"]\nrun = \"\"\nretries = 3", "4: unknown field `retries`, expected one of"),
        ("[tasks.a]\nout = [\"x\"]\nrun = \"\"", "1: unknown field `tasks`"),
        ("[task.a]\nout = \"x\nrun = \"\"", "2: "),
        ("[task.a]\nout = []\nrun = \"\"", "1: task a has no output"),
        ("[task.\"a b\"]\nout = [\"x\"]\nrun = \"\"", "1: \"a b\" cannot be the name of a task"),
        ("[task.a]\nout = [\"{x}\"]\nrun = \"\"", "2: there is no variable x: define its values in [each]"),
        ("[each]\nin = [\"1\"]\n[task.a]\nout = [\"x\"]\nrun = \"\"", "2: \"in\": a variable has letters"),
        ("[each]\ns = [\"1\"]\n[task.a]\nout = [\"x\"]\nrun = \"{s}\"", "5: {s} has no single value in run"),
        (
            "[task.a]\nout = [\"x\"]\nrun = \"\"\nwith = { tries = 2 }",
            "4: there is no option tries; the options are cores",
        ),
        (
            "[task.a]\nout = [\"x\"]\nrun = \"\"\nwith = { memory = \"much\" }",
            "4: \"much\" is no value of memory",
        ),
        ("[task.a]\nout = [\"x\"]\nrun = \"\"\nuses = [\"l\"]", "4: there is no limit l: define"),
        (
            "[limits]\nl = 0\n[task.a]\nout = [\"x\"]\nrun = \"\"\nuses = [\"l\"]",
            "2: the limit \"l\" is 0: its name",
        ),
        ("[limits]\nl = -1", "2: invalid value: integer `-1`"),
        (
            "[limits]\nl = 1\n[task.a]\nout = [\"x\"]\nrun = \"\"\nuses = [\"l\", \"l\"]",
            "6: \"l=1,l=1\" is no value of limits: the limit l is given twice",
        ),
        ("[task.a]\nout = [\"x\"]\nrun = \"\"\nwith = { retry = 1.5 }", "4: \"1.5\" is no value of retry"),
        ("[task.a]\nout = [\"x\"]\nrun = \"\"\nwith = { pause = \"1 s\" }", "4: pause needs retry"),
    ] {
        refused(text, expected);
    }
}

#[test]
fn uris_that_cannot_be_used_are_refused() {
    let text = |from: &str, to: &str| format!("[task.a]\nin = [\"{from}\"]\nout = [\"{to}\"]\nrun = \"\"");
    refused(
        &text("a.txt", "https://host/x"),
        "3: task a writes \"https://host/x\": a web server is only for inputs",
    );
    refused(&text("s3://b/../x", "y"), "2: task a reads \"s3://b/../x\": a URI has at most");
    if cfg!(feature = "stores") {
        refused(&text("file:///x?y", "y"), "2: task a reads \"file:///x?y\": ");
        refused(&text("ftp://host/x", "y"), "2: task a reads \"ftp://host/x\": ");
        refused(&text("file:///b/x", "file/b/x"), "4: task a: file:///b/x and file/b/x have the same path");
        let temporary = text("a.txt", "file:///b/x") + "\ntemporary = true";
        refused(&temporary, "3: task a is temporary, and would not write file:///b/x");
        refused(&text("file:///x", "file:///x"), "1: a cycle of inputs");
    } else {
        refused(
            &text("s3://b/x", "y"),
            "2: task a reads \"s3://b/x\": this program is built without s3://: build it with the feature `stores`",
        );
    }
}
