//! Running tasks, executed step by step.

use proptest::sample::Index;

use super::{
    Run,
    script::{Act, Script, hash, options, pick},
};
use crate::{
    core::{
        Assignment, Held, Mark, Member, NewCall, Outcome, Step, TaskCall,
        call::CallState,
        graph::DEATHS_MAX,
        graph_tests::{new_call, version},
    },
    failure::Failure,
    ids::{Argument, CallId, Execution, VersionId, number_within},
};

pub(super) struct Running {
    pub(super) member: Member,
    pub(super) assignment: Assignment,
    pub(super) kind: usize,
    pub(super) inputs: Vec<u64>,
    pub(super) execution: Execution,
    /// The number of executed acts.
    pub(super) done: usize,
    /// The position of its next call or datum.
    pub(super) position: u64,
    pub(super) mark: Mark,
    pub(super) handles: Vec<VersionId>,
    pub(super) got: Vec<u64>,
    /// Whether the graph has received a step of it.
    pub(super) has_begun: bool,
    pub(super) now: Now,
    pub(super) is_earlier: bool,
    pub(super) is_cancelled: bool,
}

/// The state of a running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    Runs,
    Waits,
    /// It has received a failure.
    Fails,
}

impl Running {
    /// Returns the number and the position of its next call or datum.
    fn number(&mut self) -> (CallId, u64) {
        let position = self.position;
        self.position += 1;
        (number_within(self.assignment.call, self.assignment.tries, position), position)
    }
}

impl Run {
    /// Ends a cancelled call on a member. Some that have not made a step complete instead.
    pub(super) fn stop(&mut self, member: Member, call: CallId) {
        let is_it = |task: &Running| (task.member, task.assignment.call) == (member, call);
        let at = self.running.iter().position(is_it);
        if let Some(at) = at {
            self.running[at].is_cancelled = true;
            if self.running[at].has_begun || call.is_multiple_of(2) {
                self.end_obsolete(at);
            }
        }
    }

    /// Ends an execution that does not count.
    pub(super) fn end_obsolete(&mut self, at: usize) {
        let Running { member, assignment, is_cancelled, .. } = self.running.swap_remove(at);
        if is_cancelled {
            self.graph.returned(assignment.call, member, &[]);
        }
    }

    /// Returns whether the loss of a member leaves each of its calls below the limit of lost members.
    pub(super) fn may_be_lost(&self, member: Member) -> bool {
        let mut calls = self.graph.known().calls.iter();
        calls.all(|(_, call)| call.state != CallState::Runs(member) || call.deaths < DEATHS_MAX)
    }

    /// Executes the next act of a task, or completes it.
    pub(super) fn run_next_act(&mut self, at: usize) {
        let script = self.scripts[self.running[at].kind].clone();
        let task = &mut self.running[at];
        let act = script.acts.get(task.done).filter(|_| task.now != Now::Fails);
        task.done += 1;
        match act {
            Some(act) => self.run_act(at, act.clone()),
            None => self.complete(at, &script),
        }
    }

    fn run_act(&mut self, at: usize, act: Act) {
        let has_journal = self.book.is_kept;
        let task = &mut self.running[at];
        let which = |which: Index| pick(&task.handles, which);
        match act {
            Act::Bring(value) => {
                let (id, position) = task.number();
                task.mark = task.mark.then_data(id, value.into());
                task.handles.push(version(id, 0));
                let (member, mark) = (task.member, task.mark);
                if task.is_earlier {
                    // A task of an earlier run cannot report the datum, so it is not stored.
                    return self.step(at, Step::Begin);
                }
                self.put(member, version(id, 0), (value, mark));
                self.step(at, Step::Bring { position, bytes: 8, content: value.into() });
            }
            Act::Call { kind, reads } if task.kind > 0 => {
                let reads: Vec<_> = reads.into_iter().filter_map(which).collect();
                let kind = kind.index(task.kind);
                let options = options(kind, has_journal);
                let kind = u8::try_from(kind).expect("they are few");
                let arguments = vec![Argument::Copied(vec![kind]), Argument::ReadAll(reads)];
                let (id, position) = task.number();
                task.mark = task.mark.then_call(id, 0, &arguments, 1);
                task.handles.push(version(id, 0));
                let NewCall { task, .. } = new_call(Vec::new(), 0, options);
                let task = Some(task);
                let call =
                    TaskCall { position, number: 0, task, options, arguments, writes: 1, refused: None };
                self.step(at, Step::Call(call, Vec::new()));
            }
            Act::Get(index) => {
                if let Some(version) = which(index) {
                    task.now = Now::Waits;
                    self.step(at, Step::Get(version));
                }
            }
            Act::Drop(index) if !task.handles.is_empty() => {
                let version = task.handles.swap_remove(index.index(task.handles.len()));
                self.step(at, Step::Release(version));
            }
            Act::Wait => {
                task.now = Now::Waits;
                let position = task.position;
                self.step(at, Step::Wait(0..position, true));
            }
            Act::CancelNone => self.step(at, Step::Cancel(0..0)),
            Act::Call { .. } | Act::Drop(_) => {}
        }
    }

    fn step(&mut self, at: usize, step: Step) {
        let task = &mut self.running[at];
        if task.is_earlier {
            // A task of an earlier run cannot make calls in this run; it is returned and runs again.
            let task = self.running.swap_remove(at);
            return self.graph.returned(task.assignment.call, task.member, &[]);
        }
        let (member, execution) = (task.member, task.execution);
        if !std::mem::replace(&mut task.has_begun, true) {
            self.graph.step(member, execution, Step::Begin, None);
        }
        self.graph.step(member, execution, step, None);
    }

    fn complete(&mut self, at: usize, script: &Script) {
        let task = &self.running[at];
        let (member, has_begun) = (task.member, task.has_begun);
        let Assignment { call, mark, .. } = task.assignment;
        let mut forwarded = script.forwards.and_then(|which| pick(&task.handles, which));
        let succeeds = !script.fails && task.now != Now::Fails;
        if has_begun && succeeds && forwarded.is_none() {
            // The result must be invisible until the calls of the task have completed, so it is forwarded.
            let own = hash((task.kind, &task.inputs[..], &task.got));
            self.run_act(at, Act::Bring(own));
            forwarded = self.running[at].handles.last().copied();
        }
        if has_begun
            && succeeds
            && let Some(version) = forwarded
        {
            self.step(at, Step::HandOn(vec![(0, version)]));
        }
        let task = self.running.swap_remove(at);
        if script.fails || task.now == Now::Fails {
            let failure = Failure::new("task", call, "failed as requested");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        if task.assignment.manner.once_token.is_some() {
            return self.complete_once(&task);
        }
        if forwarded.is_none() {
            let value = hash((task.kind, &task.inputs[..], &task.got));
            self.put(member, version(call, 0), (value, mark));
            if task.is_earlier {
                self.graph.on_held(member, Held { version: version(call, 0), mark, bytes: 8 });
            }
        }
        assert!(forwarded.is_none() || has_begun);
        self.graph.ended(call, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
    }

    /// Completes a run-once call, with a different output in each execution.
    fn complete_once(&mut self, task: &Running) {
        let Assignment { call, mark, .. } = task.assignment;
        let value = hash(("once", task.execution.number));
        if !self.book.was_brought(task.member, version(call, 0)) {
            self.put(task.member, version(call, 0), (value, mark));
        }
        // One in four is too large for the journal.
        let values = (call % 4 > 0).then(|| vec![value.to_le_bytes().to_vec()]);
        let outcome = Outcome::Durable { bytes: vec![8], ns: 1_000_000, by: task.execution.number, values };
        self.book.add_unseen(task.member, call, mark, outcome.clone());
        self.graph.ended(call, task.member, outcome);
    }
}
