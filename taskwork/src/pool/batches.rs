//! The ledger among threads: workers complete tasks, and the node takes the batch without waiting for them.
//!
//! A worker holds the ledger while it merges an output, which is the program's own code and may take long.
//! Whoever drives the node must not wait for that: its session would expire. So it leaves word that it wants
//! the batch, and the worker that has the ledger next hands it out.

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

/// The ledger of a pool, and the way to the batch in it.
#[derive(Debug)]
pub(super) struct Batches<O> {
    ledger: Mutex<Ledger<O>>,
    /// Ids that are to be committed, and the batches that they are in, as of the last completion.
    ids: AtomicUsize,
    count: AtomicUsize,
    /// How many ids a batch may have.
    ids_max: usize,
    /// The batch is to be handed out.
    wanted: AtomicBool,
    /// What was handed out.
    ready: Mutex<Option<Result<Batch, PoolFault>>>,
}

impl<O: Output> Batches<O> {
    /// Nothing is completed yet. A batch has so many ids at most; one with a single completion may have more.
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

    /// Ids that are to be committed.
    pub(super) fn ids(&self) -> usize {
        self.ids.load(Relaxed)
    }

    /// Batches that they are in.
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn note(&self, ledger: &Ledger<O>) {
        self.ids.store(ledger.ids(), Relaxed);
        self.count.store(ledger.batches(), Relaxed);
    }

    /// Notes a completed task. Says whether somebody waits for the batch.
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
        // Whoever has left word since, and found the ledger held, looks again.
        fence(SeqCst);
        handed_out || self.wanted.load(Relaxed)
    }

    /// Takes the batch, or leaves word that it is wanted.
    pub(super) fn take(&self) -> Result<Option<Batch>, PoolFault> {
        self.wanted.store(true, Relaxed);
        fence(SeqCst);
        self.ready()
    }

    /// The batch, if it is wanted and can be had now.
    pub(super) fn ready(&self) -> Result<Option<Batch>, PoolFault> {
        if let Some(batch) = lock(&self.ready).take() {
            return batch.map(Some);
        }
        match self.try_lock() {
            Some(mut ledger) if self.wanted.load(Relaxed) => self.taken(&mut ledger).map(Some),
            _ => Ok(None),
        }
    }

    /// Forgets everything. Nobody completes a task now.
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

    /// The ledger, if nobody has it. One left by a panic is taken as it is.
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

    /// Where a merge stands: begun, and allowed to end.
    static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

    /// An output whose merge takes as long as it is made to.
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
