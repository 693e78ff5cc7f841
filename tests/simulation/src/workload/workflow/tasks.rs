//! The tasks of simulated workflows.

use std::{cell::RefCell, collections::BTreeMap};

use dataflow_framework::task;
use serde::{Deserialize, Serialize};

use super::super::{DEADLY, shapes::mix};

/// A value: a number that depends on all its inputs, and bytes to transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) number: u64,
    ballast: Vec<u8>,
}

impl Item {
    pub(super) fn new(number: u64, bytes: usize) -> Self {
        Self { number, ballast: vec![number.to_le_bytes()[0]; bytes] }
    }

    fn with(&self, number: u64) -> Self {
        Self { number, ballast: self.ballast.clone() }
    }
}

/// The functions that the tasks and the reference compute. `None` if they fail.
pub(super) mod numbers {
    use super::mix;

    pub(in super::super) fn added(a: u64, b: u64) -> u64 {
        mix(a, b)
    }

    pub(in super::super) fn both(a: u64, b: u64) -> u64 {
        mix(mix(a, 2), b)
    }

    pub(in super::super) fn gathered(all: impl Iterator<Item = u64>) -> u64 {
        all.fold(1, mix)
    }

    pub(in super::super) fn summed(all: impl Iterator<Item = u64>) -> u64 {
        all.fold(0, u64::wrapping_add)
    }

    pub(in super::super) fn parts(of: u64) -> [u64; 2] {
        [mix(of, 3), mix(of, 4)]
    }

    pub(in super::super) fn tried(number: u64) -> Option<u64> {
        (!number.is_multiple_of(4)).then(|| mix(number, 5))
    }

    /// Returns the updated and the created value.
    pub(in super::super) fn tried_or_not(number: u64) -> Option<[u64; 2]> {
        (!number.is_multiple_of(3)).then(|| [mix(number, 6), mix(number, 7)])
    }

    pub(in super::super) fn flaky(number: u64) -> u64 {
        mix(number, 8)
    }

    pub(in super::super) fn panics(number: u64) -> Option<u64> {
        (!number.is_multiple_of(5)).then(|| mix(number, 9))
    }
}

/// The maximum number of failures of a task that fails the first times.
const FAILURES: u32 = 2;

thread_local! {
    /// The number of failures of such tasks, by their inputs. All nodes of a run share one thread.
    static TRIES: RefCell<BTreeMap<u64, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Resets the failures of such tasks.
pub(crate) fn forget_tries() {
    TRIES.take();
}

#[task]
pub(super) fn make(seed: u64, bytes: usize) -> Item {
    Item::new(seed, bytes)
}

#[task]
pub(super) fn add(sum: &mut Item, other: &Item) {
    sum.number = numbers::added(sum.number, other.number);
}

#[task]
pub(super) fn sum(sum: &mut Item, other: &Item) {
    sum.number = numbers::summed([sum.number, other.number].into_iter());
}

/// Waits in another queue than calls without demands.
#[task(memory = "1 B")]
pub(super) fn both(first: &Item, second: &Item) -> Item {
    first.with(numbers::both(first.number, second.number))
}

#[task]
pub(super) fn gather(all: &[&Item]) -> Item {
    Item::new(numbers::gathered(all.iter().map(|item| item.number)), 0)
}

#[task]
pub(super) fn parts(of: &Item) -> (Item, Item) {
    let [first, second] = numbers::parts(of.number);
    (of.with(first), Item::new(second, 8))
}

#[task]
pub(super) fn attempt(item: &mut Item) -> Result<(), String> {
    item.number = numbers::tried(item.number).ok_or("it is divisible by 4")?;
    Ok(())
}

#[task(on_failure = ignore)]
pub(super) fn attempt_or_not(item: &mut Item) -> Result<Item, String> {
    let [updated, made] = numbers::tried_or_not(item.number).ok_or("it is divisible by 3")?;
    item.number = updated;
    Ok(item.with(made))
}

#[task(retry = 2, pause = "100 ms")]
pub(super) fn flaky(of: &Item) -> Result<Item, String> {
    let has_failed = TRIES.with_borrow_mut(|tries| {
        let failures = tries.entry(of.number).or_default();
        let fails = *failures < FAILURES;
        *failures += u32::from(fails);
        fails
    });
    if has_failed { Err("not yet".to_owned()) } else { Ok(of.with(numbers::flaky(of.number))) }
}

/// Runs until it is cancelled. The world lets no time pass for it.
#[task]
pub(super) fn endless() -> Item {
    unreachable!("it is cancelled before")
}

/// The name of that task.
pub(crate) const ENDLESS: &str = endless::TASK.name;

/// Does the same, and occupies no worker.
#[task]
pub(super) async fn endless_future() -> Item {
    std::future::pending().await
}

#[task]
pub(super) fn panics(of: &Item) -> Item {
    match numbers::panics(of.number) {
        Some(number) => of.with(number),
        None => panic!("{DEADLY}"),
    }
}
