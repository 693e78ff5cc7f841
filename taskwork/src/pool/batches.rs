//! The ledger shared by threads: workers complete tasks, and the driver takes a finished cut without waiting for
//! them.
//!
//! A worker holds the ledger while it merges an output, which is the program's own code and may take seconds.
//! The driver must not wait for that: its session would expire. So it sets a flag that it wants the cut, and
//! the next worker that holds the ledger finishes it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};

use super::{
    PoolFault,
    cut::{Sealed, Standing},
    ledger::Ledger,
    lock,
    queue::Queue,
    worker::message,
};
use crate::{core::Cut, output::Output, scope::Completed, task::Task};

/// The ledger of a pool, and the hand-over of its cuts.
#[derive(Debug, Default)]
pub(super) struct Batches<O> {
    ledger: Mutex<Ledger<O>>,
    /// The number of ids to commit, as of the last completion.
    ids: AtomicUsize,
    /// Whether the driver wants the collected cut.
    wanted: AtomicBool,
    /// A cut that a worker has finished.
    ready: Mutex<Option<Result<Cut, PoolFault>>>,
}

/// The outcome of taking a cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Cut(Result<Cut, PoolFault>),
    /// The next worker that completes a task, or reaches its point, enables it.
    Later,
    /// Outputs must be [merged](Batches::merge) first.
    Merges,
}

impl<O: Output> Batches<O> {
    /// Returns the number of ids to commit.
    pub(super) fn ids(&self) -> usize {
        self.ids.load(Relaxed)
    }

    /// Records a completed task. `standing` is called with the ledger locked, so that no cut is finished between
    /// the answer and its effect. Returns whether the driver waits for a cut that is now finished.
    pub(super) fn complete<T: Task<Output = O>>(
        &self,
        queue: &Queue<T>,
        standing: impl FnOnce() -> Standing,
        completed: &Completed<'_>,
        output: O,
    ) -> bool {
        let mut ledger = lock(&self.ledger);
        ledger.complete(standing(), completed, output);
        self.ids.store(ledger.ids(), Relaxed);
        let finished = self.wanted.load(Relaxed).then(|| self.finish(queue, &mut ledger)).flatten();
        let handed_out = finished.is_some();
        if handed_out {
            *lock(&self.ready) = finished;
        }
        drop(ledger);
        // If the driver has set the flag since then and found the ledger locked, the worker must check it again.
        fence(SeqCst);
        handed_out || self.wanted.load(Relaxed)
    }

    /// Takes the cut if it is collected, unless that runs the program's own code, or a worker that runs it holds
    /// the ledger.
    pub(super) fn take<T: Task<Output = O>>(&self, queue: &Queue<T>) -> Taken {
        if let Some(cut) = lock(&self.ready).take() {
            return Taken::Cut(cut);
        }
        if !queue.cut_is_collected() {
            return Taken::Later;
        }
        self.wanted.store(true, Relaxed);
        fence(SeqCst);
        let Some(mut ledger) = self.try_lock() else { return Taken::Later };
        if ledger.merges(|basis| queue.judge(basis)) {
            return Taken::Merges;
        }
        // A worker may have been faster.
        let finished = self.finish(queue, &mut ledger).or_else(|| lock(&self.ready).take());
        finished.map_or(Taken::Later, Taken::Cut)
    }

    /// Finishes the cut, even if merging outputs takes long; [`take`](Self::take) returns it then.
    pub(super) fn merge<T: Task<Output = O>>(&self, queue: &Queue<T>) {
        let mut ledger = lock(&self.ledger);
        if let Some(finished) = self.finish(queue, &mut ledger) {
            *lock(&self.ready) = Some(finished);
        }
    }

    /// Resets the ledger. No task may be completed concurrently.
    pub(super) fn reset(&self) {
        let mut ledger = lock(&self.ledger);
        *ledger = Ledger::default();
        self.ids.store(0, Relaxed);
        self.wanted.store(false, Relaxed);
        *lock(&self.ready) = None;
    }

    fn finish<T: Task<Output = O>>(
        &self,
        queue: &Queue<T>,
        ledger: &mut Ledger<O>,
    ) -> Option<Result<Cut, PoolFault>> {
        let (number, sealed) = queue.finish_cut()?;
        self.wanted.store(false, Relaxed);
        let finishing = || ledger.finish(number, |basis| queue.judge(basis));
        let finished = catch_unwind(AssertUnwindSafe(finishing));
        self.ids.store(ledger.ids(), Relaxed);
        Some(match finished {
            Ok(Ok((toggles, output))) => {
                let Sealed { tasks, waiting_outside, untried, incomplete } = sealed;
                Ok(Cut { tasks, waiting_outside, untried, unprotected: incomplete, toggles, output })
            }
            Ok(Err(error)) => Err(PoolFault::Unencodable { reason: error.to_string() }),
            Err(panic) => Err(PoolFault::Unmergeable { message: message(&*panic) }),
        })
    }

    /// Locks the ledger if it is free. A poisoned lock is used anyway.
    fn try_lock(&self) -> Option<MutexGuard<'_, Ledger<O>>> {
        match self.ledger.try_lock() {
            Ok(ledger) => Some(ledger),
            Err(TryLockError::Poisoned(left)) => Some(left.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Condvar},
        thread,
        time::Duration,
    };

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{context::Context, id::TaskId, pool::signals::Signals, task::Outcome};

    #[derive(Serialize, Deserialize)]
    struct Nothing;

    impl Task for Nothing {
        type Shared = ();
        type Output = Slow;

        fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
            Outcome::Complete
        }

        fn split(&mut self, (): &()) -> Option<Self> {
            None
        }
    }

    /// The state of a merge: started, and allowed to finish.
    static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

    /// An output with a merge that blocks until the test permits it to finish.
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Slow(u64);

    impl Output for Slow {
        fn merge(&mut self, other: Self) {
            let (stands, changed) = &GATE;
            stands.lock().unwrap().0 = true;
            changed.notify_all();
            let wait = changed.wait_timeout_while(stands.lock().unwrap(), Duration::from_secs(60), |s| !s.1);
            assert!(!wait.unwrap().1.timed_out(), "the driver waits for the merge");
            self.0 += other.0;
        }
    }

    #[test]
    fn slow_merge_does_not_block_the_driver() {
        let batches = Arc::new((Batches::<Slow>::default(), Queue::<Nothing>::new(1, 0)));
        let its = Arc::clone(&batches);
        let done = Completed::plain(TaskId::ROOT, &[]);
        let worker = thread::spawn(move || its.0.complete(&its.1, || Standing::Before, &done, Slow(7)));
        let (batches, queue) = &*batches;
        let (stands, changed) = &GATE;
        drop(changed.wait_while(stands.lock().unwrap(), |s| !s.0).unwrap());
        assert_eq!(batches.ids(), 0, "asked while it is merged");
        let signals = Signals::default();
        queue.begin_cut(&[], true, &signals);
        assert!(queue.sealed(Vec::new(), &signals));
        assert_eq!(batches.take(queue), Taken::Later);
        assert_eq!(batches.take(queue), Taken::Later);
        stands.lock().unwrap().1 = true;
        changed.notify_all();
        assert!(worker.join().unwrap(), "the worker reports that the driver waits");
        let Taken::Cut(Ok(mut cut)) = batches.take(queue) else { panic!("it is handed out") };
        assert_eq!(cut.toggles.take(9), [TaskId::ROOT]);
        assert_eq!((batches.take(queue), batches.ids()), (Taken::Later, 0), "once");
    }
}
