//! The program of a job: it calls a task for each command of a plan.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    fs,
    io::{self, Read as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use dataflow_framework::{
    __private::{Body, Calling, Failed, Invocation},
    Data, Failure, FailureKind, File, Program, Run, TaskDef,
};
use serde::{Deserialize, Serialize};

use crate::{
    map::Row,
    object::{self, in_folder, is_uri},
    plan::{Kind, Step},
    record::{self, Record, Shared, digest},
};

/// The maximum size of all inputs that travel with a job, and of all outputs that return with its result, in bytes.
pub(crate) const SENT_BYTES_MAX: u64 = 1 << 30;
const RETURNED_BYTES_MAX: u64 = 60 << 20;

/// The maximum size of a standard output that is a result, in bytes.
const PRINTED_BYTES_MAX: u64 = 16 << 10;

/// The maximum number of failures in an error.
const FAILURES_MAX: usize = 20;

/// The commands of a job that have to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The folder of the job file, if the nodes reach it at this path. Otherwise inputs travel with the job, and outputs
    /// return with its result.
    pub(crate) folder: Option<Shared>,
    pub(crate) shell: Vec<String>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) sources: Vec<Source>,
    pub(crate) steps: Vec<Step>,
    /// The number of commands that need not run.
    pub(crate) skipped: usize,
    /// Whether it runs one command for each of many values.
    pub(crate) is_map: bool,
}

/// A file that exists before the job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) digest: String,
    /// The version of an object.
    pub(crate) version: Option<String>,
    pub(crate) sent: Option<File>,
}

/// The result of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) ran: usize,
    pub(crate) skipped: usize,
    pub(crate) returned: Vec<Returned>,
    pub(crate) failures: Vec<String>,
    /// The result of each value that has run.
    pub(crate) rows: Vec<Row>,
}

impl Done {
    /// Adds the outputs of a command, if they may return with those before, which have `before` bytes. Otherwise the value
    /// of the command has failed. Returns whether they were added.
    fn bring(&mut self, returned: Returned, size: u64, before: &mut u64) -> bool {
        let is_possible = *before + size <= RETURNED_BYTES_MAX;
        if is_possible {
            *before += size;
            self.returned.push(returned);
        } else {
            let reason = format!(
                "its outputs were not returned: with {size} bytes, they exceed the {RETURNED_BYTES_MAX} bytes of a job; \
                 use a shared folder with --shared"
            );
            self.fail_value(&returned.step.label, reason);
        }
        is_possible
    }

    /// Records the failure of a value.
    pub(crate) fn fail_value(&mut self, value: &str, reason: String) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.value == value) {
            row.failure = Some(reason);
        }
    }
}

/// The outputs of a command, in their order, with its record; without the files if these are temporary.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Returned {
    pub(crate) step: Step,
    pub(crate) record: Record,
    pub(crate) files: Vec<File>,
}

/// The arguments of the call of a command in addition to its inputs.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    shell: Vec<String>,
    step: Step,
    /// The folder for the outputs and the record.
    folder: Option<Shared>,
    is_temporary: bool,
    prints: bool,
    /// The digests of inputs at URIs, which the submitter knows.
    digests: BTreeMap<String, String>,
}

/// Returns the task of this name and these options. Nodes learn the tasks of a job from its arguments; each is stored once
/// per process.
fn task(Kind { name, options, .. }: &Kind) -> &'static TaskDef {
    static KNOWN: Mutex<Vec<&'static TaskDef>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(task) = known.iter().find(|task| task.name == name && task.options == *options) {
        return task;
    }
    let task: &'static TaskDef = Box::leak(Box::new(TaskDef {
        name: name.clone().leak(),
        module: module_path!(),
        signature: "(Order, &[&File]) -> (Record, File...)",
        code: "",
        options: *options,
        run: Body::Thread(call),
        default_outputs: None,
    }));
    known.push(task);
    task
}

/// Runs a call: its results are the record and the outputs.
fn call(call: &mut Invocation<'_>) -> Result<(), Failed> {
    let order: Order = call.copied()?;
    let inputs: Vec<Arc<File>> = call.read_all()?;
    let made = execute(&order, &inputs);
    let (record, files) = made.map_err(|error| Failed::of(format!("{}: {error}", order.step.label)))?;
    call.put(record);
    for file in files {
        call.put(file);
    }
    Ok(())
}

/// Runs a command on its inputs.
fn execute(order: &Order, inputs: &[Arc<File>]) -> io::Result<(Record, Vec<File>)> {
    let Order { shell, step, folder, is_temporary, prints, digests } = order;
    folder.as_ref().map_or(Ok(()), Shared::check)?;
    let (program, options) = shell.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let run = options.iter().fold(Run::new(program), Run::word).word("-c").word(&step.command);
    let run = step.inputs.iter().zip(inputs).fold(run, |run, (path, file)| run.input(in_folder(path), file));
    let files = if *prints {
        vec![run.stdout_to("stdout")?]
    } else {
        run.outputs(&step.outputs.iter().map(|path| in_folder(path)).collect::<Vec<_>>())?
    };
    let read = step.inputs.iter().zip(inputs);
    let read =
        read.map(|(path, file)| digests.get(path).map_or_else(|| digest(file.path()), |it| Ok(it.clone())));
    let read = read.collect::<io::Result<Vec<_>>>()?;
    let written = files.iter().map(|file| digest(file.path())).collect::<io::Result<Vec<_>>>()?;
    let record = Record::new(shell, step, read.iter().map(String::as_str), written);
    if let Some(folder) = folder.as_ref().filter(|_| !prints) {
        // Again, since commands may take long: without the folder, its path would be created here.
        folder.check()?;
        if !is_temporary {
            let local = step.outputs.iter().zip(&files).filter(|(path, _)| !is_uri(path));
            store(&folder.path, step, local.map(|(_, file)| file))?;
        }
        // Outputs at URIs are not published yet.
        if !step.outputs.iter().any(|path| is_uri(path)) {
            record.save(&folder.path, step)?;
        }
    }
    Ok((record, files))
}

/// Writes the outputs of a command into the folder of the job file, except for those at URIs.
pub(crate) fn store<'a>(folder: &Path, step: &Step, files: impl Iterator<Item = &'a File>) -> io::Result<()> {
    record::claim(folder, step)?;
    let local = step.outputs.iter().filter(|path| !is_uri(path));
    local.zip(files).try_for_each(|(path, file)| {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        file.publish(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be written: {error}", path.display()))
        })
    })
}

/// Returns the content of a source as data.
fn source(
    folder: Option<&Path>,
    Source { path, digest: expected, version, sent }: &Source,
) -> Result<Data<File>, String> {
    if let Some(version) = version {
        let found = object::versions(&[path])?.remove(&**path).flatten();
        let is_same = found.as_ref() == Some(version);
        return if is_same { object::read(path) } else { Err(changed(path)) };
    }
    let file = match (sent, folder) {
        (Some(file), _) => file.copy(),
        (None, Some(folder)) => File::open(folder.join(path)),
        (None, None) => Err(io::ErrorKind::NotFound.into()),
    };
    let file = file.map_err(|error| {
        format!("{error}. With --shared, each node has to reach the folder of the job file at the same path")
    })?;
    match digest(file.path()) {
        Ok(found) if found == *expected => Ok(Data::new(file)),
        Ok(_) => Err(changed(path)),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

fn changed(path: &str) -> String {
    format!("{path} has changed since the job was planned: run the command again")
}

/// The handles of a call.
struct Called<'a> {
    step: &'a Step,
    record: Data<Record>,
    files: Vec<Data<File>>,
    /// The sizes of the outputs at URIs, once they are published.
    published: Vec<Data<u64>>,
}

/// The program of all job files.
#[derive(Debug)]
pub(crate) struct Flow;

impl Program for Flow {
    type Arguments = Work;
    type Output = Done;

    fn tasks() -> Vec<&'static TaskDef> {
        Vec::new()
    }

    fn tasks_of(work: &Work) -> Vec<&'static TaskDef> {
        work.kinds.iter().map(task).collect()
    }

    fn run(work: &Work) -> Result<Done, Box<dyn Error + Send + Sync>> {
        let folder = work.folder.as_ref().map(|folder| &*folder.path);
        let mut files: HashMap<&str, Data<File>> = HashMap::new();
        for given in &work.sources {
            files.insert(&given.path, source(folder, given)?);
        }
        let objects = work.sources.iter().filter(|source| source.version.is_some());
        let digests = objects.map(|source| (&*source.path, &*source.digest)).collect();
        let mut calls = Vec::new();
        for step in &work.steps {
            let called = make_call(work, step, &files, &digests)?;
            files.extend(step.outputs.iter().map(|path| &**path).zip(called.files.iter().cloned()));
            let Kind { is_temporary, prints, .. } = work.kinds[step.kind];
            let keeps_files = prints || folder.is_none() && !is_temporary;
            calls.push(if keeps_files { called } else { Called { files: Vec::new(), ..called } });
        }
        drop(files);
        finish(work, calls)
    }
}

fn make_call<'a>(
    work: &Work,
    step: &'a Step,
    files: &HashMap<&str, Data<File>>,
    digests: &HashMap<&str, &str>,
) -> Result<Called<'a>, String> {
    let kind = &work.kinds[step.kind];
    let order = Order {
        shell: work.shell.clone(),
        step: step.clone(),
        folder: work.folder.clone(),
        is_temporary: kind.is_temporary,
        prints: kind.prints,
        digests: step
            .inputs
            .iter()
            .filter_map(|path| Some((path.clone(), (*digests.get(&**path)?).to_owned())))
            .collect(),
    };
    let inputs: Option<Vec<_>> = step.inputs.iter().map(|path| files.get(&**path).cloned()).collect();
    let inputs = inputs.ok_or_else(|| format!("{}: an input is missing in the job", step.label))?;
    let task = task(kind);
    let mut call = Calling::of(task, task.options);
    call.copy(&order);
    call.read_all(&inputs);
    let record = call.result();
    let files: Vec<Data<File>> = step.outputs.iter().map(|_| call.result()).collect();
    call.submit();
    let objects = step.outputs.iter().zip(&files).filter(|(path, _)| is_uri(path));
    let published = objects.map(|(path, file)| object::publish(file, path)).collect::<Result<_, _>>()?;
    Ok(Called { step, record, files, published })
}

/// Returns the text of a failure with the label of its command, which the errors of [`call`] contain.
fn labelled(label: &str, failure: &Failure) -> String {
    if failure.kind() == FailureKind::Error { failure.to_string() } else { format!("{label}: {failure}") }
}

/// Returns a number of commands.
pub(crate) fn commands(count: usize) -> String {
    if count == 1 { "1 command".to_owned() } else { format!("{count} commands") }
}

/// Returns the start of a standard output.
fn printed(file: &Data<File>) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut text = Vec::new();
    file.get()?.reader()?.take(PRINTED_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Waits for all calls. A failure does not affect the calls that do not depend on it.
fn finish(work: &Work, calls: Vec<Called<'_>>) -> Result<Done, Box<dyn Error + Send + Sync>> {
    let all = calls.len();
    let (mut done, mut bytes) = (Done { skipped: work.skipped, ..Done::default() }, 0);
    let (mut failures, mut too_large) = (BTreeMap::new(), 0);
    for Called { step, record, files, published } in calls {
        let written = published.iter().try_for_each(|size| size.get().map(|_| ()));
        let mut record = match record.get().and_then(|record| written.map(|()| record)) {
            Ok(record) => record.clone(),
            Err(failure) if work.is_map => {
                let reason = failure.reason();
                let reason = reason.strip_prefix(&format!("{}: ", step.label)).unwrap_or(reason);
                let row = Row {
                    value: step.label.clone(),
                    failure: Some(reason.to_owned()),
                    output: String::new(),
                };
                done.rows.push(row);
                continue;
            }
            Err(failure) => {
                // Calls that did not run have the failure of the call on which they depend.
                failures.entry(failure.call()).or_insert_with(|| labelled(&step.label, &failure));
                continue;
            }
        };
        done.ran += 1;
        if !published.is_empty() {
            let uris: Vec<_> = step.outputs.iter().map(|path| &**path).filter(|path| is_uri(path)).collect();
            // Without its version, an object counts as changed in the next run.
            let versions = object::versions(&uris).unwrap_or_default().into_iter();
            record.versions = versions.map(|(uri, version)| (uri.to_owned(), version)).collect();
            work.folder.as_ref().map_or(Ok(()), |folder| record.save(&folder.path, step))?;
        }
        let prints = work.kinds[step.kind].prints;
        if work.is_map {
            let output = if prints { printed(&files[0])? } else { String::new() };
            done.rows.push(Row { value: step.label.clone(), failure: None, output });
        }
        if work.folder.is_some() || prints {
            continue;
        }
        // Those at URIs are there.
        let local = step.outputs.iter().zip(&files).filter(|(path, _)| !is_uri(path));
        let files = local.map(|(_, file)| Ok(file.get()?.copy()?));
        let files: Vec<File> = files.collect::<Result<_, Box<dyn Error + Send + Sync>>>()?;
        let size: u64 = files.iter().map(File::len).sum::<io::Result<u64>>()?;
        if !done.bring(Returned { step: step.clone(), record, files }, size, &mut bytes) {
            too_large += 1;
        }
    }
    done.failures = failures.into_values().take(FAILURES_MAX).collect();
    if done.ran < all {
        done.failures.push(format!("{} of {} failed or did not run", all - done.ran, commands(all)));
    }
    if too_large > 0 {
        done.failures.push(format!(
            "the outputs of {} were not returned: at most {RETURNED_BYTES_MAX} bytes return with a job. \
             Make tasks `temporary` whose outputs only other tasks read, or use a shared folder with --shared",
            commands(too_large)
        ));
    }
    if work.folder.is_some() && !done.failures.is_empty() && !work.is_map {
        return Err(done.failures.join("\n").into());
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_with_outputs_above_the_maximum_has_failed() {
        let row = |value: &str| Row { value: value.to_owned(), failure: None, output: String::new() };
        let mut done = Done { rows: vec![row("a"), row("b")], ..Done::default() };
        let returned = |label: &str| {
            let (label, outputs) = (label.to_owned(), vec!["x".to_owned()]);
            let step = Step { kind: 0, label, command: String::new(), inputs: Vec::new(), outputs };
            let record = Record::new(&[], &step, [].into_iter(), Vec::new());
            Returned { step, record, files: Vec::new() }
        };
        let mut bytes = 0;
        assert!(done.bring(returned("a"), RETURNED_BYTES_MAX, &mut bytes));
        assert!(!done.bring(returned("b"), 1, &mut bytes));
        let failures: Vec<_> = done.rows.iter().map(|row| row.failure.as_deref().unwrap_or("")).collect();
        assert_eq!((failures[0], done.returned.len()), ("", 1));
        assert!(failures[1].starts_with("its outputs were not returned: with 1 bytes"), "{failures:?}");
    }

    #[test]
    fn node_without_the_shared_folder_runs_nothing_and_creates_no_folder() {
        let disk = tempfile::tempdir().unwrap();
        let path = disk.path().join("job");
        fs::create_dir_all(path.join(record::FOLDER)).unwrap();
        let folder = Shared::new(path.clone()).unwrap();
        folder.check().unwrap();
        fs::remove_dir_all(&path).unwrap();
        let (kind, label, outputs) = (0, "a".to_owned(), vec!["sub/x".to_owned()]);
        let begun = disk.path().join("begun");
        let command = format!("touch {} sub/x", begun.display());
        let step = Step { kind, label, command, inputs: Vec::new(), outputs };
        let shell = vec!["sh".to_owned()];
        let order = Order {
            shell,
            step,
            folder: Some(folder),
            is_temporary: false,
            prints: false,
            digests: BTreeMap::new(),
        };
        let error = execute(&order, &[]).unwrap_err().to_string();
        assert!(error.contains("is not the file of the submitter"), "{error}");
        assert!(!path.exists() && !begun.exists());
        // A folder of the same path on the disk of the node.
        fs::create_dir_all(path.join(record::FOLDER)).unwrap();
        Shared::new(path.clone()).unwrap();
        execute(&order, &[]).unwrap_err();
        assert!(!path.join("sub").exists());
    }
}
