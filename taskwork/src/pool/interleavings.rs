//! The queue and the signals in every interleaving of a few threads: no wake-up is lost, each task is taken
//! exactly once, and the pool is idle only when no task runs.
//!
//! Run by `cargo test -p taskwork --lib --features loom interleavings`, which `cargo xtask test` does too.

use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    Entry, Pool, PoolLimits, Work,
    cut::Standing,
    queue::{Queue, Waits},
    signals::Signals,
};
use crate::{
    context::Context,
    holdings::Basis,
    id::{NodeId, TaskId},
    scope::{Completed, Scope, Spawned, Then},
    task::{Outcome, Task},
};

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Task for Nothing {
    type Shared = ();
    type Output = ();

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

fn task(number: u64) -> Entry<Nothing> {
    Entry::new(TaskId { node: NodeId(1), number }, Nothing)
}

/// A queue with its signals, shared by the threads of a model.
struct Bench {
    queue: Queue<Nothing>,
    signals: Signals,
    taken: AtomicUsize,
}

impl Bench {
    fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new(workers, 0),
            signals: Signals::default(),
            taken: AtomicUsize::new(0),
        })
    }

    /// A worker: takes tasks until the queue is closed.
    fn work(&self, worker: usize) {
        while self.queue.next(worker, &self.signals, || {}, &|_| None).is_some() {
            self.taken.fetch_add(1, SeqCst);
        }
    }
}

/// Tries every interleaving with a bounded number of preemptions: most bugs need two.
fn every_interleaving(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn waiting_worker_is_notified_of_a_task() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || its.queue.next(0, &its.signals, || {}, &|_| None).is_some());
        bench.queue.put([task(0)], &bench.signals);
        assert!(worker.join().unwrap());
    });
}

#[test]
fn each_task_goes_to_one_worker_and_all_workers_exit() {
    every_interleaving(|| {
        let bench = Bench::new(2);
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let its = Arc::clone(&bench);
                thread::spawn(move || its.work(worker))
            })
            .collect();
        bench.queue.put([task(0)], &bench.signals);
        while bench.taken.load(SeqCst) == 0 {
            thread::yield_now();
        }
        bench.queue.close(&bench.signals);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(bench.taken.load(SeqCst), 1);
    });
}

#[test]
fn thief_and_worker_never_have_the_same_task() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        bench.queue.put([task(0), task(1)], &bench.signals);
        let its = Arc::clone(&bench);
        let worker =
            thread::spawn(move || its.queue.next(0, &its.signals, || {}, &|_| None).map(|entry| entry.id));
        let stolen: Vec<TaskId> =
            bench.queue.take_for_thief(1, 1, &bench.signals).iter().map(|queued| queued.entry.id).collect();
        let begun = worker.join().unwrap().unwrap();
        assert_eq!((stolen.len(), bench.queue.view().queued), (1, 0));
        assert_ne!(stolen[0], begun);
    });
}

#[test]
fn stopped_worker_continues_after_resume() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || its.queue.next(0, &its.signals, || {}, &|_| None).is_some());
        bench.queue.stop(&bench.signals);
        bench.queue.put([task(0)], &bench.signals);
        bench.queue.resume(&bench.signals);
        assert!(worker.join().unwrap());
        assert!(!bench.signals.stop());
    });
}

#[test]
fn idle_pool_runs_no_task() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        bench.queue.put([task(0)], &bench.signals);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || its.work(0));
        // Like the driver: commits the completed tasks when the pool is idle.
        if bench.queue.view().is_idle() {
            assert_eq!(bench.taken.load(SeqCst), 1, "idle, but the task is not done");
        }
        bench.queue.close(&bench.signals);
        worker.join().unwrap();
    });
}

#[test]
fn idle_pool_shows_all_completions() {
    every_interleaving(|| {
        let limits = PoolLimits {
            task_children_max: 1,
            batch_ids_commit: 1,
            spawned_tasks_max: 1_000,
            crashes_max: 0,
            ledger: true,
            ledger_bytes_max: usize::MAX,
        };
        let pool = Arc::new(Pool::<Nothing>::new(NodeId(1), std::sync::Arc::new(()), 1, limits));
        pool.queue.put([task(0)], &pool.signals);
        let its = Arc::clone(&pool);
        let worker = thread::spawn(move || {
            while let Some(entry) = its.queue.next(0, &its.signals, || {}, &|_| None) {
                its.complete(0, entry.basis, &Completed::plain(entry.id, &entry.children), ());
            }
        });
        let view = Work::view(&*pool);
        // A leaving node assumes that it sees all tasks then.
        if view.is_idle() {
            assert_eq!(view.batch_ids, 1, "idle, but what was done last is missing");
        }
        pool.queue.close(&pool.signals);
        worker.join().unwrap();
    });
}

#[test]
fn steal_time_is_recorded_when_the_first_stolen_task_starts() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        bench.queue.put([task(0)], &bench.signals);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || {
            let begun = its.queue.next(0, &its.signals, || {}, &|_| None).map(|entry| entry.id.number);
            assert_eq!((begun, its.queue.steal_times().count()), (Some(0), 0), "that was its own");
        });
        bench.queue.put_stolen([task(1), task(2)], Basis::FIRM, Some(Instant::now()), &bench.signals);
        worker.join().unwrap();
        for _ in 0..2 {
            bench.queue.next(0, &bench.signals, || {}, &|_| None).unwrap();
            assert_eq!(bench.queue.steal_times().count(), 1);
        }
    });
}

#[test]
fn demand_is_exact_when_the_pool_is_quiet() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || its.queue.next(0, &its.signals, || {}, &|_| None).is_some());
        bench.queue.set_thieves(2, &bench.signals);
        bench.queue.put([task(0)], &bench.signals);
        assert!(worker.join().unwrap());
        bench.queue.put([task(8)], &bench.signals);
        assert!(bench.signals.split(), "two thieves wait, no worker, and one task is queued");
        bench.queue.put([task(9)], &bench.signals);
        assert!(!bench.signals.split(), "two tasks are queued for two thieves");
    });
}

#[test]
fn cut_waits_exactly_for_workers_with_a_task() {
    every_interleaving(|| {
        let bench = Bench::new(1);
        bench.queue.put([task(0), task(1)], &bench.signals);
        let its = Arc::clone(&bench);
        let worker = thread::spawn(move || {
            let first = its.queue.next(0, &its.signals, || {}, &|_| None).unwrap();
            let standing = its.queue.standing(0, first.basis);
            let second = its.queue.next(0, &its.signals, || {}, &|_| None).unwrap();
            (standing, its.queue.standing(0, second.basis))
        });
        let taken = bench.queue.begin_cut(&[], true, &bench.signals);
        let sealed: Vec<u64> = taken.iter().map(|queued| queued.entry.id.number).collect();
        bench.queue.sealed(taken.into_iter().map(|queued| (queued, None)).collect(), &bench.signals);
        let (first, second) = worker.join().unwrap();
        // A task that was encoded counts after the cut when it is complete; one that was not, before it.
        let after = Standing::After(1);
        match sealed.as_slice() {
            [0, 1] => assert_eq!((first, second), (after, after)),
            [1] => assert!(first == Standing::Before && second == after),
            [] => assert_eq!(first, Standing::Before),
            other => panic!("{other:?}"),
        }
        assert!(bench.queue.cut_is_collected() || sealed.is_empty());
    });
}

const SCOPE: Scope = Scope(TaskId { node: NodeId(1), number: 9 });

impl Bench {
    /// Makes a task wait for the only task of its scope.
    fn wait(&self) {
        let spawned = Spawned::Awaited { scope: SCOPE, then: Then::GoesOn };
        let (waiting, child) = (Entry { spawned, ..task(2) }, task(1).id);
        let waits = self.queue.wait_by(0, (waiting, Waits::Scope), &[child], None, &self.signals);
        assert!(waits.is_ok(), "there is no cut in which it has to be");
    }

    /// Records that this task is complete.
    fn complete_child(&self) {
        let done = Completed { scope: Some(SCOPE), ..Completed::plain(task(1).id, &[]) };
        self.queue.note_completed(Basis::FIRM, &done, &self.signals);
    }

    fn assert_woken(&self) {
        let view = self.queue.view();
        assert_eq!((view.queued, view.waiting), (1, 0), "it waits for nothing");
    }
}

#[test]
fn task_starting_to_wait_is_notified_of_the_last_completion() {
    every_interleaving(|| {
        let bench = Bench::new(2);
        bench.queue.open_scope(SCOPE, Basis::FIRM);
        let its = Arc::clone(&bench);
        let child = thread::spawn(move || its.complete_child());
        bench.wait();
        child.join().unwrap();
        bench.assert_woken();
    });
}

#[test]
fn task_being_written_is_notified_of_the_last_completion() {
    every_interleaving(|| {
        let bench = Bench::new(2);
        bench.queue.open_scope(SCOPE, Basis::FIRM);
        bench.wait();
        let its = Arc::clone(&bench);
        let child = thread::spawn(move || its.complete_child());
        // The driver takes it out of the pool temporarily.
        let taken = bench.queue.begin_cut(&[], true, &bench.signals);
        assert_eq!(taken.len(), 1);
        bench.queue.sealed(taken.into_iter().map(|queued| (queued, None)).collect(), &bench.signals);
        child.join().unwrap();
        bench.assert_woken();
    });
}
