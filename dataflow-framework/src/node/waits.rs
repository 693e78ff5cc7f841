//! What the tasks that run here wait for: the values of calls that they have made, and the ends of those.

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

/// What a task is given that waits.
#[derive(Debug)]
pub(crate) enum Given {
    Value(Value),
    /// It is not here, although it should be: this call was to read it.
    Missing(CallId, VersionId),
    /// Or the value will never be there.
    Failed(Failure),
    /// Its calls have ended; the first failure of which it is told.
    Ended(Option<Failure>),
    /// It is of no use any more, and should end.
    Over,
}

/// What the tasks that run here wait for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What was given to each task that makes calls, or is waited for.
    by_task: BTreeMap<Execution, Option<Given>>,
    /// The number of the last execution.
    last: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in that the task of a call begins to make calls.
    pub(crate) fn begin(&self, call: CallId) -> Execution {
        let mut state = self.lock();
        state.last += 1;
        let execution = Execution { call, number: state.last };
        state.by_task.insert(execution, None);
        execution
    }

    /// Takes in that a task has ended, or is to.
    pub(crate) fn end(&self, execution: Execution) {
        self.lock().by_task.remove(&execution);
        self.changed.notify_all();
    }

    /// Takes in that the task of a call is to end.
    pub(crate) fn end_of(&self, call: CallId) {
        self.lock().by_task.retain(|execution, _| execution.call != call);
        self.changed.notify_all();
    }

    /// Ends all tasks that make calls, once they wait or make the next one.
    pub(crate) fn end_all(&self) {
        self.lock().by_task.clear();
        self.changed.notify_all();
    }

    /// Returns whether a task is to go on.
    pub(crate) fn goes_on(&self, execution: Execution) -> bool {
        self.lock().by_task.contains_key(&execution)
    }

    /// Gives something to a task.
    pub(crate) fn give(&self, execution: Execution, given: Given) {
        if let Some(place) = self.lock().by_task.get_mut(&execution) {
            *place = Some(given);
            self.changed.notify_all();
        }
    }

    /// Takes in what was decided on something for which a task waits.
    pub(crate) fn answer(&self, execution: Execution, answer: Answer) {
        match answer {
            Answer::Failed(failure) => self.give(execution, Given::Failed(failure.into())),
            Answer::Ended(failure) => self.give(execution, Given::Ended(failure.map(Into::into))),
            Answer::Over => self.end(execution),
        }
    }

    /// Returns what was given to a task, if that is there.
    pub(crate) fn given(&self, execution: Execution) -> Option<Given> {
        match self.lock().by_task.get_mut(&execution) {
            Some(place) => place.take(),
            None => Some(Given::Over),
        }
    }

    /// Waits for what is given to a task.
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
