//! The waiting tasks of a pool: they wait for the tasks that they have spawned, or for an external event.
//!
//! They are outside the queue, so no worker and no thief takes them; but they are in every
//! [cut](crate::pool::cut), and leave with the queued tasks.
//!
//! For each scope that was opened here the pool keeps a *mirror*: the ids of the scope that were toggled once by
//! completions here. When all spawned tasks are named, and no id is left, everything in the scope is complete, and the
//! task that waits for it is queued without any I/O. If a part of the scope went to another node, the mirror never
//! becomes empty; then the global task list shows when the scope is complete.
//!
//! A mirror counts completions with the same fate as the task that opened the scope: those on its basis, and those
//! that are the node's own. It is dropped when that task leaves the pool, since more ids may be named elsewhere then.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{End, Gate, Queue, Queued, State};
use crate::{
    holdings::Basis,
    id::TaskId,
    pool::{Entry, cut::Seal, signals::Signals, wakers::WakeUp},
    scope::{Completed, Mark, Scope, Spawned, Then},
    task::Task,
};

/// The event that a task waits for.
#[derive(Clone)]
pub(in crate::pool) enum Waits {
    No,
    /// The completion of its scope.
    Scope,
    /// A wake-up.
    Outside(Arc<WakeUp>),
    /// Its [trial](crate::core): it could continue, but nodes were lost with it, and its trial ended while it waited.
    Trial,
}

/// Waiting tasks. One key type for all: each further type of map is compiled again for each type of task.
type ByTask<T> = BTreeMap<(TaskId, u64), Queued<T>>;

/// The waiting tasks, and the mirrors.
pub(super) struct Waiting<T: Task> {
    /// Tasks that wait for their scopes, by the task that opened the scope and their basis: a task that was handed
    /// over may be here twice until one of the two is void.
    scopes: ByTask<T>,
    /// Tasks that wait for wake-ups, by their id and the number of the wake-up: a task that was handed over may be here
    /// twice, too.
    outside: ByTask<T>,
    /// Tasks that wait for their trials, by their id and basis.
    untried: ByTask<T>,
    mirrors: HashMap<Scope, Mirror>,
}

/// The maximum number of ids in a mirror. The completion of a larger scope is detected by the global task list.
const MIRRORED_MAX: usize = 100_000;

/// The ids of a scope that were toggled once here.
struct Mirror {
    /// The basis of the task that has opened the scope.
    basis: Basis,
    odd: HashSet<TaskId>,
    /// Whether all spawned tasks are named.
    named: bool,
}

impl Mirror {
    fn toggle(&mut self, id: TaskId) {
        if !self.odd.remove(&id) {
            self.odd.insert(id);
        }
    }

    fn is_complete(&self) -> bool {
        self.named && self.odd.is_empty()
    }
}

impl<T: Task> Default for Waiting<T> {
    fn default() -> Self {
        let (scopes, outside, untried) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { scopes, outside, untried, mirrors: HashMap::new() }
    }
}

impl<T: Task> Waiting<T> {
    pub(super) fn len(&self) -> usize {
        self.scopes.len() + self.outside.len() + self.untried.len()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &Queued<T>> {
        self.scopes.values().chain(self.outside.values()).chain(self.untried.values())
    }

    /// Adds a waiting task. Returns it if it need not wait.
    fn add(&mut self, queued: Queued<T>) -> Option<Queued<T>> {
        match &queued.waits {
            Waits::No => return Some(queued),
            Waits::Outside(wake_up) if wake_up.has_come() => return Some(queued),
            Waits::Outside(wake_up) => {
                self.outside.insert((wake_up.task, wake_up.number), queued);
            }
            Waits::Trial => {
                self.untried.insert((queued.entry.id, queued.entry.basis.0), queued);
            }
            Waits::Scope => {
                let Some(scope) = queued.entry.spawned.awaited() else { return Some(queued) };
                let basis = queued.entry.basis;
                let mirror = self.mirrors.get(&scope).filter(|mirror| mirror.basis == basis);
                if mirror.is_some_and(Mirror::is_complete) {
                    self.mirrors.remove(&scope);
                    return Some(queued);
                }
                let before = self.scopes.insert((scope.0, basis.0), queued);
                debug_assert!(before.is_none(), "two tasks wait for {scope:?}");
            }
        }
        None
    }

    /// Removes and returns the waiting tasks on the selected bases.
    pub(super) fn take(&mut self, which: impl Fn(Basis) -> bool) -> Vec<Queued<T>> {
        let mut taken = Vec::new();
        for tasks in [&mut self.scopes, &mut self.outside, &mut self.untried] {
            for (key, queued) in std::mem::take(tasks) {
                if which(queued.entry.basis) {
                    taken.push(queued);
                } else {
                    tasks.insert(key, queued);
                }
            }
        }
        taken
    }

    /// Forgets the mirror of a task that leaves the pool.
    pub(super) fn left(&mut self, entry: &Entry<T>) {
        if let Some(scope) = entry.spawned.scope() {
            self.mirrors.remove(&scope);
        }
    }

    /// Drops the tasks and mirrors on these bases.
    pub(super) fn void(&mut self, bases: &[Basis]) {
        self.take(|basis| bases.contains(&basis));
        self.mirrors.retain(|_, mirror| !bases.contains(&mirror.basis));
    }
}

impl<T: Task> State<T> {
    /// Queues a task that need no longer wait, before all others. Returns whether it was queued: a task that is one
    /// crash short of the limit waits for its trial instead.
    fn queue_woken(&mut self, mut queued: Queued<T>) -> bool {
        if let Spawned::Awaited { then: Then::GoesOn, .. } = queued.entry.spawned {
            queued.entry.spawned = Spawned::Nothing;
        }
        // A task that is complete now does nothing more.
        let goes_on = queued.entry.spawned.awaited().is_none();
        let is_tried = goes_on && queued.entry.crashes.may_be_last(self.crashes_max);
        queued.waits = if is_tried { Waits::Trial } else { Waits::No };
        match self.waiting.add(queued) {
            Some(queued) => self.queue_first(queued),
            None => return false,
        }
        true
    }

    /// Queues a task that has waited before all others of its order.
    fn queue_first(&mut self, queued: Queued<T>) {
        self.staying += usize::from(queued.stays());
        self.queue(Queued { waits: Waits::No, ..queued }, End::Front);
    }

    /// Returns the node's own tasks that wait for their trials.
    pub(super) fn untried(&self) -> impl Iterator<Item = TaskId> {
        let own = self.waiting.untried.keys().filter(|(_, basis)| self.cut.counts(Basis(*basis)));
        own.map(|(task, _)| *task)
    }

    /// Makes a task wait, or queues it if it need not. Returns the number of tasks that were queued.
    pub(super) fn let_wait(&mut self, queued: Queued<T>) -> usize {
        let woken = self.waiting.add(queued);
        usize::from(woken.is_some_and(|woken| self.queue_woken(woken)))
    }
}

impl<T: Task> Queue<T> {
    /// Starts to mirror a scope that a task with this basis opens.
    pub(in crate::pool) fn open_scope(&self, scope: Scope, basis: Basis) {
        let mirror = Mirror { basis, odd: HashSet::new(), named: false };
        let mut state = self.lock();
        if !state.cut.is_void(basis) {
            state.waiting.mirrors.insert(scope, mirror);
        }
    }

    /// Returns whether the scope of these spawned tasks is complete, so that their spawner on this worker can
    /// be complete, too; its mirror is removed then.
    pub(in crate::pool) fn close_scope(&self, worker: usize, scope: Scope, tasks: &[TaskId]) -> bool {
        let mut state = self.lock();
        // The spawner would be complete in the cut, but its spawned tasks may be complete only after it.
        if state.cut.awaits(worker) {
            return false;
        }
        let Some(mirror) = state.waiting.mirrors.get(&scope) else { return false };
        let spawned: HashSet<TaskId> = tasks.iter().copied().collect();
        let is_complete = mirror.odd == spawned;
        if is_complete {
            state.waiting.mirrors.remove(&scope);
        }
        is_complete
    }

    /// Forgets the mirror of a scope for which no task will wait.
    pub(in crate::pool) fn forget_scope(&self, scope: Scope) {
        self.lock().waiting.mirrors.remove(&scope);
    }

    /// Makes a worker's task wait. `named` are the tasks that it has spawned in the scope that it waits for; none if it
    /// waits for an external event. As with [`put_by`](Self::put_by), it may have to come with its sealed form. Returns
    /// whether the driver should be notified.
    pub(in crate::pool) fn wait_by(
        &self,
        worker: usize,
        (entry, waits): (Entry<T>, Waits),
        named: &[TaskId],
        sealed: Option<Seal>,
        signals: &Signals,
    ) -> Result<bool, Box<Entry<T>>> {
        let mut state = self.lock();
        if state.cut.awaits(worker) && state.cut.counts(entry.basis) {
            let Some(sealed) = sealed else { return Err(Box::new(entry)) };
            state.cut.add(sealed);
            if matches!(waits, Waits::Outside(_)) {
                state.cut.note_waiting_outside(entry.id);
            }
        }
        if state.cut.is_void(entry.basis) {
            return Ok(false);
        }
        if let Some(scope) = entry.spawned.awaited()
            && let Some(mirror) = state.waiting.mirrors.get_mut(&scope)
            && mirror.basis == entry.basis
        {
            for &id in named {
                mirror.toggle(id);
            }
            mirror.named = true;
        }
        let woken = state.let_wait(Queued { waits, ..Queued::new(entry) });
        // The reader of the global task list must learn of the first waiting task.
        let first = state.waiting.scopes.len() == 1;
        let notify = state.gate != Gate::Open
            || (woken == 0 && (first || state.untried().next().is_some()))
            || (woken > 0 && state.thieves > 0);
        self.added(woken, state, signals);
        Ok(notify)
    }

    /// Records a completion in the mirror of its scope, after it is recorded in the ledger. Returns whether the driver
    /// should be notified.
    pub(in crate::pool) fn note_completed(
        &self,
        basis: Basis,
        completed: &Completed<'_>,
        signals: &Signals,
    ) -> bool {
        let Some(scope) = completed.scope else { return false };
        let mut state = self.lock();
        let counts = state.cut.counts(basis);
        let Some(mirror) = state.waiting.mirrors.get_mut(&scope) else { return false };
        if !counts && mirror.basis != basis {
            return false;
        }
        mirror.toggle(completed.id);
        let named = completed.named().chain(completed.renewed().map(|(renewed, _)| renewed));
        for mark in named.filter(|mark| mark.scope == Some(scope)) {
            mirror.toggle(mark.task);
        }
        if mirror.odd.len() > MIRRORED_MAX {
            // Most of the scope went to other nodes, or came from there.
            state.waiting.mirrors.remove(&scope);
            return false;
        }
        if !mirror.is_complete() {
            return false;
        }
        let of = (scope.0, mirror.basis.0);
        let Some(waiting) = state.waiting.scopes.remove(&of) else { return false };
        state.waiting.mirrors.remove(&scope);
        let queued = state.queue_woken(waiting);
        let notify = !queued || state.thieves > 0 || state.gate != Gate::Open;
        self.added(usize::from(queued), state, signals);
        notify
    }

    /// Returns the awaited scopes, each with the id of the waiting task.
    pub(in crate::pool) fn awaited_scopes(&self) -> Vec<(Mark, Scope)> {
        let state = self.lock();
        let mark = |entry: &Entry<T>| Mark { scope: entry.scope, task: entry.id };
        state.waiting.scopes.iter().map(|(&(task, _), queued)| (mark(&queued.entry), Scope(task))).collect()
    }

    /// Queues the tasks that wait for these scopes, which are complete, or makes them wait for their trials. Returns
    /// their number.
    pub(in crate::pool) fn wake(&self, scopes: &[Scope], signals: &Signals) -> usize {
        let mut state = self.lock();
        let mut woken = Vec::new();
        for &scope in scopes {
            let of_it = state.waiting.scopes.range((scope.0, 0)..=(scope.0, u64::MAX));
            let of_it: Vec<(TaskId, u64)> = of_it.map(|(key, _)| *key).collect();
            woken.extend(of_it.iter().filter_map(|key| state.waiting.scopes.remove(key)));
            state.waiting.mirrors.remove(&scope);
        }
        let count = woken.len();
        let queued: usize = woken.into_iter().map(|woken| usize::from(state.queue_woken(woken))).sum();
        self.added(queued, state, signals);
        count
    }

    /// Lets a task continue that has waited for its trial.
    pub(in crate::pool) fn begin_trial(&self, task: TaskId, signals: &Signals) {
        let mut state = self.lock();
        let State { waiting, cut, .. } = &mut *state;
        let of_it = waiting.untried.range((task, 0)..=(task, u64::MAX));
        let key = of_it.map(|(key, _)| *key).find(|(_, basis)| cut.counts(Basis(*basis)));
        let queued = key.and_then(|key| waiting.untried.remove(&key));
        if let Some(queued) = queued {
            state.queue_first(queued);
            self.added(1, state, signals);
        }
    }

    /// Queues the tasks with a wake-up: those that wait for it, and those of the same ids that have started to wait
    /// before. If a task exists twice, its program may only know the second waker, and only one of the two tasks
    /// counts.
    pub(in crate::pool) fn wake_rung(&self, wake_ups: &[Arc<WakeUp>], signals: &Signals) {
        let mut state = self.lock();
        let mut woken = Vec::new();
        for wake_up in wake_ups {
            let of_it = state.waiting.outside.range((wake_up.task, 0)..=(wake_up.task, wake_up.number));
            let of_it: Vec<(TaskId, u64)> = of_it.map(|(key, _)| *key).collect();
            woken.extend(of_it.iter().filter_map(|key| state.waiting.outside.remove(key)));
        }
        let queued: usize = woken.into_iter().map(|woken| usize::from(state.queue_woken(woken))).sum();
        self.added(queued, state, signals);
    }

    /// Returns whether so many tasks are queued or wait that a worker's task should let its spawned tasks start,
    /// and asks it to.
    pub(in crate::pool) fn is_crowded(&self, worker: usize, tasks_max: usize, signals: &Signals) -> bool {
        let state = self.lock();
        let is_crowded = state.tasks.len() + state.waiting.len() >= tasks_max;
        if is_crowded && state.running[worker].is_some() && !self.yields[worker].swap(true, Relaxed) {
            self.interrupted[worker].store(true, Relaxed);
            signals.announce_snapshot();
        }
        is_crowded
    }

    /// Returns whether a worker's task should let its spawned tasks start, once.
    pub(in crate::pool) fn yields(&self, worker: usize) -> bool {
        self.yields[worker].swap(false, Relaxed)
    }
}
