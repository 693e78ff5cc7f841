//! Isolated calls. They run in child processes of the same program, so this test has its own `main` that serves them.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, ExitCode, abort},
    thread,
    time::{Duration, Instant},
};

use dataflow_framework::{
    Data, Failure, FailureKind, File, Main, Program, Settings, TaskDef, Workflow, WorkflowError, group,
    serve_isolated, task, tasks,
};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Test = fn() -> Result<(), Error>;

/// The environment variable of a process that does not serve isolated calls.
const DOES_NOT_SERVE: &str = "DATAFLOW_TEST_DOES_NOT_SERVE";

#[task(isolated)]
fn process() -> u32 {
    std::process::id()
}

#[task(isolated)]
fn update(numbers: &mut Vec<u64>, by: &BTreeMap<String, u64>, name: String) -> Result<(u64, File), Error> {
    println!("the output of a task is not its answer");
    let by = by.get(&name).ok_or_else(|| format!("there is no {name}"))?;
    for number in numbers.iter_mut() {
        *number += by;
    }
    Ok((numbers.iter().sum(), File::new("sum", numbers.len().to_string())?))
}

#[task(isolated)]
fn read(file: &File) -> Result<String, Error> {
    Ok(file.read_to_string()?)
}

/// Changes its read-only input, which is a copy of the process.
#[task(isolated)]
fn scribble(file: &File) -> Result<String, Error> {
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600))?;
    fs::write(file.path(), "changed")?;
    Ok(file.read_to_string()?)
}

#[task(isolated)]
fn double(numbers: &Vec<u64>) -> Vec<u64> {
    numbers.iter().map(|number| number * 2).collect()
}

/// Crashes, hangs or allocates 1 GiB, which must not harm its node.
#[task(isolated)]
fn harm(how: String, number: &u64) -> u64 {
    match &how[..] {
        "panic" => panic!("failed as requested"),
        "abort" => abort(),
        "kill" => drop(Command::new("kill").args(["-s", "KILL", &std::process::id().to_string()]).status()),
        "exit" => std::process::exit(0),
        "memory" => return vec![1_u8; 1 << 30].iter().map(|byte| u64::from(*byte)).sum(),
        _ => {}
    }
    if how == "nothing" {
        return *number;
    }
    // Hang until killed.
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

#[task(isolated)]
async fn later(number: &u64) -> (u64, u32) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    (number + 1, std::process::id())
}

/// Writes its process number to a file, and never returns.
#[task(isolated, retry = 1)]
fn linger(at: String) -> Result<u64, Error> {
    fs::write(at, format!("{}\n", std::process::id()))?;
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Aborts in the first execution, which leaves a file.
#[task(isolated, retry = 1)]
fn abort_once(at: String) -> u64 {
    if fs::File::create_new(at).is_ok() {
        abort();
    }
    7
}

#[task(isolated, on_failure = ignore)]
fn abort_or_not(kept: &mut u64) -> u64 {
    *kept += 1;
    abort()
}

/// Makes calls, and forwards their results.
#[task(isolated)]
fn calls(number: u64) -> (u32, Data<u32>, Data<Vec<u64>>) {
    (std::process::id(), process(), double(&double(&Data::new(vec![number]))))
}

/// Does not look at the failure of a call.
#[task(isolated)]
fn ignores_result(number: u64) -> u64 {
    harm("panic".to_owned(), &Data::new(number));
    number
}

fn table() -> Vec<&'static TaskDef> {
    let others = tasks![abort_once, abort_or_not, calls, ignores_result, later, linger];
    [&tasks![process, update, read, scribble, double, harm][..], &others].concat()
}

fn workflow() -> Workflow {
    Workflow::new(table()).expect("no two tasks have one name").workers(2)
}

fn isolated_call_round_trips_values_and_files() -> Result<(), Error> {
    let program = || {
        let mut numbers = Data::new(vec![1, 2, 3]);
        let by = Data::new(BTreeMap::from([("ten".to_owned(), 10)]));
        let before = numbers.clone();
        let (sum, file) = update(&mut numbers, &by, "ten".to_owned());
        assert_eq!(
            (*sum.get()?, &numbers.get()?[..], &before.get()?[..]),
            (36, &[11, 12, 13][..], &[1, 2, 3][..])
        );
        assert_eq!((&**scribble(&file).get()?, &**read(&file).get()?), ("changed", "3"));
        assert_eq!(file.get()?.read_to_string()?, "3");
        assert_ne!(*process().get()?, std::process::id());
        assert_eq!(*process::with().isolated(false).call().get()?, std::process::id());
        let failure = update(&mut numbers, &by, "nine".to_owned()).0.get().expect_err("there is none");
        assert_eq!((failure.kind(), failure.reason()), (FailureKind::Error, "there is no nine"));
        Ok::<_, Error>(())
    };
    workflow().run(program)?;
    workflow().checked().run(|| Ok::<_, Failure>(*harm("nothing".to_owned(), &Data::new(7)).get()?))?;
    Ok(workflow().sequential().run(program)?)
}

fn isolated_task_runs_nested_calls_in_its_process() -> Result<(), Error> {
    let program = || {
        let (parent, child, doubled) = calls(3);
        assert_eq!(parent.get()?.clone(), child.get()?.clone());
        assert_ne!(*parent.get()?, std::process::id());
        assert_eq!(*doubled.get()?, [12]);
        let failure = ignores_result(1).get().expect_err("its call has failed");
        assert!(failure.reason().starts_with("task `harm` (call 1) has failed: "), "{failure}");
        assert_eq!(failure.kind(), FailureKind::Error);
        Ok::<_, Error>(())
    };
    workflow().run(program)?;
    Ok(workflow().sequential().run(program)?)
}

fn isolated_cached_call_runs_once_and_makes_no_calls() -> Result<(), Error> {
    let cache = tempfile::tempdir()?;
    let run = || {
        workflow().cache(cache.path().display().to_string()).run(|| {
            let failure = calls::with().cached().call(3).0.get().expect_err("it makes calls");
            assert!(failure.reason().contains("its task makes calls"), "{failure}");
            Ok::<_, Failure>(*process::with().cached().call().get()?)
        })
    };
    assert_eq!(run()?, run()?);
    Ok(())
}

fn isolated_call_preserves_large_values() -> Result<(), Error> {
    let total = workflow().run(|| {
        let numbers = Data::new((0..3_u64 << 20).map(|number| number << 40).collect::<Vec<_>>());
        Ok::<_, Failure>(double(&numbers).get()?.iter().fold(0_u64, |sum, number| sum.wrapping_add(*number)))
    })?;
    let expected = (0..3_u64 << 20).fold(0_u64, |sum, number| sum.wrapping_add(number << 41));
    assert_eq!(total, expected);
    Ok(())
}

fn isolated_task_unknown_to_its_process_fails() -> Result<(), Error> {
    #[task(isolated)]
    fn other() {}
    let ended = Workflow::new(tasks![other])?.run(|| {
        other();
        Ok::<_, Failure>(())
    });
    let failure = ended.expect_err("it is in no table that is served").to_string();
    assert!(
        failure.contains("other is not in the table of tasks with which its process was started"),
        "{failure}"
    );
    Ok(())
}

fn isolated_crash_fails_only_its_call() -> Result<(), Error> {
    let place = tempfile::tempdir()?;
    Settings::default().work_dir(place.path()).apply()?;
    workflow().run(|| {
        let number = Data::new(3);
        for (how, kind, expected) in [
            ("panic", FailureKind::Panic, "it panicked: failed as requested"),
            ("abort", FailureKind::Crash, "its process has exited without a reply: signal: 6 (SIGABRT)"),
            ("kill", FailureKind::Crash, "its process has exited without a reply: signal: 9 (SIGKILL)"),
            ("exit", FailureKind::Crash, "its process has exited without a reply: exit status: 0"),
        ] {
            let failure = harm(how.to_owned(), &number).get().expect_err(how);
            assert!(failure.reason().starts_with(expected), "{failure}");
            assert_eq!(failure.kind(), kind, "{failure}");
        }
        let late = harm::with().timeout(Duration::from_secs(2)).call("loop".to_owned(), &number);
        let failure = late.get().expect_err("it never ends");
        assert_eq!(failure.reason(), "it has taken longer than 2s, the timeout of the call");
        let greedy = harm::with().memory_max(256 << 20).call("memory".to_owned(), &number);
        let failure = greedy.get().expect_err("it takes a gibibyte");
        assert!(failure.reason().contains("(it may take 256.0 MiB of memory: `memory_max`)"), "{failure}");
        assert!(failure.reason().contains("memory allocation of 1073741824 bytes failed"), "{failure}");
        let at = place.path().join("once").to_string_lossy().into_owned();
        assert_eq!(*abort_once(at).get()?, 7);
        let mut kept = Data::new(5);
        let made = abort_or_not(&mut kept);
        assert_eq!((*kept.get()?, *made.get()?), (5, 0));
        assert_eq!(*harm("nothing".to_owned(), &number).get()?, 3);
        Ok::<_, Error>(())
    })?;
    // Killed processes leave no files.
    let left: Vec<_> = fs::read_dir(place.path())?.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["once"]);
    Ok(())
}

struct Harmless;

impl Program for Harmless {
    type Arguments = String;
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(how: &String) -> Result<u64, Error> {
        let failed = harm(how.clone(), &Data::new(2)).get().is_err();
        Ok(*harm("nothing".to_owned(), &Data::new(u64::from(failed))).get()?)
    }
}

fn isolated_crash_leaves_nodes_running() -> Result<(), Error> {
    let report = Main::<Harmless>::job("abort".to_owned()).nodes(2).run()?;
    assert_eq!(Main::<Harmless>::returned(&report)?, 1);
    Ok(())
}

fn process_of_cancelled_isolated_call_is_killed() -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().join("process");
    let deadline = Instant::now() + Duration::from_secs(60);
    workflow().run(|| {
        let (calls, made) = group(|| linger(at.display().to_string()));
        let process = loop {
            match fs::read_to_string(&at).unwrap_or_default().strip_suffix('\n') {
                Some(process) => break process.to_owned(),
                None => assert!(Instant::now() < deadline, "it does not start"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        calls.cancel();
        calls.wait()?;
        assert_eq!(made.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        while PathBuf::from(format!("/proc/{process}")).exists() {
            assert!(Instant::now() < deadline, "its process is not killed");
            thread::sleep(Duration::from_millis(10));
        }
        Ok::<_, Failure>(())
    })?;
    Ok(())
}

fn isolated_async_task_runs_in_its_process() -> Result<(), Error> {
    let (number, process) = workflow().run(|| {
        let (number, process) = later(&Data::new(1));
        Ok::<_, Failure>((*number.get()?, *process.get()?))
    })?;
    assert!(number == 2 && process != std::process::id());
    Ok(())
}

fn isolated_call_without_server_fails() -> Result<(), Error> {
    let output = Command::new(env::current_exe()?).env(DOES_NOT_SERVE, "1").output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.starts_with("Runtime: it is isolated, but the process that was started for it"),
        "{printed}"
    );
    assert!(printed.contains("or with `dataflow_framework::serve_isolated`"), "{printed}");
    Ok(())
}

/// The program of a process whose `main` does not serve isolated calls.
fn not_served() {
    match workflow().run(|| Ok::<_, Failure>(*process().get()?)) {
        Err(WorkflowError::Call(failure)) => println!("{:?}: {}", failure.kind(), failure.reason()),
        ended => println!("another error was expected: {ended:?}"),
    }
}

fn main() -> ExitCode {
    if env::var_os(DOES_NOT_SERVE).is_some() {
        not_served();
        return ExitCode::SUCCESS;
    }
    serve_isolated(table());
    let tests: [(&str, Test); 10] = [
        ("isolated_call_round_trips_values_and_files", isolated_call_round_trips_values_and_files),
        ("isolated_task_runs_nested_calls_in_its_process", isolated_task_runs_nested_calls_in_its_process),
        (
            "isolated_cached_call_runs_once_and_makes_no_calls",
            isolated_cached_call_runs_once_and_makes_no_calls,
        ),
        ("isolated_call_preserves_large_values", isolated_call_preserves_large_values),
        ("isolated_task_unknown_to_its_process_fails", isolated_task_unknown_to_its_process_fails),
        ("isolated_crash_fails_only_its_call", isolated_crash_fails_only_its_call),
        ("isolated_crash_leaves_nodes_running", isolated_crash_leaves_nodes_running),
        ("process_of_cancelled_isolated_call_is_killed", process_of_cancelled_isolated_call_is_killed),
        ("isolated_async_task_runs_in_its_process", isolated_async_task_runs_in_its_process),
        ("isolated_call_without_server_fails", isolated_call_without_server_fails),
    ];
    let wanted = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut failed = false;
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        match test() {
            Ok(()) => println!("test {name} ... ok"),
            Err(error) => {
                println!("test {name} ... FAILED: {error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
