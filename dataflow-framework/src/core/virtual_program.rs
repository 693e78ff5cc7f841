//! Programs for clusters in virtual time.

use std::collections::{BTreeMap, VecDeque};

use super::graph_tests::TASK;
use crate::{
    ids::{Argument, CallId, VersionId},
    options::Options,
    task::TaskDef,
};

/// The tasks of the calls.
pub(super) static TASKS: [TaskDef; 4] = [TASK; 4];

/// A program: its calls and waits.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) steps: VecDeque<Step>,
    pub(super) loads: BTreeMap<CallId, Load>,
    next: CallId,
    /// The number of the task of the next calls.
    pub(super) task: usize,
}

#[derive(Debug)]
pub(super) enum Step {
    Call(CallId, Vec<Argument>),
    Data(CallId, u64),
    Get(VersionId),
    Drop(VersionId),
}

/// The cost of a call.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) task: &'static TaskDef,
    pub(super) options: Options,
    pub(super) ns: u64,
    /// The size of each version that it writes.
    pub(super) bytes: Vec<u64>,
}

impl Program {
    fn number(&mut self) -> CallId {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn data(&mut self, bytes: u64) -> VersionId {
        let call = self.number();
        self.steps.push_back(Step::Data(call, bytes));
        VersionId { call, slot: 0 }
    }

    /// Calls a task of this duration, and returns the versions that it writes, which have these sizes.
    pub(super) fn call(&mut self, ns: u64, arguments: Vec<Argument>, bytes: &[u64]) -> Vec<VersionId> {
        let call = self.number();
        let updated: Vec<_> = arguments.iter().filter_map(updated).collect();
        self.steps.push_back(Step::Call(call, arguments));
        self.steps.extend(updated.into_iter().map(Step::Drop));
        let (task, options) = (&TASKS[self.task], Options::DEFAULT);
        self.loads.insert(call, Load { task, options, ns, bytes: bytes.to_vec() });
        (0..).zip(bytes).map(|(slot, _)| VersionId { call, slot }).collect()
    }

    /// Calls a task that reads these versions, and returns the one that it writes.
    pub(super) fn one(&mut self, ns: u64, reads: &[VersionId], bytes: u64) -> VersionId {
        self.call(ns, reads.iter().copied().map(Argument::Read).collect(), &[bytes])[0]
    }

    /// Calls a task that updates a version and reads others, and moves the handle on.
    pub(super) fn update(&mut self, ns: u64, of: &mut VersionId, reads: &[VersionId], bytes: u64) {
        let reads = reads.iter().copied().map(Argument::Read);
        *of = self.call(ns, [Argument::Update(*of)].into_iter().chain(reads).collect(), &[bytes])[0];
    }

    /// Reduces versions to one, neighbours first, as [`reduce`](crate::reduce) does.
    pub(super) fn reduce(&mut self, ns: u64, mut parts: Vec<VersionId>, bytes: u64) -> VersionId {
        while parts.len() > 1 {
            let pairs: Vec<_> = parts.chunks(2).map(<[_]>::to_vec).collect();
            parts = pairs
                .into_iter()
                .map(|pair| {
                    let mut first = pair[0];
                    if let Some(second) = pair.get(1) {
                        self.update(ns, &mut first, &[*second], bytes);
                        self.drop(*second);
                    }
                    first
                })
                .collect();
        }
        parts[0]
    }

    pub(super) fn drop(&mut self, version: VersionId) {
        self.steps.push_back(Step::Drop(version));
    }

    pub(super) fn get(&mut self, version: VersionId) {
        self.steps.push_back(Step::Get(version));
    }

    /// Gives options to the calls that have been made.
    pub(super) fn with(mut self, options: Options) -> Self {
        self.loads.values_mut().for_each(|load| load.options = options);
        self
    }

    pub(super) fn work_ns(&self) -> u64 {
        self.loads.values().map(|load| load.ns).sum()
    }
}

/// Returns the version that an argument updates.
pub(super) fn updated(argument: &Argument) -> Option<VersionId> {
    match argument {
        Argument::Update(version) => Some(*version),
        _ => None,
    }
}
