//! The waits of the tasks that run here: for the values or the completion of the calls that they have made.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    core::Answer,
    failure::Failure,
    ids::{CallId, Execution, VersionId},
    value::Value,
};

/// The result of a wait.
#[derive(Debug)]
pub(crate) enum Given {
    Value(Value),
    /// The value is not here although it should be: it was an input of this internal call.
    Missing(CallId, VersionId),
    /// The value will never exist.
    Failed(Failure),
    /// The calls have ended; with the first failure that the task has not seen.
    Ended(Option<Failure>),
    /// The execution is obsolete: its task should stop.
    Over,
}

/// The pending waits of the tasks that run here.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The result of the current wait of each task that makes calls, once it is known.
    by_task: BTreeMap<Execution, Option<Given>>,
    /// The number of the last execution.
    last: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an execution of a call whose task makes calls.
    pub(crate) fn begin(&self, call: CallId) -> Execution {
        let mut state = self.lock();
        state.last += 1;
        let execution = Execution { call, number: state.last };
        state.by_task.insert(execution, None);
        execution
    }

    /// Ends an execution; if its task still runs, it stops at its next wait or call.
    pub(crate) fn end(&self, execution: Execution) {
        self.lock().by_task.remove(&execution);
        self.changed.notify_all();
    }

    /// Ends all executions of a call.
    pub(crate) fn end_of(&self, call: CallId) {
        self.lock().by_task.retain(|execution, _| execution.call != call);
        self.changed.notify_all();
    }

    pub(crate) fn end_all(&self) {
        self.lock().by_task.clear();
        self.changed.notify_all();
    }

    /// Returns whether the execution is still needed.
    pub(crate) fn is_active(&self, execution: Execution) -> bool {
        self.lock().by_task.contains_key(&execution)
    }

    /// Delivers the result of a wait.
    pub(crate) fn give(&self, execution: Execution, given: Given) {
        if let Some(place) = self.lock().by_task.get_mut(&execution) {
            *place = Some(given);
            self.changed.notify_all();
        }
    }

    /// Delivers a decision of the graph.
    pub(crate) fn answer(&self, execution: Execution, answer: Answer) {
        match answer {
            Answer::Failed(failure) => self.give(execution, Given::Failed(failure.into())),
            Answer::Ended(failure) => self.give(execution, Given::Ended(failure.map(Into::into))),
            Answer::Over => self.end(execution),
        }
    }

    /// Takes the result of a wait, if it is known.
    pub(crate) fn given(&self, execution: Execution) -> Option<Given> {
        match self.lock().by_task.get_mut(&execution) {
            Some(place) => place.take(),
            None => Some(Given::Over),
        }
    }

    pub(crate) fn wait(&self, execution: Execution) -> Given {
        let mut state = self.lock();
        loop {
            match state.by_task.get_mut(&execution) {
                None => return Given::Over,
                Some(place) => {
                    if let Some(given) = place.take() {
                        return given;
                    }
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
