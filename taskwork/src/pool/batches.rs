//! The ledger shared by threads: workers complete tasks, and the node takes the batch without waiting for
//! them.
//!
//! A worker holds the ledger while it merges an output, which is the program's own code and may take long.
//! The driver must not wait for that: its session would expire. So it sets a flag that it wants the batch,
//! and the next worker that holds the ledger hands it out.

use std::sync::{
    Mutex, MutexGuard, TryLockError,
    atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use super::{Batch, PoolFault, ledger::Ledger, lock};
use crate::{id::TaskId, output::Output};

/// The ledger of a pool, and the hand-over of its batches.
#[derive(Debug)]
pub(super) struct Batches<O> {
    ledger: Mutex<Ledger<O>>,
    /// The number of ids to be committed and of the batches that contain them, as of the last completion.
    ids: AtomicUsize,
    count: AtomicUsize,
    /// The maximum number of ids in a batch.
    ids_max: usize,
    /// Whether the driver wants a batch.
    wanted: AtomicBool,
    /// A batch that a worker has handed out.
    ready: Mutex<Option<Result<Batch, PoolFault>>>,
}

impl<O: Output> Batches<O> {
    /// Creates an empty ledger. A batch has at most `ids_max` ids, unless it consists of a single completion.
    pub(super) fn new(ids_max: usize) -> Self {
        Self {
            ledger: Mutex::new(Ledger::new(ids_max)),
            ids: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            ids_max,
            wanted: AtomicBool::new(false),
            ready: Mutex::default(),
        }
    }

    /// Returns the number of ids to be committed.
    pub(super) fn ids(&self) -> usize {
        self.ids.load(Relaxed)
    }

    /// Returns the number of batches to be committed.
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn note(&self, ledger: &Ledger<O>) {
        self.ids.store(ledger.ids(), Relaxed);
        self.count.store(ledger.batches(), Relaxed);
    }

    /// Records a completed task. Returns whether the driver waits for the batch.
    pub(super) fn complete(&self, id: TaskId, children: &[TaskId], output: O) -> bool {
        let mut ledger = lock(&self.ledger);
        ledger.complete(id, children, output);
        self.note(&ledger);
        let handed_out = self.wanted.load(Relaxed);
        if handed_out {
            let batch = self.taken(&mut ledger);
            *lock(&self.ready) = Some(batch);
        }
        drop(ledger);
        // If the driver has set the flag since then and found the ledger locked, it must look again.
        fence(SeqCst);
        handed_out || self.wanted.load(Relaxed)
    }

    /// Takes the batch, or requests it for later.
    pub(super) fn take(&self) -> Result<Option<Batch>, PoolFault> {
        self.wanted.store(true, Relaxed);
        fence(SeqCst);
        self.ready()
    }

    /// Returns the batch if it was requested and is available now.
    pub(super) fn ready(&self) -> Result<Option<Batch>, PoolFault> {
        if let Some(batch) = lock(&self.ready).take() {
            return batch.map(Some);
        }
        match self.try_lock() {
            Some(mut ledger) if self.wanted.load(Relaxed) => self.taken(&mut ledger).map(Some),
            _ => Ok(None),
        }
    }

    /// Resets the ledger. No task may be completed meanwhile.
    pub(super) fn reset(&self) {
        let mut ledger = lock(&self.ledger);
        *ledger = Ledger::new(self.ids_max);
        self.note(&ledger);
        self.wanted.store(false, Relaxed);
        *lock(&self.ready) = None;
    }

    fn taken(&self, ledger: &mut Ledger<O>) -> Result<Batch, PoolFault> {
        self.wanted.store(false, Relaxed);
        let taken = ledger.take();
        self.note(ledger);
        taken.map_err(|e| PoolFault::Unencodable { reason: e.to_string() })
    }

    /// Locks the ledger if it is free. A poisoned lock is used as it is.
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

    /// The state of a merge: begun, and allowed to end.
    static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

    /// An output whose merge takes as long as the test requires.
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Slow(u64);

    impl Output for Slow {
        fn merge(&mut self, other: Self) {
            let (stands, changed) = &GATE;
            stands.lock().unwrap().0 = true;
            changed.notify_all();
            let wait = changed.wait_timeout_while(stands.lock().unwrap(), Duration::from_secs(60), |s| !s.1);
            assert!(!wait.unwrap().1.timed_out(), "whoever drives the node waits for the merge");
            self.0 += other.0;
        }
    }

    #[test]
    fn a_merge_that_takes_long_is_not_waited_for() {
        let batches = Arc::new(Batches::<Slow>::new(1_000));
        let its = Arc::clone(&batches);
        let worker = thread::spawn(move || its.complete(TaskId::ROOT, &[], Slow(7)));
        let (stands, changed) = &GATE;
        drop(changed.wait_while(stands.lock().unwrap(), |s| !s.0).unwrap());
        assert_eq!(batches.ids(), 0, "asked while it is merged");
        assert_eq!(batches.take(), Ok(None));
        assert_eq!(batches.ready(), Ok(None));
        stands.lock().unwrap().1 = true;
        changed.notify_all();
        assert!(worker.join().unwrap(), "the worker says that it is waited for");
        let batch = batches.ready().unwrap().expect("it is handed out");
        assert_eq!(batch.toggles, [TaskId::ROOT]);
        assert_eq!((batches.ready(), batches.ids()), (Ok(None), 0), "once");
    }
}
