//! Tests of the cache of outputs.

use std::{
    collections::HashMap,
    error::Error,
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    entry,
    key::{Content, Described, FORMAT, Key},
};
use crate::{
    Data, Failure, FailureKind, File, TaskDef, Workflow, WorkflowError, failure::Failed,
    invocation::Invocation, program::Calling, task, task::Body, tasks, value::Value,
};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Adds a line to the book of executions.
fn note(book: &Path, line: &str) -> io::Result<()> {
    let mut book = fs::File::options().append(true).create(true).open(book)?;
    book.write_all(format!("{line}\n").as_bytes())
}

#[task(cached)]
fn double(number: u64, book: PathBuf) -> io::Result<u64> {
    note(&book, &format!("double {number}"))?;
    Ok(2 * number)
}

#[task(cached)]
fn middle(number: &u64, book: PathBuf) -> io::Result<u64> {
    note(&book, "middle")?;
    Ok(number + 1)
}

#[task(cached)]
fn sum(numbers: &[&u64], more: &mut Vec<u64>, book: PathBuf) -> io::Result<u64> {
    note(&book, "sum")?;
    more.extend(numbers.iter().copied());
    Ok(more.iter().sum())
}

#[task(cached)]
fn script(text: &u64, book: PathBuf) -> io::Result<File> {
    note(&book, "script")?;
    let file = File::new("script.sh", format!("echo {text}"))?;
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

#[task(cached)]
fn extend(script: &mut File, book: PathBuf) -> io::Result<Vec<u8>> {
    note(&book, "extend")?;
    script.append(" again")?;
    Ok(vec![7; 17 << 20])
}

#[task(cached)]
fn words(book: PathBuf) -> io::Result<HashMap<String, u64>> {
    note(&book, "words")?;
    Ok((0..100).map(|number| (number.to_string(), number)).collect())
}

#[task(cached)]
fn count(words: &HashMap<String, u64>, book: PathBuf) -> io::Result<usize> {
    note(&book, "count")?;
    Ok(words.len())
}

/// Not cached: it reads the words before [`count`] does.
#[task]
fn largest(words: &HashMap<String, u64>) -> u64 {
    words.values().copied().max().unwrap_or_default()
}

#[task(cached)]
fn fails(book: PathBuf) -> io::Result<u64> {
    note(&book, "fails")?;
    Err(io::Error::other("wrong"))
}

#[task(cached)]
fn calls(book: PathBuf) -> u64 {
    double(1, book).get().map_or(0, |number| *number)
}

/// A cache and a book of executions.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("it can be made"))
    }

    fn book(&self) -> PathBuf {
        self.0.path().join("book")
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    /// Runs a program with the cache, and returns the executed calls, sorted.
    fn run_with(
        &self,
        tasks: &[&'static TaskDef],
        workers: usize,
        program: impl Fn(PathBuf) -> Outcome,
    ) -> Result<Vec<String>, WorkflowError> {
        let workflow = Workflow::new(tasks.to_vec())?.cache(self.cache().display().to_string());
        let workflow = if workers == 0 { workflow.sequential() } else { workflow.workers(workers) };
        workflow.run(|| program(self.book()))?;
        let book = fs::read_to_string(self.book()).unwrap_or_default();
        let _ = fs::remove_file(self.book());
        let mut executed: Vec<_> = book.lines().map(str::to_owned).collect();
        executed.sort();
        Ok(executed)
    }

    fn run(&self, program: impl Fn(PathBuf) -> Outcome) -> Vec<String> {
        let tasks = tasks![double, middle, sum, script, extend, words, count, largest, fails, calls];
        self.run_with(&tasks, 3, program).expect("it succeeds")
    }

    fn entries(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.cache()).expect("it is there").map(|entry| entry.unwrap().path());
        let mut entries: Vec<_> = folders
            .flat_map(|folder| fs::read_dir(folder).expect("it is a folder"))
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        entries
    }
}

fn numbers(book: PathBuf) -> Outcome {
    numbers_by(book, middle)
}

fn numbers_by(book: PathBuf, middle: fn(&Data<u64>, PathBuf) -> Data<u64>) -> Outcome {
    let (one, two) = (double(1, book.clone()), double(2, book.clone()));
    let three = middle(&one, book.clone());
    let mut more = Data::new(vec![10]);
    let all = sum(&[three.clone(), two], &mut more, book);
    assert_eq!(*all.get()?, 10 + *three.get()? + 4);
    assert_eq!(more.get()?.len(), 3);
    Ok(())
}

const ALL: [&str; 4] = ["double 1", "double 2", "middle", "sum"];

#[test]
fn second_run_executes_no_cached_call() -> Result<(), WorkflowError> {
    let tasks = tasks![double, middle, sum];
    let scene = Scene::new();
    assert_eq!(scene.run_with(&tasks, 3, numbers)?, ALL);
    for workers in [0, 1, 3] {
        assert!(scene.run_with(&tasks, workers, numbers)?.is_empty());
    }
    // Another input is another call.
    let other = |book| {
        assert_eq!(*double(3, book).get()?, 6);
        Ok(())
    };
    assert_eq!(scene.run_with(&tasks, 1, other)?, ["double 3"]);
    let workflow = Workflow::new(tasks)?.workers(2).cache(scene.cache().display().to_string());
    let ((), figures) = workflow.run_with_stats(|| numbers(scene.book()))?;
    assert_eq!(figures.calls, 4);
    // Checked runs and runs without a cache execute all calls.
    Workflow::new(tasks)?.run(|| numbers(scene.book()))?;
    assert_eq!(fs::read_to_string(scene.book()).expect("it is there").lines().count(), 4);
    Ok(())
}

/// The task `middle` after edits of its code: its first output stays the same, that of the second edit does not.
const EDITED: [TaskDef; 2] = [
    TaskDef { code: "edited", ..middle::TASK },
    TaskDef { code: "edited again", run: Body::Thread(other), ..middle::TASK },
];

fn other(call: &mut Invocation<'_>) -> Result<(), Failed> {
    let (number, book) = (call.read::<u64>()?, call.copied::<PathBuf>()?);
    note(&book, "middle").map_err(Failed::of)?;
    call.put(*number + 5);
    Ok(())
}

fn edited(task: &'static TaskDef, number: &Data<u64>, book: &PathBuf) -> Data<u64> {
    let mut call = Calling::of(task, task.options);
    call.read(number);
    call.copy(book);
    let result = call.result();
    call.submit();
    result
}

#[test]
fn edited_task_repeats_its_calls_and_those_with_other_inputs() -> Result<(), WorkflowError> {
    static TASKS: [TaskDef; 2] = EDITED;
    let scene = Scene::new();
    assert_eq!(scene.run(numbers), ALL);
    let [same, other] = [&TASKS[0], &TASKS[1]];
    let by_same = |book| numbers_by(book, |number, book| edited(&TASKS[0], number, &book));
    let by_other = |book| numbers_by(book, |number, book| edited(&TASKS[1], number, &book));
    assert_eq!(scene.run_with(&[&double::TASK, &sum::TASK, same], 2, by_same)?, ["middle"]);
    assert_eq!(scene.run_with(&[&double::TASK, &sum::TASK, other], 2, by_other)?, ["middle", "sum"]);
    // The entries of earlier versions stay.
    assert!(scene.run(numbers).is_empty());
    Ok(())
}

#[test]
fn files_and_large_outputs_are_found_as_they_were() {
    let scene = Scene::new();
    let program = |book: PathBuf| {
        let mut file = script(&double(1, book.clone()), book.clone());
        let large = extend(&mut file, book);
        assert!(*large.get()? == vec![7; 17 << 20]);
        let file = file.get()?;
        assert_eq!((file.name(), &*file.read_to_string()?), ("script.sh", "echo 2 again"));
        assert!(file.path().metadata()?.permissions().mode() & 0o100 != 0);
        Ok(())
    };
    assert_eq!(scene.run(program), ["double 1", "extend", "script"]);
    assert!(scene.run(program).is_empty());
}

#[test]
fn unordered_map_is_the_same_input_in_later_runs() {
    let scene = Scene::new();
    let program = |book: PathBuf| {
        let words = words(book.clone());
        // After this, the node has no encoding of the map.
        assert_eq!(*largest(&words).get()?, 99);
        assert_eq!(*count(&words, book).get()?, 100);
        Ok(())
    };
    assert_eq!(scene.run(program), ["count", "words"]);
    assert!(scene.run(program).is_empty());
}

#[test]
fn damaged_or_foreign_entry_is_missing_and_replaced() {
    let scene = Scene::new();
    assert_eq!(scene.run(numbers), ALL);
    let entries = scene.entries();
    assert_eq!(entries.len(), 4);
    fs::write(&entries[0], "").unwrap();
    fs::copy(&entries[2], &entries[1]).unwrap();
    fs::write(&entries[3], "text of another program").unwrap();
    assert_eq!(scene.run(numbers).len(), 3);
    assert!(scene.run(numbers).is_empty());
    fs::remove_file(&entries[2]).unwrap();
    assert_eq!(scene.run(numbers).len(), 1);
    assert_eq!(scene.entries(), entries);
}

#[test]
fn entry_with_any_changed_or_missing_byte_is_refused() {
    let key = described("module", "task").key().expect("it can be encoded");
    let outputs = [Value::new(7_u64), Value::new("text".to_owned())];
    let mut entry = Vec::new();
    entry::write(&mut entry, key, &outputs.iter().collect::<Vec<_>>()).expect("there is room");
    let read = |entry: &[u8], key| entry::read(entry, key).map(|outputs| outputs.len());
    assert_eq!(read(&entry, key).expect("it is whole"), 2);
    read(&entry, described("module", "other").key().expect("it can be encoded"))
        .expect_err("of another call");
    for place in 0..entry.len() {
        read(&entry[..place], key).expect_err("it is cut off");
        for bit in [1, 0x80] {
            let mut changed = entry.clone();
            changed[place] ^= bit;
            assert!(read(&changed, key).is_err(), "byte {place}");
        }
    }
}

#[test]
fn program_completes_without_usable_cache() -> Result<(), WorkflowError> {
    let scene = Scene::new();
    fs::write(scene.cache(), "a file, not a folder").unwrap();
    // The first folder cannot be read, the second one not be created.
    for cache in [scene.cache(), PathBuf::from("/proc/no-cache")] {
        for _ in 0..2 {
            let workflow = Workflow::new(tasks![double, middle, sum])?.workers(2);
            workflow.cache(cache.display().to_string()).run(|| numbers(scene.book()))?;
            assert_eq!(fs::read_to_string(scene.book()).unwrap().lines().count(), 4);
            fs::remove_file(scene.book()).unwrap();
        }
    }
    for (place, expected) in [("", "is no folder"), ("file://here", "absolute"), ("ftp://host/cache", "ftp")]
    {
        let workflow = Workflow::new(tasks![double])?.cache(place);
        let error = workflow.run(|| Ok::<_, Failure>(())).expect_err("it is invalid").to_string();
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn failures_and_calls_with_effects_or_calls_are_not_cached() {
    let scene = Scene::new();
    let program = |book: PathBuf| {
        let failure = fails(book.clone()).get().expect_err("it is wrong");
        assert_eq!(failure.reason(), "wrong");
        for refused in [
            double::with().effect().call(1, book.clone()),
            double::with().nondeterministic().call(1, book.clone()),
            calls(book.clone()),
        ] {
            let failure = refused.get().expect_err("it is refused");
            assert_eq!(failure.kind(), FailureKind::Runtime);
            assert!(failure.reason().starts_with("it is `cached`"), "{failure}");
        }
        Ok(())
    };
    assert_eq!(scene.run(program), ["double 1", "fails"]);
    assert_eq!(scene.run(program), ["fails"]);
}

/// Data that panics when it is encoded.
#[derive(serde::Deserialize)]
struct Panics;

impl serde::Serialize for Panics {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it cannot be encoded")
    }
}

#[task(cached)]
fn panics(book: PathBuf) -> io::Result<Panics> {
    note(&book, "panics")?;
    Ok(Panics)
}

#[task(cached)]
fn ignores(of: &Panics, book: PathBuf) -> io::Result<()> {
    let Panics = of;
    note(&book, "ignores")
}

#[test]
fn calls_with_data_that_cannot_be_encoded_run_each_time() -> Result<(), WorkflowError> {
    let scene = Scene::new();
    let program = |book: PathBuf| {
        ignores(&panics(book.clone()), book);
        Ok(())
    };
    for _ in 0..2 {
        assert_eq!(scene.run_with(&tasks![panics, ignores], 1, program)?, ["ignores", "panics"]);
    }
    Ok(())
}

#[cfg(feature = "stores")]
#[test]
fn cache_in_a_store_is_used_by_later_runs() -> Result<(), Box<dyn Error>> {
    let server = taskwork_store::testing::Server::start()?;
    let scene = Scene::new();
    let run = || {
        let workflow = Workflow::new(tasks![double, middle, sum])?.workers(2);
        workflow.cache(format!("{}/cache/", server.place())).run(|| numbers(scene.book()))?;
        Ok::<_, Box<dyn Error>>(fs::read_to_string(scene.book())?.lines().count())
    };
    assert_eq!(run()?, 4);
    assert_eq!(server.state().objects.len(), 4);
    assert_eq!(run()?, 4, "no further call is executed");
    Ok(())
}

fn described<'a>(module: &'a str, task: &'a str) -> Described<'a> {
    let arguments = vec![Content::Copied(b"7"), Content::Read((1, 2)), Content::ReadAll(vec![(1, 2)])];
    Described { format: FORMAT, build: None, module, task, signature: "()", code: "code", arguments }
}

fn key(described: &Described<'_>) -> Key {
    described.key().expect("it can be encoded")
}

proptest! {
    #[test]
    fn key_differs_for_each_component(text in "[a-z]{1,5}", more in "[a-z]{1,3}", number in any::<u128>(), at in 0_usize..3) {
        let one = described(&text, &more);
        prop_assert_eq!(key(&one), key(&one.clone()));
        let longer = format!("{text}{more}");
        let mut arguments = [one.arguments.clone(), one.arguments.clone(), one.arguments.clone(), Vec::new()];
        arguments[0].remove(at);
        arguments[1].insert(at, Content::Update((1, number)));
        arguments[2].swap(at, (at + 1) % 3);
        let mut others = vec![
            Described { format: FORMAT + 1, ..one.clone() },
            Described { build: Some(&text), ..one.clone() },
            Described { module: &longer, task: "", ..one.clone() },
            Described { module: "", task: &longer, ..one.clone() },
            Described { signature: &longer, ..one.clone() },
            Described { code: &longer, ..one.clone() },
            Described { arguments: vec![Content::Read((1, number))], ..one.clone() },
            Described { arguments: vec![Content::Read((1, !number))], ..one.clone() },
            Described { arguments: vec![Content::Update((1, number))], ..one.clone() },
            Described { arguments: vec![Content::ReadAll(vec![(1, number)])], ..one.clone() },
            Described { arguments: vec![Content::ReadAll(vec![(1, number); 2])], ..one.clone() },
        ];
        others.extend(arguments.map(|arguments| Described { arguments, ..one.clone() }));
        others.push(one);
        let mut keys: Vec<_> = others.iter().map(key).collect();
        keys.sort();
        keys.dedup();
        prop_assert_eq!(keys.len(), others.len());
    }
}
