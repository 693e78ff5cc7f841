//! Statistics of calls for observers: the number and cost of the calls of each task; and optionally their
//! dependencies.

use dataflow_view::{CALLS_MAX, Call, Calls, FAILURES_MAX, FailedCall, READS_MAX, State, TaskSummary};
use rustc_hash::FxHashMap;

use super::seen::Seen;
use crate::{failure::Failure, figures::Figures, ids::CallId, task::TaskDef};

/// The statistics of the calls of a program.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(super) figures: Figures,
    /// Events that the observer has not seen yet; `None` without an observer.
    seen: Option<Vec<Seen>>,
    tallies: Vec<Tally>,
    /// The first failed calls.
    failures: Vec<FailedCall>,
    /// Set if the graph of calls is recorded.
    recording: Option<Recording>,
    /// Whether the timing of each call is reported.
    pub(crate) is_timed: bool,
}

/// The counts of the calls of a task.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) task: &'static TaskDef,
    pub(super) made: u64,
    /// The number of calls that failed, or were cancelled with others.
    pub(super) given_up: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    pub(super) retries: u64,
    pub(super) repeated: u64,
    /// The number of calls with an output from a cache.
    pub(super) cached: u64,
    runs: u64,
    total_ns: u64,
    max_ns: u64,
    pub(super) moved_bytes: u64,
}

/// The calls in the order in which they were made.
#[derive(Debug, Default)]
struct Recording {
    calls: Vec<Call>,
    /// The positions by call number; those of nested calls are in any order.
    positions: FxHashMap<CallId, usize>,
    reads: Vec<(u32, u32)>,
    omitted: u64,
}

impl Observed {
    pub(crate) fn keep_seen(&mut self) {
        self.seen = Some(Vec::new());
    }

    pub(super) fn see(&mut self, seen: Seen) {
        if let Some(kept) = &mut self.seen {
            kept.push(seen);
        }
    }

    pub(crate) fn take_seen(&mut self) -> Vec<Seen> {
        self.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Enables recording the graph of calls, or reporting their timing.
    pub(crate) fn observe(&mut self, records: bool, times: bool) {
        if records {
            self.recording.get_or_insert_default();
        }
        self.is_timed = times;
    }

    pub(super) fn of(&mut self, task: &'static TaskDef) -> &mut Tally {
        let index = self.index(task);
        &mut self.tallies[index]
    }

    pub(super) fn index(&mut self, task: &'static TaskDef) -> usize {
        let is_it = |tally: &Tally| (tally.task.name, tally.task.module) == (task.name, task.module);
        self.tallies.iter().position(is_it).unwrap_or_else(|| {
            self.tallies.push(Tally::new(task));
            self.tallies.len() - 1
        })
    }

    /// Records a call, its level, and the calls that write its inputs.
    pub(super) fn called(
        &mut self,
        task: &'static TaskDef,
        id: CallId,
        level: u64,
        inputs: impl Iterator<Item = CallId>,
    ) {
        let index = self.index(task);
        self.tallies[index].made += 1;
        if let Some(recording) = &mut self.recording {
            recording.add(index, id, level, inputs);
        }
    }

    pub(super) fn record_failure(&mut self, task: &'static TaskDef, failure: &Failure) {
        self.of(task).failed += 1;
        if self.failures.len() < FAILURES_MAX {
            let failed = FailedCall::new(failure.call(), failure.path(), failure.task(), failure.reason());
            self.failures.push(failed);
        }
    }

    pub(super) fn failures(&self) -> &[FailedCall] {
        &self.failures
    }

    pub(super) fn record_unsuccessful(&mut self, task: &'static TaskDef, id: CallId) {
        self.of(task).given_up += 1;
        let recording = self.recording.as_mut();
        if let Some((recording, index)) = recording.and_then(|it| it.position(id).map(|index| (it, index))) {
            recording.calls[index].state = State::Failed;
        }
    }

    /// Returns the recorded calls, with the current states of some; `None` if they were not recorded.
    pub(super) fn calls(&self, states: impl Iterator<Item = (CallId, State)>) -> Option<Calls> {
        let recording = self.recording.as_ref()?;
        let mut calls = recording.calls.clone();
        for (id, state) in states {
            if let Some(index) = recording.position(id) {
                calls[index].state = state;
            }
        }
        let reads = recording.reads.clone();
        Some(Calls { tasks: self.names(), calls, reads, omitted: recording.omitted })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tallies.iter().map(|tally| tally.task.name.to_owned()).collect()
    }

    /// Returns the counts, for each task with the numbers of its calls that wait, are ready, and run.
    pub(super) fn summaries(&self, unfinished: &[[u64; 3]]) -> Vec<TaskSummary> {
        let unfinished = unfinished.iter().copied().chain(std::iter::repeat([0; 3]));
        self.tallies.iter().zip(unfinished).map(|(tally, unfinished)| tally.summary(unfinished)).collect()
    }
}

impl Tally {
    fn new(task: &'static TaskDef) -> Self {
        Self {
            task,
            made: 0,
            given_up: 0,
            failed: 0,
            ignored: 0,
            retries: 0,
            repeated: 0,
            cached: 0,
            runs: 0,
            total_ns: 0,
            max_ns: 0,
            moved_bytes: 0,
        }
    }

    pub(super) fn ran(&mut self, ns: u64) {
        self.runs += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    fn summary(&self, [waiting, ready, running]: [u64; 3]) -> TaskSummary {
        TaskSummary {
            task: self.task.name.to_owned(),
            waiting,
            ready,
            running,
            ended: self.made.saturating_sub(waiting + ready + running + self.given_up),
            failed: self.failed,
            cancelled: self.given_up.saturating_sub(self.failed),
            ignored: self.ignored,
            retries: self.retries,
            repeated: self.repeated,
            cached: self.cached,
            runs: self.runs,
            total_ns: self.total_ns,
            max_ns: self.max_ns,
            moved_bytes: self.moved_bytes,
        }
    }
}

impl Recording {
    fn add(&mut self, task: usize, number: CallId, level: u64, inputs: impl Iterator<Item = CallId>) {
        // A task that runs again repeats calls whose output was no longer needed.
        if self.positions.contains_key(&number) {
            return;
        }
        if self.calls.len() >= CALLS_MAX || self.reads.len() >= READS_MAX {
            self.omitted += 1;
            return;
        }
        let reader = u32::try_from(self.calls.len()).expect("there are few enough");
        let writers = inputs.filter_map(|input| self.position(input));
        let reads: Vec<_> =
            writers.filter_map(|writer| Some((u32::try_from(writer).ok()?, reader))).collect();
        self.reads.extend(reads);
        self.positions.insert(number, self.calls.len());
        self.calls.push(Call {
            number,
            task: u16::try_from(task).unwrap_or(u16::MAX),
            level: u32::try_from(level).unwrap_or(u32::MAX),
            // The graph knows the unfinished calls.
            state: State::Ended,
        });
    }

    /// Returns the position of a call; `None` if it is not recorded, or the number is that of data.
    fn position(&self, id: CallId) -> Option<usize> {
        self.positions.get(&id).copied()
    }
}
