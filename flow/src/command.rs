//! The command `flow`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File as Lock},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
};

use clap::{Args, Subcommand};
use dataflow_framework::{
    File,
    cli::{self, Command, Failure, More, Shown},
};
use serde_json::json;

use crate::{
    job_file::JobFile,
    map::{self, Map},
    object::is_uri,
    plan::{self, Plan},
    record::{self, Origin, Selection},
    work::{self, Done, Flow, Returned, SENT_BYTES_MAX, Source, Work},
};

/// The locked folder of the job file. The same process reads the job file and presents the result.
static FOLDER: Mutex<Option<(PathBuf, Lock)>> = Mutex::new(None);

/// The maximum width of the bar of a level.
const BAR_CHARS_MAX: usize = 40;

/// The options of a job.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The job file; with --map, the command
    file: PathBuf,
    #[command(flatten)]
    map: Map,
    /// Read and write the files where they are: every node reaches the folder of the job file at the same path. By
    /// default, with submit, inputs travel with the job, and --wait writes the outputs. Implied by solve
    #[arg(long)]
    shared: bool,
    /// Replace existing files that flow has not written, such as after the folder .flow was removed
    #[arg(long)]
    overwrite: bool,
}

/// The commands in addition to those of each program.
#[derive(Debug, Subcommand)]
pub(crate) enum Commands {
    /// Check a job file, and print its plan.
    Check(Check),
    /// Run a command for each of many values: short for solve --map. The options are those of solve, and on a
    /// cluster those of submit --map.
    ///
    /// Example: flow map 'gzip -c {} > {}.gz' --out '{}.gz' *.txt
    Map {
        /// The command, the values, and options
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The job file.
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Returns the absolute path of a folder.
fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(folder)
        .map_err(|error| Failure::usage(format!("{}: the folder cannot be read: {error}", folder.display())))
}

/// Plans a command for each of many values, in the current folder.
fn mapped(map: &Map, command: &Path) -> Result<(PathBuf, Plan), Failure> {
    let command = command.to_str().ok_or_else(|| Failure::usage("the command is not UTF-8"))?;
    let folder = absolute(Path::new("."))?;
    let plan = map.plan(command, &folder).map_err(Failure::usage)?;
    Ok((folder, plan))
}

/// Reads and plans a job file. Returns its folder and the plan.
fn read(path: &Path) -> Result<(PathBuf, Plan), Failure> {
    let file = JobFile::read(path).map_err(Failure::usage)?;
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let folder = absolute(folder)?;
    let variables = plan::variables(&file, &folder).map_err(Failure::usage)?;
    let plan = Plan::new(&file, &variables, |path| is_uri(path) || folder.join(path).is_file())
        .map_err(Failure::usage)?;
    Ok((folder, plan))
}

impl Command for Flow {
    const NAME: &'static str = "flow";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Runs shell commands, each after the commands that write its inputs";
    type Options = Options;

    fn arguments(Options { file, map, shared, overwrite }: Options) -> Result<Work, Failure> {
        let is_map = map.is_selected();
        let (folder, plan) = if is_map { mapped(&map, &file)? } else { read(&file)? };
        // Before the selection: an earlier run may still write.
        let lock = record::lock(&folder)?;
        let Selection { runs, sources } = record::select(&plan, &folder).map_err(Failure::usage)?;
        if !overwrite {
            record::refuse_overwriting(&plan, &folder, &runs).map_err(Failure::usage)?;
        }
        let mut bytes = 0;
        let source = |(path, Origin { digest, version }): (String, Origin)| {
            if version.is_some() {
                return Ok(Source { path, digest, version, sent: None });
            }
            let at = folder.join(&path);
            let cannot = |error| Failure::usage(format!("{path} cannot be read: {error}"));
            if !shared {
                bytes += fs::metadata(&at).map_err(cannot)?.len();
                if bytes > SENT_BYTES_MAX {
                    return Err(Failure::usage(format!(
                        "the inputs have more than {SENT_BYTES_MAX} bytes, which is the maximum that travels with a job: \
                         put the job file into a folder that all nodes reach, and use --shared"
                    )));
                }
            }
            let sent = if shared { None } else { Some(File::open(&at).map_err(cannot)?) };
            Ok(Source { path, digest, version, sent })
        };
        let sources = sources.into_iter().map(source).collect::<Result<_, _>>()?;
        let all = plan.steps.len();
        let steps: Vec<_> =
            plan.steps.into_iter().zip(runs).filter_map(|(step, runs)| runs.then_some(step)).collect();
        let shared_folder = shared.then(|| record::Shared::new(folder.clone())).transpose();
        let shared_folder = shared_folder.map_err(|error| {
            Failure::failed(format!("{}: the folder .flow cannot be written: {error}", folder.display()))
        })?;
        *FOLDER.lock().map_err(|error| Failure::failed(error.to_string()))? = Some((folder, lock));
        let (shell, kinds, skipped) = (plan.shell, plan.kinds, all - steps.len());
        Ok(Work { folder: shared_folder, shell, kinds, sources, steps, skipped, is_map })
    }

    fn show(mut done: Done) -> Shown {
        let folder = FOLDER.lock().ok().and_then(|folder| folder.as_ref().map(|(folder, _)| folder.clone()));
        for one in std::mem::take(&mut done.returned) {
            if let Some(folder) = &folder
                && let Err(error) = write(folder, &one)
            {
                done.failures.push(format!("{}: {error}", one.step.label));
                done.fail_value(&one.step.label, error);
            }
        }
        let Done { ran, skipped, mut failures, rows, .. } = done;
        let mut json = json!({ "ran": ran, "skipped": skipped, "failures": failures });
        if !rows.is_empty() {
            json["values"] = json!(rows);
        }
        let text = format!("{} ran; {} up to date", work::commands(ran), work::commands(skipped));
        let is_complete = failures.is_empty();
        failures.push(text);
        if !rows.is_empty() {
            failures.insert(0, map::table(&rows));
        }
        Shown::new(failures.join("\n"), json, is_complete)
    }
}

/// Writes outputs that returned with the result.
fn write(folder: &Path, Returned { step, record, files }: &Returned) -> Result<(), String> {
    // They come from another process.
    step.outputs.iter().filter(|path| !is_uri(path)).try_for_each(|path| plan::check_path(path))?;
    let written = work::store(folder, step, files.iter()).and_then(|()| record.save(folder, step));
    written.map_err(|error| error.to_string())
}

impl More for Commands {
    fn run(self) -> Result<ExitCode, Failure> {
        let Check { file, json } = match self {
            Self::Check(check) => check,
            Self::Map { words } => {
                let solve = ["flow", "solve", "--map"].map(OsString::from);
                return Ok(run(solve.into_iter().chain(words)));
            }
        };
        let (folder, plan) = read(&file)?;
        let selection = record::select(&plan, &folder).map_err(Failure::usage)?;
        let figures = as_json(&plan, &selection);
        cli::print(&if json { format!("{figures}\n") } else { as_text(&plan, &figures) });
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the figures of a plan.
fn as_json(plan: &Plan, selection: &Selection) -> serde_json::Value {
    // A job file may have as many tasks as commands.
    let mut counts = vec![0_usize; plan.kinds.len()];
    plan.steps.iter().for_each(|step| counts[step.kind] += 1);
    let tasks = plan.kinds.iter().zip(counts).map(|(kind, count)| (kind.name.clone(), count.into()));
    json!({
        "tasks": tasks.collect::<serde_json::Map<_, _>>(),
        "commands": plan.steps.len(),
        "to_run": selection.runs.iter().filter(|runs| **runs).count(),
        "files_read": plan.sources().len(),
        "files_written": plan.steps.iter().map(|step| step.outputs.len()).sum::<usize>(),
        "levels": plan.levels,
        "widest": plan.levels.iter().max(),
    })
}

/// Returns the figures with a picture of the levels.
fn as_text(plan: &Plan, figures: &serde_json::Value) -> String {
    let [to_run, read, written] = ["to_run", "files_read", "files_written"].map(|name| &figures[name]);
    let widest = plan.levels.iter().max().copied().unwrap_or(1);
    let tasks = figures["tasks"].as_object().into_iter().flatten();
    let tasks: Vec<_> = tasks.map(|(name, count)| format!("{name} {count}")).collect();
    let mut text = format!(
        "{}, {to_run} to run; files: {read} read, {written} written; the widest level has {widest}\n{}\n",
        work::commands(plan.steps.len()),
        tasks.join(", ")
    );
    let mut steps = plan.steps.iter();
    for (level, count) in (1..).zip(&plan.levels) {
        let names: BTreeSet<_> =
            steps.by_ref().take(*count).map(|step| &*plan.kinds[step.kind].name).collect();
        let (bar, names) =
            ("█".repeat((count * BAR_CHARS_MAX / widest).max(1)), Vec::from_iter(names).join(", "));
        text.extend([format!("{level:>5} {bar} {count} {names}\n")]);
    }
    text
}

/// Runs the command line.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the command line with these arguments; the first one is the name of the command.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    // A state directory returns the result of its finished job, and runs no command.
    let is_state = |word: &OsString| word == "--state" || word.to_string_lossy().starts_with("--state=");
    if arguments.iter().any(is_state) {
        let text = "flow does not use --state: the folder .flow has the records of completed commands, \
                    and the same command continues; leave --state out";
        // A closed standard error must not change the exit code.
        let _ = writeln!(io::stderr(), "error: {text}");
        return Failure::usage(text).exit_code();
    }
    // All nodes of `solve` are in this process.
    if arguments.get(1).is_some_and(|command| command == "solve") && !arguments.contains(&"--shared".into()) {
        arguments.insert(2, "--shared".into());
    }
    cli::main_with::<Flow, Commands>(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{map::Row, plan::Step, record::Record};

    #[test]
    fn value_whose_output_cannot_be_written_is_shown_as_failed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = record::lock(folder.path()).unwrap();
        *FOLDER.lock().unwrap() = Some((folder.path().to_owned(), lock));
        fs::create_dir(folder.path().join("out")).unwrap();
        let (label, outputs) = ("a".to_owned(), vec!["out".to_owned()]);
        let step = Step { kind: 0, label, command: String::new(), inputs: Vec::new(), outputs };
        let record = Record::new(&[], &step, [].into_iter(), Vec::new());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let returned = vec![Returned { step, record, files: vec![File::open(&file).unwrap()] }];
        let rows = vec![Row { value: "a".to_owned(), failure: None, output: String::new() }];
        let shown = Flow::show(Done { ran: 1, returned, rows, ..Done::default() });
        assert!(!shown.complete);
        assert!(
            shown.text.starts_with("a  failed  ") && shown.text.contains("out cannot be written"),
            "{}",
            shown.text
        );
        assert!(shown.json["values"][0]["failure"].is_string());
    }
}
