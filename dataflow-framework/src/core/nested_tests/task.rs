//! Tasks that run, step by step.

use proptest::sample::Index;

use super::{
    Run,
    script::{Act, Script, hash, options, pick},
};
use crate::{
    core::{
        Assignment, Held, Mark, Member, NewCall, Outcome, Step, TaskCall,
        graph_tests::{new_call, version},
    },
    failure::Failure,
    ids::{Argument, CallId, Execution, VersionId, number_within},
};

/// A task that runs.
pub(super) struct Running {
    pub(super) member: Member,
    pub(super) assignment: Assignment,
    pub(super) kind: usize,
    pub(super) inputs: Vec<u64>,
    pub(super) execution: Execution,
    /// The number of acts that were done.
    pub(super) done: usize,
    /// The position of what it does next among its calls and data.
    pub(super) position: u64,
    pub(super) mark: Mark,
    pub(super) handles: Vec<VersionId>,
    pub(super) got: Vec<u64>,
    /// Whether it has done anything that the graph was told of.
    pub(super) has_begun: bool,
    pub(super) now: Now,
    pub(super) is_earlier: bool,
}

/// Whether a task goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    GoesOn,
    Waits,
    /// It was told of a failure.
    Fails,
}

impl Running {
    /// Returns the number of what it does next, and its position.
    fn number(&mut self) -> (CallId, u64) {
        let position = self.position;
        self.position += 1;
        (number_within(self.assignment.call, self.assignment.tries, position), position)
    }
}

impl Run {
    /// Lets a task do what it does next.
    pub(super) fn goes_on(&mut self, at: usize) {
        let script = self.scripts[self.running[at].kind].clone();
        let task = &mut self.running[at];
        let act = script.acts.get(task.done).filter(|_| task.now != Now::Fails);
        task.done += 1;
        match act {
            Some(act) => self.acts(at, act.clone()),
            None => self.ends(at, &script),
        }
    }

    fn acts(&mut self, at: usize, act: Act) {
        let has_journal = self.book.is_kept;
        let task = &mut self.running[at];
        let which = |which: Index| pick(&task.handles, which);
        match act {
            Act::Bring(value) => {
                let (id, position) = task.number();
                task.mark = task.mark.then_data(id, value);
                task.handles.push(version(id, 0));
                let (member, mark) = (task.member, task.mark);
                if task.is_earlier {
                    // It is not told of any more, so it is not kept.
                    return self.step(at, Step::Begin);
                }
                self.put(member, version(id, 0), (value, mark));
                self.step(at, Step::Bring { position, bytes: 8, content: value });
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
            // It makes calls in a run of which nobody knows them: it is run again.
            let task = self.running.swap_remove(at);
            return self.graph.returned(task.assignment.call, task.member, &[]);
        }
        let (member, execution) = (task.member, task.execution);
        if !std::mem::replace(&mut task.has_begun, true) {
            self.graph.step(member, execution, Step::Begin, None);
        }
        self.graph.step(member, execution, step, None);
    }

    fn ends(&mut self, at: usize, script: &Script) {
        let task = &self.running[at];
        let (member, has_begun) = (task.member, task.has_begun);
        let Assignment { call, mark, .. } = task.assignment;
        let mut handed_on = script.hands_on.and_then(|which| pick(&task.handles, which));
        let succeeds = !script.fails && task.now != Now::Fails;
        if has_begun && succeeds && handed_on.is_none() {
            // Nobody may see it before the calls of the task have ended.
            let own = hash((task.kind, &task.inputs[..], &task.got));
            self.acts(at, Act::Bring(own));
            handed_on = self.running[at].handles.last().copied();
        }
        if has_begun
            && succeeds
            && let Some(version) = handed_on
        {
            self.step(at, Step::HandOn(vec![(0, version)]));
        }
        let task = self.running.swap_remove(at);
        if script.fails || task.now == Now::Fails {
            let failure = Failure::new("task", call, "as it was told");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        if task.assignment.manner.once_token.is_some() {
            return self.ends_once(&task);
        }
        if handed_on.is_none() {
            let value = hash((task.kind, &task.inputs[..], &task.got));
            self.put(member, version(call, 0), (value, mark));
            if task.is_earlier {
                self.graph.holds(member, Held { version: version(call, 0), mark, bytes: 8 });
            }
        }
        assert!(handed_on.is_none() || has_begun);
        self.graph.ended(call, member, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
    }

    /// Ends a call that is not run a second time once that is recorded, and writes something else each time.
    fn ends_once(&mut self, task: &Running) {
        let Assignment { call, mark, .. } = task.assignment;
        let value = hash(("once", task.execution.number));
        if !self.book.was_brought(task.member, version(call, 0)) {
            self.put(task.member, version(call, 0), (value, mark));
        }
        // One in four is too large for the journal.
        let values = (call % 4 > 0).then(|| vec![value.to_le_bytes().to_vec()]);
        let outcome = Outcome::Durable { bytes: vec![8], ns: 1_000_000, by: task.execution.number, values };
        self.book.ends(task.member, call, mark, outcome.clone());
        self.graph.ended(call, task.member, outcome);
    }
}
