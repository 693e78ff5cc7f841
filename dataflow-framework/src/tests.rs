//! Programs in every mode of execution.

use std::panic::catch_unwind;

use crate::{
    Data, Failure, Settings, Workflow, WorkflowError, barrier, failure::Failed, flow, group, program::Flow,
    reduce, task, tasks,
};

/// Runs a program whose calls run immediately.
pub(crate) fn sequential<R>(program: impl FnOnce() -> R) -> R {
    let flow = Flow::sequential();
    let _entered = flow.enter();
    program()
}

/// Runs a program sequentially and on one, two and five workers, and compares the results.
fn everywhere<R: PartialEq + std::fmt::Debug>(program: fn() -> Result<R, Failure>) -> R {
    let workflow = || Workflow::new(table()).expect("no two tasks have one name");
    let result = workflow().sequential().run(program).expect("it succeeds");
    for workers in [1, 2, 5] {
        let again = workflow().workers(workers).run(program).expect("it succeeds");
        assert_eq!(again, result, "on {workers} workers");
    }
    result
}

fn table() -> Vec<&'static crate::TaskDef> {
    tasks![make, increment, add, sum, both, halve, append, length, occurrences].to_vec()
}

#[task]
fn make(value: u64) -> u64 {
    value
}

#[task]
fn increment(counter: &mut u64, by: u64) {
    *counter += by;
}

#[task]
fn add(to: &mut u64, from: &u64) {
    *to += from;
}

#[task]
fn sum(parts: &[&u64]) -> u64 {
    parts.iter().copied().sum()
}

#[task]
fn both(left: &u64, right: &mut u64) -> (u64, String) {
    *right += left;
    (left * *right, format!("{left} and {right}"))
}

#[task]
fn halve(number: &u64) -> Result<u64, String> {
    if number.is_multiple_of(2) { Ok(number / 2) } else { Err(format!("{number} is odd")) }
}

#[task(priority = 1)]
fn nothing() {}

#[task]
fn append(list: &mut Vec<u64>, item: &u64) {
    list.push(*item);
}

#[task]
fn occurrences(words: &[String], word: &str) -> usize {
    words.iter().filter(|other| *other == word).count()
}

#[test]
fn slice_and_str_parameters_read_vectors_and_strings() {
    let found = everywhere(|| {
        let mut words = Data::new(vec!["a".to_owned(), "b".to_owned()]);
        let (word, before) = (Data::new("a".to_owned()), words.clone());
        words.get_mut()?.push("a".to_owned());
        Ok([*occurrences(&before, &word).get()?, *occurrences(&words, &word).get()?])
    });
    assert_eq!(found, [1, 2]);
}

#[test]
fn chained_updates_run_in_order() {
    let list = everywhere(|| {
        let mut list = Data::new(Vec::new());
        for item in 0..50 {
            append(&mut list, &make(item));
        }
        Ok(list.get()?.clone())
    });
    assert_eq!(list, (0..50).collect::<Vec<_>>());
}

#[test]
fn cloned_handle_is_snapshot() {
    let values = everywhere(|| {
        let mut counter = Data::new(1);
        let before = counter.clone();
        increment(&mut counter, 10);
        let between = counter.clone();
        increment(&mut counter, 100);
        Ok([*before.get()?, *between.get()?, *counter.get()?])
    });
    assert_eq!(values, [1, 11, 111]);
}

#[test]
fn reader_of_old_version_sees_old_value() {
    let values = everywhere(|| {
        let mut value = make(1);
        let mut seen = Vec::new();
        for _ in 0..20 {
            let mut copy = Data::new(0);
            add(&mut copy, &value);
            increment(&mut value, 1);
            seen.push(copy);
        }
        seen.iter().map(|copy| Ok(*copy.get()?)).collect::<Result<Vec<_>, Failure>>()
    });
    assert_eq!(values, (1..=20).collect::<Vec<_>>());
}

#[test]
fn call_with_several_inputs_and_results_returns_all() {
    let (sum, product, text) = everywhere(|| {
        let parts: Vec<_> = (1..=4).map(make).collect();
        let sum = sum(&parts);
        let mut right = make(5);
        let (product, text) = both(&sum, &mut right);
        add(&mut right, &product);
        Ok((*right.get()?, *product.get()?, text.get()?.clone()))
    });
    assert_eq!((sum, product, text.as_str()), (165, 150, "10 and 15"));
}

#[test]
fn program_get_mut_writes_new_version() {
    let values = everywhere(|| {
        let mut value = make(3);
        let before = value.clone();
        *value.get_mut()? *= 7;
        increment(&mut value, 1);
        Ok([*before.get()?, *value.get()?])
    });
    assert_eq!(values, [3, 22]);
}

#[test]
fn calls_beyond_window_wait() {
    let program = || {
        let mut counters: Vec<_> = (0..3).map(make).collect();
        for round in 0..500 {
            increment(&mut counters[round % 3], 1);
        }
        Ok::<_, Failure>(*reduce(counters, add).expect("there are three").get()?)
    };
    let few = Workflow::new(table()).unwrap().workers(2).calls_ahead_max(1).run(program).unwrap();
    assert_eq!(few, 503);
}

#[test]
fn failure_reaches_only_dependents() {
    let (reason, task, call, other) = everywhere(|| {
        let odd = make(7);
        let mut half = halve(&odd);
        increment(&mut half, 1);
        let later = sum(&[half, make(1)]);
        let other = halve(&make(8));
        let failure = later.get().expect_err("it depends on a failure");
        Ok((failure.reason().to_owned(), failure.task().to_owned(), failure.call(), *other.get()?))
    });
    assert_eq!((reason.as_str(), task.as_str(), call, other), ("7 is odd", "halve", 1, 4));
}

#[test]
fn unread_failure_fails_program() {
    for workers in [0, 2] {
        let workflow = Workflow::new(table()).unwrap();
        let workflow = if workers == 0 { workflow.sequential() } else { workflow.workers(workers) };
        let error = workflow.run(|| {
            drop(halve(&make(7)));
            Ok::<_, Failure>(())
        });
        let text = error.expect_err("a call has failed").to_string();
        assert_eq!(text, "task `halve` (call 1) has failed: 7 is odd");
    }
}

#[task(retry = 2)]
fn fails_at_first(tries: &mut u64) -> Result<u64, String> {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static TRIES: AtomicU64 = AtomicU64::new(0);
    *tries += 1;
    let before = TRIES.fetch_add(1, Relaxed);
    if before % 3 < 2 { Err("not yet".to_owned()) } else { Ok(before) }
}

#[test]
fn retried_call_sees_original_input() {
    let program = || {
        let mut tries = Data::new(0);
        fails_at_first(&mut tries).get()?;
        Ok::<_, Failure>(*tries.get()?)
    };
    let workflow = Workflow::new(tasks![fails_at_first]).unwrap().workers(2);
    assert_eq!(workflow.run(program).unwrap(), 1);
}

#[test]
fn panic_in_task_is_failure() {
    #[task]
    fn panics() -> u64 {
        panic!("failed as requested")
    }
    let workflow = Workflow::new(tasks![panics]).unwrap().workers(1);
    let error = workflow.run(|| Ok::<_, Failure>(*panics().get()?)).expect_err("it panics");
    assert_eq!(error.to_string(), "task `panics` (call 0) has failed: it panicked: failed as requested");
}

#[test]
fn task_missing_from_table_is_refused() {
    let workflow = Workflow::new(tasks![make]).unwrap().workers(1);
    let error = workflow.run(|| {
        nothing();
        Ok::<_, Failure>(())
    });
    let text = error.expect_err("it was not named").to_string();
    assert!(text.contains("tests::nothing is not in the program's table of tasks"), "{text}");
}

#[test]
fn duplicate_task_name_is_refused() {
    const OTHER: crate::TaskDef = crate::TaskDef { signature: "(u64, ) -> u64", ..increment::TASK };
    let error = Workflow::new([&increment::TASK, &OTHER]).expect_err("they differ");
    assert!(
        error.to_string().contains("there are two tasks dataflow_framework::tests::increment"),
        "{error}"
    );
    // The same task may be listed twice.
    assert!(Workflow::new([&increment::TASK, &increment::TASK]).is_ok());
}

#[test]
fn data_from_another_workflow_is_refused() {
    sequential(|| {
        let outside = Data::new(1);
        let inner = Workflow::new(table()).unwrap().workers(1).run(|| {
            let mut here = Data::new(1);
            add(&mut here, &outside);
            Ok::<_, Failure>(*here.get()?)
        });
        assert!(
            matches!(&inner, Err(WorkflowError::Call(failure)) if failure.reason().contains("another workflow")),
            "{inner:?}"
        );
        assert_eq!(*outside.get().unwrap(), 1);
    });
}

#[test]
fn program_error_is_returned_unchanged() {
    let error = Workflow::new(table()).unwrap().workers(1).run(|| Err::<(), _>("no input"));
    assert!(
        matches!(&error, Err(WorkflowError::Program(error)) if error.to_string() == "no input"),
        "{error:?}"
    );
}

#[task]
fn length(text: String, prefix: &u64) -> u64 {
    text.len() as u64 + prefix
}

#[test]
fn large_argument_is_passed_as_data() {
    let lengths = everywhere(|| {
        let one = make(1);
        let lengths: Vec<_> = [10, 100_000, 3_000_000].map(|size| length("x".repeat(size), &one)).into();
        lengths.iter().map(|length| Ok(*length.get()?)).collect::<Result<Vec<_>, Failure>>()
    });
    assert_eq!(lengths, [11, 100_001, 3_000_001]);
}

#[test]
fn call_reading_too_many_data_is_refused() {
    let error = Workflow::new(table()).unwrap().workers(1).run(|| {
        let parts = vec![make(1); 10_001];
        Ok::<_, Failure>(*sum(&parts).get()?)
    });
    let text = error.expect_err("it reads too many").to_string();
    assert!(text.contains("it reads 10001 data at once, and may read 10000"), "{text}");
}

#[test]
fn use_outside_workflow_panics_with_the_remedy() {
    let uses: [(&str, fn()); 6] = [
        ("make", || drop(make(1))),
        ("Data::new", || drop(Data::new(1))),
        ("barrier", || barrier().unwrap()),
        ("group", || drop(group(|| ()))),
        ("reduce", || drop(reduce(Vec::<Data<u64>>::new(), add).any_order().data())),
        ("flow::random", || assert_eq!(flow::random(), 0)),
    ];
    for (what, used) in uses {
        let panic = catch_unwind(used).expect_err("there is no workflow");
        let message = Failed::panicked(&*panic).reason;
        assert!(message.contains(&format!("`{what}` is called on a thread that runs neither")), "{message}");
        assert!(
            message.contains("`Workflow::run`") && message.contains("`Workflow::sequential`"),
            "{message}"
        );
    }
}

#[test]
fn call_by_another_thread_of_the_program_panics() {
    let panicked = sequential(|| std::thread::spawn(|| drop(make(1))).join().is_err());
    assert!(panicked, "it would run outside of the order of the program");
}

#[test]
fn plain_call_runs_the_function() {
    assert_eq!(increment::TASK.name, "increment");
    let mut plain = 1;
    increment::now(&mut plain, 5);
    assert_eq!(plain, 6);
}

#[test]
fn invalid_setting_fails_run_with_reason() {
    let workflow = || Workflow::new(table()).expect("no two tasks have one name");
    for (workflow, expected) in [
        (workflow().workers(0), "the number of workers, 0, is not between 1 and 1024"),
        (workflow().calls_ahead_max(0), "unfinished calls, 0, is not at least 1"),
        (workflow().store(0), "a store of 0 bytes holds nothing"),
        (workflow().settings(Settings::default().store(0)), "a store of 0 bytes holds nothing"),
        (workflow().settings(Settings::default().publish_dir("/no/folder")), "/no/folder: "),
    ] {
        let error = workflow.run(|| Ok::<_, Failure>(())).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
