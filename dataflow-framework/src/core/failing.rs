//! What follows when calls fail, or are cancelled.

use std::{ops::Range, sync::Arc};

use super::{
    call::{Call, CallState, Failing, Manner, Origin},
    graph::Graph,
    version::{State, Version},
};
use crate::{
    failure::Failure,
    ids::CallId,
    options::{OnFailure, Options},
};

/// Why a call has failed that was cancelled.
pub(super) const CANCELLED: &str = "it was cancelled";

impl Manner {
    /// Returns whether a call is run at most once, so that it may change what it updates in place.
    pub(super) fn has_one_run(self) -> bool {
        self.failing == Failing::Nothing && !self.is_checked
    }
}

impl Graph {
    /// Returns how a call is run now.
    pub(super) fn manner(&self, id: CallId, call: &Call) -> Manner {
        let ignores = call.options.on_failure == OnFailure::Ignore;
        let failing = match ignores {
            true if self.history.is_ignored(id) => Failing::HasFailed,
            // Others may have seen what it has written, if it is made again.
            true if call.failures == call.options.retry && !self.history.has_ended(id) => Failing::Defaults,
            _ => Failing::Nothing,
        };
        let Options { timeout, isolated: is_isolated, memory_max, .. } = call.options;
        Manner {
            failing,
            timeout,
            // What has an effect, or is not a function, cannot be compared.
            is_checked: self.is_checked && !call.options.is_durable(),
            is_timed: self.observed.is_timed,
            is_isolated,
            memory_max,
            once_token: self.once_token(id, call.mark),
        }
    }

    pub(super) fn failed(&mut self, id: CallId, failure: &Failure) {
        // The calls of another try are others.
        self.nest_ends(id);
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.failures += 1;
        if call.failures <= call.options.retry {
            self.figures.retries += 1;
            self.observed.of(call.task).retries += 1;
            return self.begins_again(id);
        }
        if !self.records_failure(id, failure) {
            self.fails_for_good(id, failure);
        }
    }

    /// Ends a call that has failed, or was cancelled, and what depends on it.
    pub(super) fn fails_for_good(&mut self, id: CallId, failure: &Failure) {
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Worker;
        let on_failure = call.options.on_failure;
        let failure = self.located(id, failure.clone());
        self.has_failed(id, failure.reason());
        self.notes(id, &failure, on_failure);
        let is_cancelled = failure.reason() == CANCELLED;
        let group = if is_cancelled { None } else { self.group_to_give_up(id, on_failure) };
        self.cancel(id, &failure);
        // The call itself has failed by now, and is not cancelled.
        if let Some(group) = group {
            self.gives_up(group);
        }
    }

    /// Returns a failure of a call.
    pub(super) fn failure_of(&self, id: CallId, reason: impl Into<String>) -> Failure {
        let task = self.calls.get(&id).map_or("", |call| call.task.name);
        self.located(id, Failure::new(task, id, reason))
    }

    /// Returns the failure of a call with the path to it, if a task has made that.
    pub(super) fn located(&self, id: CallId, failure: Failure) -> Failure {
        let (mut path, mut above) = (Vec::new(), id);
        while let Some(within) = self.within(above) {
            path.push(within.position);
            above = within.parent;
        }
        if path.is_empty() {
            return failure;
        }
        path.reverse();
        failure.at(above, path)
    }

    /// Notes a failure of which the program is to be told.
    pub(super) fn notes(&mut self, id: CallId, failure: &Failure, on_failure: OnFailure) {
        // A program that begins anew cancels the call again.
        let parent = self.within(id).map(|within| within.parent);
        let nest = parent.and_then(|parent| self.nests.by_call.get_mut(&parent));
        if self.history.failure(id) != Some(CANCELLED) {
            if on_failure == OnFailure::CancelGroup {
                failure.give_group_up();
            }
            match (parent, nest) {
                (None, _) => self.failures.push(failure.clone()),
                // The task is told that has made the call.
                (Some(_), Some(nest)) => nest.failures.push(failure.clone()),
                (Some(_), None) => return,
            }
            self.observed.of(self.calls[&id].task).failed += 1;
            if on_failure == OnFailure::Fail {
                self.fatal.get_or_insert_with(|| failure.clone());
            }
        }
    }

    /// Takes in that a call has failed, and has written defaults.
    pub(super) fn ignored(&mut self, id: CallId, reason: &str) {
        let of = self.calls[&id].task;
        let task = of.name;
        // If it is made again, that was told before.
        if !self.history.is_ignored(id) {
            tracing::warn!(task, call = id, reason, "a call has failed, which is ignored");
            self.figures.ignored += 1;
            self.observed.of(of).ignored += 1;
        }
        self.is_ignored(id);
    }

    /// Ends a call without what it writes, and all calls that need it.
    pub(super) fn cancel(&mut self, id: CallId, failure: &Failure) {
        let mut cancelled = vec![id];
        while let Some(id) = cancelled.pop() {
            let Some(call) = self.calls.get_mut(&id) else { continue };
            // Whoever reads two failed versions is met twice; and one that runs has got what it reads.
            if matches!(call.state, CallState::Done | CallState::Runs(_) | CallState::Recorded) {
                continue;
            }
            call.state = CallState::Done;
            self.unfinished -= 1;
            let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
            match call.origin {
                Origin::Get(execution) => self.get_fails(execution, failure),
                Origin::Program | Origin::Task(_) => self.observed.gives_up(call.task, id),
            }
            for id in written {
                // If the call had run before, some may be there, or not be needed any more.
                let Some(version) = self.versions.get_mut(&id).filter(|version| !version.is_present()) else {
                    continue;
                };
                version.state = State::Failed(failure.clone());
                cancelled.extend(&version.readers);
            }
            self.is_over(id, &arguments);
        }
    }

    /// Cancels calls that have not begun, and what depends on them.
    pub(crate) fn cancel_all(&mut self, calls: Range<CallId>) {
        self.cancel_each(calls);
    }

    /// Cancels calls that have not begun, what depends on them, and what the tasks of others of them make.
    pub(super) fn cancel_each(&mut self, calls: impl IntoIterator<Item = CallId>) {
        for id in calls {
            if !self.can_be_cancelled(id) {
                self.cancel_within(id);
                continue;
            }
            let failure = self.failure_of(id, CANCELLED);
            self.has_failed(id, failure.reason());
            self.cancel(id, &failure);
        }
    }

    /// Returns whether a call has not begun, and never has before: others may have seen what it had written then.
    pub(super) fn can_be_cancelled(&self, id: CallId) -> bool {
        let waits = |call: &&Call| matches!(call.state, CallState::Inputs(_) | CallState::Worker);
        let Some(call) = self.calls.get(&id).filter(waits) else { return false };
        let is_present = |version| self.versions.get(&version).is_some_and(Version::is_present);
        !self.history_has(id, call.origin) && !call.written(id).any(is_present)
    }

    /// Returns whether a call has not ended.
    pub(crate) fn is_unfinished(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state != CallState::Done)
    }

    /// Returns the failures of calls.
    pub(crate) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the failure with which the program is to end at once.
    pub(crate) fn fatal(&self) -> Option<&Failure> {
        self.fatal.as_ref()
    }
}
