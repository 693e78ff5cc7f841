//! Starting an attempt at the job and dropping the previous one; joining and leaving members.

use super::{
    action::{Action, Departure},
    node::{Node, Phase},
    run::Run,
};
use crate::id::{Attempt, NodeId};

impl Node {
    /// Starts a new attempt. Everything of an earlier one is dropped: its tasks restart from the root,
    /// and its outputs do not count.
    pub(super) fn begin_attempt(&mut self, attempt: Attempt) {
        let newer = match &self.phase {
            Phase::Waiting => true,
            Phase::Clearing { next } => attempt > *next,
            Phase::Active(run) => attempt > run.attempt,
            Phase::Gone => false,
        };
        if newer {
            self.end_run();
            self.phase = Phase::Clearing { next: attempt };
            self.around.actions.push(Action::Thieves { waiting: 0 });
            self.around.actions.push(Action::Stop);
        }
    }

    pub(super) fn job_over(&mut self) {
        if !matches!(self.phase, Phase::Gone) {
            self.end_run();
            self.phase = Phase::Waiting;
            self.around.actions.push(Action::Stop);
        }
    }

    /// Stores the used numbers, so that no later attempt reuses them.
    fn end_run(&mut self) {
        if let Phase::Active(run) = &self.phase {
            self.numbers = run.numbers();
        }
    }

    /// Starts the next attempt once no task of the previous one runs.
    pub(super) fn clear(&mut self, next: Attempt) {
        if self.around.drain.is_some() {
            self.phase = Phase::Waiting;
            self.depart(Departure::Clean);
        } else if self.around.pool.is_quiet() {
            self.phase = Phase::Active(Box::new(Run::new(self.around.now, next, self.numbers)));
            self.around.actions.extend([Action::Discard, Action::Resume]);
        }
    }

    pub(super) fn joined(&mut self, node: NodeId) {
        if node == self.around.id || !self.around.members.insert(node) {
            return;
        }
        if let Phase::Active(run) = &mut self.phase {
            run.thief.joined();
            run.looks.joined(node);
        }
        if let Some(drain) = &mut self.around.drain {
            drain.joined(node);
        }
    }

    /// Records that a member works on jobs like this one, and whether it is near.
    pub(super) fn known(&mut self, node: NodeId, near: bool) {
        self.joined(node);
        if node == self.around.id {
            return;
        }
        self.around.known.insert(node);
        if near {
            self.around.near.insert(node);
        }
    }

    /// Records that a member does not work on jobs like this one, so that it never had any of its tasks.
    pub(super) fn apart(&mut self, node: NodeId) {
        self.around.forget(node);
        if let Phase::Active(run) = &mut self.phase {
            run.thief.unreachable(self.around.now, node);
        }
    }

    pub(super) fn left(&mut self, node: NodeId, clean_in: Option<Attempt>) {
        self.around.forget(node);
        let Phase::Active(run) = &mut self.phase else { return };
        // It may have left another attempt cleanly, not the one that this node still works on.
        let clean = clean_in == Some(run.attempt);
        run.left(&mut self.around, node, clean);
    }
}
