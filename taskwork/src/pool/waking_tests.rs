//! Tasks that wait for an external event: each is called again when it is woken, before or after it waits, even if
//! it exists twice.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};

use super::{Entry, Waker, Work, testing::wait_for, waiting_tests::run};
use crate::{
    context::Context,
    holdings::Basis,
    id::TaskId,
    scope::Spawned,
    task::{Outcome, Task},
};

/// The wakers of tasks that wait for an external event.
static DOORBELLS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// A task that waits several times for an external event; it uses its first waker itself.
#[derive(Debug, Serialize, Deserialize)]
struct Guest {
    calls: u64,
}

impl Task for Guest {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        self.calls += 1;
        if self.calls > 3 {
            *cx.output() += self.calls;
            return Outcome::Complete;
        }
        let waker = cx.waker();
        if self.calls == 1 {
            waker.wake();
        }
        DOORBELLS.lock().unwrap().push(waker);
        Outcome::Wait
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn task_that_waits_for_an_external_event_continues_when_woken_before_or_after() {
    let (pool, crew) = run(Guest { calls: 0 });
    let first_two = || DOORBELLS.lock().unwrap().len() == 2;
    wait_for(&pool, "the second call", |pool| {
        pool.wake_rung();
        // It releases its worker shortly afterwards.
        first_two() && pool.view().waiting == 1 && pool.view().is_idle()
    });
    // It is written as a task that can be called immediately: the claiming node knows none of its wakers.
    pool.begin_cut(&[]).unwrap();
    let cut = Arc::clone(&pool).ready_cut().unwrap().unwrap();
    assert_eq!((cut.tasks.len(), &cut.tasks[0].spawned), (1, &Spawned::Nothing));
    assert_eq!(cut.waiting_outside, BTreeSet::from([TaskId::ROOT]), "it cannot kill a node now");
    let (old, new) = {
        let bells = DOORBELLS.lock().unwrap();
        (bells[0].clone(), bells[1].clone())
    };
    old.wake();
    pool.wake_rung();
    assert_eq!(pool.view().waiting, 1, "that was for the first time");
    let outside = std::thread::spawn(move || {
        new.wake();
        new.wake();
    });
    outside.join().unwrap();
    pool.wake_rung();
    wait_for(&pool, "the third call", |pool| pool.view().waiting == 1);
    // On another node it is called again without a wake-up.
    pool.stop();
    let moved: Vec<_> = pool.unload().unwrap().into_iter().map(|(_, task)| task).collect();
    assert_eq!((moved.len(), pool.view().waiting), (1, 0));
    let last = DOORBELLS.lock().unwrap().pop().unwrap();
    last.wake();
    pool.wake_rung();
    let (other, others) = run(Guest { calls: 9 });
    other.put(moved, Basis::FIRM, None).unwrap();
    wait_for(&other, "the end", |pool| pool.view().is_idle());
    assert_eq!(other.view().waiting, 0);
    for (pool, crew) in [(pool, crew), (other, others)] {
        pool.close();
        crew.join();
    }
    last.wake();
}

/// The event that [`Twofold`] waits for.
static IS_OVER: AtomicBool = AtomicBool::new(false);
static GIVEN: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// A task that waits for an external event, which only knows its last waker.
#[derive(Debug, Serialize, Deserialize)]
struct Twofold;

impl Task for Twofold {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if IS_OVER.load(Relaxed) {
            *cx.output() += 1;
            return Outcome::Complete;
        }
        GIVEN.lock().unwrap().push(cx.waker());
        Outcome::Wait
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

/// It is handed over to the node on which it already waits, and then the second instance is void.
#[test]
fn task_waiting_twice_is_woken_although_the_second_is_void() {
    const TENTATIVE: Basis = Basis(7);
    let (pool, crew) = run(Twofold);
    let wait_for_calls = |calls| {
        wait_for(&pool, "the calls", |pool| {
            GIVEN.lock().unwrap().len() == calls && pool.view().waiting == calls && pool.view().is_idle()
        });
    };
    wait_for_calls(1);
    let again = Entry::new(TaskId::ROOT, Twofold).seal().unwrap();
    pool.put(vec![again], TENTATIVE, None).unwrap();
    wait_for_calls(2);
    pool.void(&[TENTATIVE]);
    assert_eq!(pool.view().waiting, 1);
    IS_OVER.store(true, Relaxed);
    let last = GIVEN.lock().unwrap().pop().unwrap();
    last.wake();
    pool.wake_rung();
    wait_for(&pool, "the end", |pool| pool.view().waiting == 0 && pool.view().is_idle());
    pool.close();
    crew.join();
}
