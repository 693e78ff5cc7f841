//! Facts that an engine writes to the journal before their effects are visible, and facts that it restores from
//! there.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use super::{
    engine::{Awaited, Engine},
    records::Decided,
};
use crate::{
    core::{Choice, Decision, Estimate, Fact, Held, Mark, Member},
    ids::{CallId, VersionId},
    value::Value,
};

/// Hints for a later run of the program. They do not affect its result.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Marks with which the later run is compared.
    marks: Vec<(CallId, Mark)>,
    /// The durations of tasks, by their numbers.
    durations: Vec<(u32, Estimate)>,
}

impl Engine {
    /// Restores the facts of earlier runs from the journal, before the program starts. `key` identifies the
    /// program.
    pub(crate) fn recall(&self, key: u128, facts: Vec<Fact>, Note { marks, durations }: Note) {
        self.change_state(|state| {
            state.graph.journal().set_key(key);
            state.graph.replay().recall_marks(marks);
            if let Some(tasks) = &self.executor.tasks {
                state.graph.durations().recall(tasks, durations);
            }
            for fact in facts {
                match fact {
                    Fact::Kept { version, mark, value } => {
                        let bytes = value.len() as u64;
                        self.executor.put_brought(version, Value::from_encoded(value), mark, bytes);
                        state.graph.on_held(Member::HERE, Held { version, mark, bytes });
                    }
                    Fact::Decided(decision) => {
                        state.records.recall(decision.clone());
                        state.graph.recall(Fact::Decided(decision));
                    }
                    fact => state.graph.recall(fact),
                }
            }
        });
    }

    /// Returns the number that identifies the program.
    pub(crate) fn key(&self) -> u128 {
        self.lock().graph.journal().key()
    }

    /// Returns the next facts to write to the journal. [`on_written`](Self::on_written) confirms them.
    pub(crate) fn records(&self) -> Vec<Fact> {
        self.lock().records.begin()
    }

    /// Returns whether there are facts to write, and whether the program, or a call that could start, waits for
    /// them.
    pub(crate) fn pending_records(&self) -> (bool, bool) {
        let state = self.lock();
        let program_waits = matches!(state.awaited, Some(Awaited::Recorded(_)));
        let is_urgent = program_waits || state.graph.waits_for_record() || self.may_go.load(Relaxed);
        (!state.records.is_empty(), is_urgent)
    }

    /// Confirms that the facts are written: from now on their effects may be visible.
    pub(crate) fn on_written(&self) {
        let mut recorded = Vec::new();
        self.change_state(|state| {
            for fact in state.records.end() {
                recorded.extend(fact.calls());
                state.graph.journalled(fact);
            }
        });
        recorded.sort_unstable();
        self.executor.remove_recorded(|call, _| recorded.binary_search(&call).is_ok());
    }

    /// Returns facts that summarize everything written so far.
    pub(crate) fn written_so_far(&self) -> Vec<Fact> {
        let state = self.lock();
        let of_calls = state.graph.recorded_so_far().into_iter();
        of_calls.chain(state.records.decisions()).chain(state.records.kept()).collect()
    }

    /// Returns a note for a later run of the program, if it has changed since the last time.
    pub(crate) fn note(&self) -> Option<Note> {
        let graph = &mut self.lock().graph;
        let has_learnt = graph.durations().has_changed();
        let marks = graph.replay().marks(has_learnt)?;
        let durations = self.executor.tasks.as_deref().map(|tasks| graph.durations().take(tasks));
        Some(Note { marks, durations: durations.unwrap_or_default() })
    }

    /// Returns the recorded decision at this point, or makes it now and continues once it is recorded. An error
    /// is not recorded. `at` is the number of the program's next call.
    pub(crate) fn decide<E>(
        &self,
        at: CallId,
        what: &str,
        choose: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        if self.others.is_none() {
            return choose();
        }
        match self.decided(at, what) {
            Ok(Choice::Value(value)) => Ok(value),
            Ok(Choice::Cancelled(_)) => Ok(Vec::new()),
            Err(number) => {
                let value = choose()?;
                let what = what.to_owned();
                self.record(Decision { number, at, what, choice: Choice::Value(value.clone()) });
                Ok(value)
            }
        }
    }

    /// Returns the recorded decision, or the number of a new one.
    fn decided(&self, at: CallId, what: &str) -> Result<Choice, u64> {
        self.end_if_stopped();
        let mut state = self.lock();
        match state.records.decided(at, what) {
            Decided::Now(number) => Err(number),
            Decided::Before(choice) => Ok(choice),
            Decided::Otherwise(before) => {
                let was = format!("`{}` before call {}", before.what, before.at);
                state.is_halted = true;
                state.differs.get_or_insert_with(|| {
                    format!("it asked for {was} before, and now asks for `{what}` before call {at}")
                });
                drop(state);
                self.end_if_stopped();
                unreachable!("it is stopped")
            }
        }
    }

    /// Records a decision, and waits until it is written.
    fn record(&self, decision: Decision) {
        let number = self.change_state(|state| state.records.decide(decision));
        self.flush();
        drop(self.wait(self.running(), Awaited::Recorded(number)));
    }

    /// Cancels the calls between these numbers.
    pub(crate) fn cancel(&self, at: CallId, calls: Range<CallId>) {
        self.end_if_stopped();
        if self.others.is_none() {
            return self.change(|graph| graph.cancel_all(calls));
        }
        // Calls that an earlier run cancelled have failed when they were made.
        if let Err(number) = self.decided(at, "cancel") {
            let told = self.change_state(|state| {
                let cancelled = state.graph.prepare_cancellation(calls);
                let choice = Choice::Cancelled(cancelled);
                state.records.decide(Decision { number, at, what: "cancel".to_owned(), choice })
            });
            self.flush();
            drop(self.wait(self.running(), Awaited::Recorded(told)));
        }
    }

    /// Returns whether a version is available or has failed.
    pub(crate) fn is_ready(&self, version: VersionId) -> bool {
        self.end_if_stopped();
        self.change(|graph| graph.has_outcome(version))
    }

    /// Waits until one of the versions is available or has failed, and returns the index of the first.
    pub(crate) fn wait_any(&self, versions: &[VersionId]) -> usize {
        let mut state = self.wait(self.running(), Awaited::Any(versions.to_vec()));
        let ready = versions.iter().position(|version| state.graph.has_outcome(*version));
        ready.expect("one of them was ready")
    }

    /// Returns the decision in which the program differs from its earlier run.
    pub(crate) fn decision_divergence(&self) -> Option<String> {
        self.lock().differs.clone()
    }
}
