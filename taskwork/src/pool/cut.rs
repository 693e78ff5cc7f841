//! A cut through a working pool: every task that is the node's own, as of one point of its worker's time, and
//! the completions before that point.
//!
//! No worker is stopped for it. Each running task is interrupted at its next poll, encoded by its own worker, and
//! continued: that is the worker's point of the cut. Queued tasks are encoded at the start. The work before a worker's
//! point belongs to the cut: its completions are counted, and the tasks that it puts into the queue are encoded. The
//! work after its point does not: its completions wait for the next cut, and the tasks that it splits off are still
//! part of the encoded task. A worker without a task is past its point.
//!
//! Tasks on a tentative [`Basis`], and their effects, are in no cut.

use std::collections::BTreeSet;

use crate::{envelope::Envelope, holdings::Basis, id::TaskId};

/// A task in its sealed form, unless it is too large.
pub(super) type Seal = Option<Envelope>;

/// The cut in which a completion counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// None: the task was not this node's.
    Void,
    /// With its basis.
    Tentative(Basis),
    /// The next cut to be finished.
    Before,
    /// The one after the cut with this number.
    After(u64),
}

/// A finished cut's tasks.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    pub(super) tasks: Vec<Envelope>,
    /// The tasks that wait for an external event.
    pub(super) waiting_outside: BTreeSet<TaskId>,
    /// The tasks that wait for their trials.
    pub(super) untried: BTreeSet<TaskId>,
    /// Whether tasks are missing because they are too large.
    pub(super) incomplete: bool,
}

/// The current cut, and the bases that count in it.
#[derive(Debug, Default)]
pub(super) struct Collecting {
    tentative: BTreeSet<Basis>,
    void: BTreeSet<Basis>,
    /// The number of the last cut.
    number: u64,
    current: Option<Current>,
}

#[derive(Debug, Default)]
struct Current {
    /// The workers that have not reached their points yet.
    awaited: BTreeSet<usize>,
    /// Whether queued tasks are being encoded.
    sealing: bool,
    sealed: Sealed,
}

impl Collecting {
    /// Registers a basis before the first task with it is queued.
    pub(super) fn open(&mut self, basis: Basis) {
        if basis != Basis::FIRM {
            self.tentative.insert(basis);
        }
    }

    pub(super) fn counts(&self, basis: Basis) -> bool {
        !self.tentative.contains(&basis) && !self.void.contains(&basis)
    }

    pub(super) fn is_void(&self, basis: Basis) -> bool {
        self.void.contains(&basis)
    }

    pub(super) fn void(&mut self, bases: &[Basis]) {
        for &basis in bases {
            self.tentative.remove(&basis);
            self.void.insert(basis);
        }
    }

    /// Starts a cut in which these bases count, with the workers that have a task that counts.
    pub(super) fn begin(&mut self, firm: &[Basis]) {
        for basis in firm {
            self.tentative.remove(basis);
        }
        self.number += 1;
        self.current = Some(Current { sealing: true, ..Current::default() });
    }

    /// Awaits a worker's point.
    pub(super) fn awaits_now(&mut self, worker: usize) {
        if let Some(current) = &mut self.current {
            current.awaited.insert(worker);
        }
    }

    /// Returns whether a worker has not reached its point yet.
    pub(super) fn awaits(&self, worker: usize) -> bool {
        self.current.as_ref().is_some_and(|current| current.awaited.contains(&worker))
    }

    /// Returns whether any worker has not reached its point yet.
    pub(super) fn awaits_any(&self) -> bool {
        self.current.as_ref().is_some_and(|current| !current.awaited.is_empty())
    }

    /// Returns the number of the current cut, and the workers that have not reached their points yet.
    pub(super) fn awaited(&self) -> (u64, Vec<usize>) {
        let awaited = self.current.iter().flat_map(|current| &current.awaited);
        (self.number, awaited.copied().collect())
    }

    pub(super) fn add(&mut self, task: Seal) {
        let Some(current) = &mut self.current else { return };
        match task {
            Some(task) => current.sealed.tasks.push(task),
            None => current.sealed.incomplete = true,
        }
    }

    /// Records that a task in the cut waits for an external event.
    pub(super) fn note_waiting_outside(&mut self, task: TaskId) {
        if let Some(current) = &mut self.current {
            current.sealed.waiting_outside.insert(task);
        }
    }

    pub(super) fn note_untried(&mut self, task: TaskId) {
        if let Some(current) = &mut self.current {
            current.sealed.untried.insert(task);
        }
    }

    /// Records that all queued tasks are encoded.
    pub(super) fn sealed_queue(&mut self) {
        if let Some(current) = &mut self.current {
            current.sealing = false;
        }
    }

    /// Passes a worker's point. Returns whether that completes the collection of the cut.
    pub(super) fn pass(&mut self, worker: usize) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.awaited.remove(&worker) && self.is_collected()
    }

    /// Returns whether a cut is collected and not finished yet.
    pub(super) fn is_collected(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.awaited.is_empty() && !current.sealing)
    }

    pub(super) fn finish(&mut self) -> Option<(u64, Sealed)> {
        self.current
            .take_if(|current| current.awaited.is_empty() && !current.sealing)
            .map(|current| (self.number, current.sealed))
    }

    /// Returns the cut in which a completion of this worker counts.
    pub(super) fn standing(&self, worker: usize, basis: Basis) -> Standing {
        if self.void.contains(&basis) {
            Standing::Void
        } else if self.tentative.contains(&basis) {
            Standing::Tentative(basis)
        } else if self.current.is_none() || self.awaits(worker) {
            Standing::Before
        } else {
            Standing::After(self.number)
        }
    }

    /// Drops the state of a finished attempt; the numbers continue.
    pub(super) fn reset(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}
