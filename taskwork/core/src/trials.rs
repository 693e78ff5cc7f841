//! Tasks that may be to blame for the loss of the nodes that held them.
//!
//! The task that a lost node was working on is not known: the node may have started it since its last flush. So a loss
//! counts as a crash for all tasks that the node held, but condemns none. A task that has run for long is cleared,
//! because after a later failure it is continued from there. A task that is one crash short of the limit is *on
//! trial*: it waits outside the pool until no other task is on trial here and `ZooKeeper` names it as this
//! node's suspect. If the node is lost then, the task is *condemned*: the node that claims it writes it to the
//! quarantine, and the job continues without it.
//!
//! ```text
//!   claimed ─▶ waiting ──named by a flush──▶ on trial, in the pool ──run for long, complete or gone──▶ cleared
//!     │                                           │ the node is lost, or the task panics
//!     └─condemned─▶ quarantine, with the next flush ◀── claimed by another node
//! ```
//!
//! A task's trial ends when the task waits, since it may wait for the others. Before it continues, it waits
//! in the pool until it is tried again.
//!
//! Only one task is on trial on a node at a time, so that the other waiting ones are not blamed for it.

use std::collections::VecDeque;

use super::{action::Condemned, event::Cut};
use crate::{
    envelope::Envelope,
    holdings::{Holdings, Suspect},
    id::TaskId,
};

/// The maximum number of tasks that one flush sets aside.
pub(crate) const CONDEMNED_MAX: usize = 8;

/// A task whose trial starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trial {
    /// It is not in the pool yet.
    Here(Box<Envelope>),
    /// It waits in the pool.
    InPool(TaskId),
}

/// The trials of one node in one attempt.
#[derive(Debug, Default)]
pub(super) struct Trials {
    waiting: VecDeque<Envelope>,
    tried: Option<TaskId>,
    condemned: Vec<Condemned>,
}

impl Trials {
    /// Removes from claimed holdings the tasks that are condemned or must be tried; the others can run.
    pub(super) fn receive(&mut self, claimed: Holdings, crashes_max: u32) -> Vec<Envelope> {
        let Holdings { mut tasks, suspect, .. } = claimed;
        if crashes_max == 0 {
            return tasks;
        }
        for task in tasks.extract_if(.., |task| task.crashes.saturating_add(1) >= crashes_max) {
            if task.crashes < crashes_max {
                self.waiting.push_back(task);
                continue;
            }
            let named = suspect.as_ref().filter(|suspect| suspect.task == task.id);
            let reason = named.map(|suspect| suspect.reason.clone()).unwrap_or_default();
            self.condemned.push(Condemned { task, reason });
        }
        tasks
    }

    /// Removes the condemned tasks that the next flush sets aside, and returns them with the other tasks here:
    /// they are this node's, and outside the pool.
    pub(super) fn take_condemned(&mut self) -> (Vec<Condemned>, impl Iterator<Item = &Envelope>) {
        let rest = self.condemned.split_off(self.condemned.len().min(CONDEMNED_MAX));
        let taken = std::mem::replace(&mut self.condemned, rest);
        (taken, self.waiting.iter().chain(self.condemned.iter().map(|condemned| &condemned.task)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.condemned.is_empty()
    }

    /// Returns whether a flush would start a trial, or end the one that others wait for, because its task has
    /// probably completed or waits. There may be untried tasks in the pool, too.
    pub(super) fn are_due(&self, any_untried: bool, has_ended: bool) -> bool {
        let any = any_untried || !self.waiting.is_empty();
        let can_begin = any && (self.tried.is_none() || has_ended);
        can_begin || !self.condemned.is_empty()
    }

    /// Returns the suspect to name with this cut. A trial is over if its task is no longer in the cut, has run
    /// for long, or waits: it may wait for tasks that must be tried first, or for an unknown time. Then the
    /// next task is named, if this flush writes it.
    pub(super) fn name(&mut self, cut: &Cut, beside: &[Envelope]) -> Option<Suspect> {
        let waits =
            |task: &Envelope| task.spawned.awaited().is_some() || cut.waiting_outside.contains(&task.id);
        let is_tried = |task: &Envelope| Some(task.id) == self.tried && task.crashes > 0 && !waits(task);
        if !cut.tasks.iter().any(is_tried) {
            self.tried = None;
        }
        let next = || {
            let first = self.waiting.front()?.id;
            beside.iter().any(|task| task.id == first).then_some(first)
        };
        let task = self.tried.or_else(next).or_else(|| cut.untried.first().copied())?;
        Some(Suspect { task, reason: String::new(), is_certain: false })
    }

    /// Returns the task that a committed flush has named, if it should run now.
    pub(super) fn begin(&mut self, written: &Holdings) -> Option<Trial> {
        let named = written.suspect.as_ref()?.task;
        if self.tried.is_some() {
            return None;
        }
        self.tried = Some(named);
        if self.waiting.front().is_none_or(|first| first.id != named) {
            return Some(Trial::InPool(named));
        }
        self.waiting.pop_front().map(|task| Trial::Here(Box::new(task)))
    }

    /// Returns the task on trial if there are untried tasks in the pool: it may be one of them, since it has waited
    /// briefly.
    pub(super) fn resumed_trial(&self, any_untried: bool) -> Option<TaskId> {
        self.tried.filter(|_| any_untried)
    }

    /// Cancels all trials of a leaving node. Returns the tasks that have not started.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Envelope> + use<'_> {
        self.tried = None;
        self.waiting.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        envelope::Blob,
        id::NodeId,
        scope::{Scope, Spawned, Then},
    };

    const MAX: u32 = 3;

    fn task(number: u64, crashes: u32) -> Envelope {
        let id = TaskId { node: NodeId(1), number };
        Envelope { crashes, ..Envelope::new(id, Blob::default(), Blob::default()) }
    }

    fn cut(tasks: Vec<Envelope>) -> Cut {
        Cut { tasks, ..Cut::default() }
    }

    fn named(suspect: Option<Suspect>) -> Option<u64> {
        suspect.map(|suspect| suspect.task.number)
    }

    fn here(task: Envelope) -> Trial {
        Trial::Here(Box::new(task))
    }

    fn written(number: u64) -> Holdings {
        let suspect = Suspect { task: task(number, 0).id, reason: String::new(), is_certain: false };
        Holdings { suspect: Some(suspect), ..Holdings::default() }
    }

    #[test]
    fn trials_run_one_at_a_time_each_after_it_was_named() {
        let mut trials = Trials::default();
        let claimed = Holdings::of(vec![task(1, 0), task(2, 2), task(3, 1), task(4, 2)]);
        assert_eq!(trials.receive(claimed, MAX), [task(1, 0), task(3, 1)]);
        let beside: Vec<Envelope> = trials.take_condemned().1.cloned().collect();
        assert_eq!(trials.begin(&written(2)), Some(here(task(2, 2))), "named by the flush");
        assert_eq!(named(trials.name(&cut(vec![task(2, 2)]), &beside)), Some(2), "it has not run yet");
        assert_eq!(trials.begin(&written(2)), None, "once");
        assert_eq!(trials.begin(&written(4)), None, "another is on trial");
        assert_eq!(
            named(trials.name(&cut(vec![task(2, 0)]), &beside)),
            Some(4),
            "the first has run for long"
        );
        assert_eq!(trials.begin(&written(4)), Some(here(task(4, 2))));
        assert_eq!(named(trials.name(&cut(Vec::new()), &[])), None, "it is complete");
    }

    #[test]
    fn trial_that_waits_lets_other_tasks_be_tried() {
        let (parent, child) = (task(2, 2), task(4, 2));
        let spawned = Spawned::Awaited { scope: Scope(task(9, 0).id), then: Then::GoesOn };
        let parent = Envelope { spawned, ..parent };
        let mut trials = Trials::default();
        trials.receive(Holdings::of(vec![parent.clone(), child.clone()]), MAX);
        assert_eq!(
            trials.begin(&written(2)),
            Some(here(parent.clone())),
            "others may be complete: then it continues"
        );
        let beside = [child.clone()];
        assert_eq!(named(trials.name(&cut(vec![parent]), &beside)), Some(4));
        assert_eq!(trials.begin(&written(4)), Some(here(child)));
    }

    #[test]
    fn trial_that_waits_for_an_external_event_blocks_no_other() {
        let (first, second) = (task(2, 2), task(4, 2));
        let mut trials = Trials::default();
        trials.receive(Holdings::of(vec![first.clone(), second.clone()]), MAX);
        assert_eq!(trials.begin(&written(2)), Some(here(first.clone())));
        let beside = [second.clone()];
        assert_eq!(named(trials.name(&cut(vec![first.clone()]), &beside)), Some(2), "it runs");
        let waits = Cut { waiting_outside: BTreeSet::from([first.id]), ..cut(vec![first]) };
        assert_eq!(named(trials.name(&waits, &beside)), Some(4));
        assert_eq!(trials.begin(&written(4)), Some(here(second)));
    }

    #[test]
    fn task_that_has_waited_is_tried_again_before_it_continues() {
        let one = task(2, 2);
        let mut trials = Trials::default();
        assert!(trials.are_due(true, false) && !trials.are_due(false, false));
        let untried = Cut { untried: BTreeSet::from([one.id]), ..cut(vec![one.clone()]) };
        assert_eq!(trials.resumed_trial(true), None, "no task would be blamed");
        assert_eq!(named(trials.name(&untried, &[])), Some(2));
        assert_eq!(trials.begin(&written(2)), Some(Trial::InPool(one.id)));
        assert!(!trials.are_due(true, false), "one at a time");
        // It has waited briefly.
        assert_eq!(named(trials.name(&untried, &[])), Some(2));
        assert_eq!((trials.resumed_trial(true), trials.resumed_trial(false)), (Some(one.id), None));
    }

    #[test]
    fn suspect_is_named_only_if_the_same_flush_writes_it() {
        let mut trials = Trials::default();
        trials.receive(Holdings::of(vec![task(2, 2)]), MAX);
        assert_eq!(named(trials.name(&cut(Vec::new()), &[])), None);
        assert_eq!(named(trials.name(&cut(Vec::new()), &[task(2, 2)])), Some(2));
    }

    #[test]
    fn condemned_tasks_are_written_once_with_their_reason() {
        let mut trials = Trials::default();
        let suspect = Suspect { task: task(7, 0).id, reason: "it panicked".to_owned(), is_certain: true };
        let claimed =
            Holdings { suspect: Some(suspect), ..Holdings::of(vec![task(7, MAX), task(8, MAX), task(9, 0)]) };
        assert_eq!(trials.receive(claimed, MAX), [task(9, 0)]);
        assert!(trials.are_due(false, false));
        let condemned = trials.take_condemned().0;
        let reasons: Vec<&str> = condemned.iter().map(|condemned| condemned.reason.as_str()).collect();
        assert_eq!(reasons, ["it panicked", ""]);
        assert!(trials.is_empty());
    }

    #[test]
    fn condemned_tasks_beyond_the_limit_are_written_as_holdings() {
        let mut trials = Trials::default();
        let all = (0..12).map(|number| task(number, MAX)).collect();
        assert_eq!(trials.receive(Holdings::of(all), MAX), []);
        let (taken, rest) = trials.take_condemned();
        assert_eq!((taken.len(), rest.count()), (CONDEMNED_MAX, 12 - CONDEMNED_MAX));
        assert!(trials.are_due(false, false));
        assert_eq!(trials.take_condemned().0.len(), 12 - CONDEMNED_MAX);
    }

    #[test]
    fn trials_without_a_limit_do_not_happen() {
        let mut trials = Trials::default();
        assert_eq!(trials.receive(Holdings::of(vec![task(1, 9)]), 0), [task(1, 9)]);
        assert!(trials.is_empty());
    }
}
