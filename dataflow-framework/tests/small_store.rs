//! Programs with more data than their nodes may keep in memory. The limit applies to a whole process, so these tests
//! need their own.

use std::{error::Error, fs, sync::Mutex};

use dataflow_framework::{
    Array, Data, Failure, Main, Program, Settings, TaskDef, Workflow, WorkflowError, task, tasks,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MIB: u64 = 1 << 20;

/// Held by each test, since their settings apply to the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns a part of `length` numbers of eight bytes.
#[task]
fn part(number: u64, length: usize) -> Array<u64> {
    Array::from_elements([length], (0..length as u64).map(|place| place * number).collect())
}

#[task]
fn add(sum: &mut u64, part: &Array<u64>) {
    *sum = part.iter().fold(*sum, |sum, element| sum.wrapping_mul(31).wrapping_add(*element));
}

#[task]
fn raise(part: &mut Array<u64>) {
    part.iter_mut().for_each(|element| *element += 1);
}

#[task]
fn length(parts: &[&Array<u64>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

fn table() -> Vec<&'static TaskDef> {
    tasks![part, add, raise, length].to_vec()
}

/// Creates parts, sums them up, changes them, and sums them up again.
fn sum(parts: u64, length: usize) -> std::result::Result<u64, Failure> {
    let mut parts: Vec<_> = (0..parts).map(|number| part(number, length)).collect();
    let mut total = Data::new(0);
    for part in &mut parts {
        add(&mut total, part);
        raise(part);
    }
    for part in &parts {
        add(&mut total, part);
    }
    total.get().map(|total| *total)
}

struct Sum;

impl Program for Sum {
    type Arguments = (u64, usize);
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run((parts, length): &(u64, usize)) -> Result<u64> {
        Ok(sum(*parts, *length)?)
    }
}

/// Reads all parts at once.
struct Together;

impl Program for Together {
    type Arguments = usize;
    type Output = usize;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(parts: &usize) -> Result<usize> {
        let parts: Vec<_> = (0..*parts as u64).map(|number| part(number, 8 << 10)).collect();
        Ok(*length(&parts).get()?)
    }
}

fn expected(parts: u64, length: usize) -> Result<u64> {
    Ok(Workflow::new(table())?.sequential().run(|| sum(parts, length))?)
}

#[test]
fn store_of_1_mib_handles_100_mib() -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock();
    let place = tempfile::tempdir()?;
    Settings::default().work_dir(place.path()).apply()?;
    // 400 parts of 256 KiB.
    let expected = expected(400, 32 << 10)?;
    let small = || Workflow::new(table()).map(|workflow| workflow.store(MIB));
    assert_eq!(small()?.workers(2).run(|| sum(400, 32 << 10))?, expected);
    assert_eq!(small()?.sequential().run(|| sum(400, 32 << 10))?, expected);
    // No files are left.
    assert_eq!(fs::read_dir(place.path())?.count(), 0);
    Ok(())
}

#[test]
fn nodes_with_small_stores_hold_data_together() -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock();
    let place = tempfile::tempdir()?;
    Settings::default().work_dir(place.path()).store(MIB).apply()?;
    let expected = expected(100, 8 << 10)?;
    for nodes in [1, 3] {
        let report = Main::<Sum>::job((100, 8 << 10)).nodes(nodes).run()?;
        assert_eq!(Main::<Sum>::returned(&report)?, expected, "on {nodes} nodes");
    }
    // A call fails if its inputs exceed the store.
    let report = Main::<Together>::job(32).nodes(2).run()?;
    let error = Main::<Together>::returned(&report).expect_err("it reads 2 MiB").to_string();
    assert!(
        error.contains("task `length` (call 32) has failed: it reads 2.0 MiB of data at once"),
        "{error}"
    );
    assert!(
        error.contains("the store takes 1.0 MiB: give nodes more (`--store`") && error.contains("(on node ")
    );
    let report = Main::<Together>::job(8).nodes(2).run()?;
    assert_eq!(Main::<Together>::returned(&report)?, 8 << 13);
    Ok(())
}

#[test]
fn large_data_moves_between_nodes_as_files() -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock();
    let place = tempfile::tempdir()?;
    Settings::default().work_dir(place.path()).store(1 << 30).apply()?;
    // Four parts of 24 MiB on three nodes.
    let expected = expected(4, 3 << 20)?;
    let report = Main::<Sum>::job((4, 3 << 20)).nodes(3).run()?;
    assert_eq!(Main::<Sum>::returned(&report)?, expected);
    Ok(())
}

/// A process that runs its calls itself has no limit by default.
#[test]
fn single_process_call_reading_over_store_fails() -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock();
    let program = || Together::run(&32);
    assert_eq!(Workflow::new(table())?.run(program)?, 32 << 13);
    let error = match Workflow::new(table())?.store(MIB).run(program) {
        Err(WorkflowError::Call(failure)) => failure.reason().to_owned(),
        other => panic!("it reads 2 MiB: {other:?}"),
    };
    assert!(error.starts_with("it reads 2.0 MiB of data at once, and the store takes 1.0 MiB"), "{error}");
    Ok(())
}

/// Without a writable directory, data beyond the store cannot be spilled.
#[test]
fn unwritable_spill_directory_fails_program() -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock();
    let place = tempfile::tempdir()?;
    let wrong = place.path().join("file");
    fs::write(&wrong, "")?;
    Settings::default().work_dir(&wrong).store(MIB).apply()?;
    let report = Main::<Sum>::job((100, 8 << 10)).nodes(2).run();
    Settings::default().work_dir(place.path()).apply()?;
    let error = Main::<Sum>::returned(&report?).expect_err("there is no room").to_string();
    assert!(error.contains("its output cannot be stored: data takes 1."), "{error}");
    assert!(error.contains(&format!("{}: no files can be kept there", wrong.display())), "{error}");
    assert!(error.contains("(on node "), "{error}");
    Ok(())
}
