//! Failures and cancellations of calls.

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

/// The reason of the failure of a cancelled call.
pub(super) const CANCELLED: &str = "it was cancelled";

impl Manner {
    /// Returns whether a call runs at most once, so that it may update data in place.
    pub(super) fn has_one_run(self) -> bool {
        self.failing == Failing::Nothing && !self.is_checked
    }
}

impl Graph {
    /// Returns the way in which a call runs now.
    pub(super) fn manner(&self, id: CallId, call: &Call) -> Manner {
        let ignores = call.options.on_failure == OnFailure::Ignore;
        let failing = match ignores {
            true if self.history.is_ignored(id) => Failing::HasFailed,
            // If it is recomputed, others may have seen its output.
            true if call.failures == call.options.retry && !self.history.has_ended(id) => Failing::Defaults,
            _ => Failing::Nothing,
        };
        let Options { timeout, isolated: is_isolated, memory_max, .. } = call.options;
        Manner {
            failing,
            timeout,
            // A task with effects, or a nondeterministic one, cannot be compared.
            is_checked: self.is_checked && !call.options.is_durable(),
            is_timed: self.observed.is_timed,
            is_isolated,
            memory_max,
            once_token: self.once_token(id, call.mark),
        }
    }

    pub(super) fn failed(&mut self, id: CallId, failure: &Failure) {
        // Another try makes its own calls.
        self.nest_ends(id);
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.failures += 1;
        if call.failures <= call.options.retry {
            self.figures.retries += 1;
            self.observed.of(call.task).retries += 1;
            return self.requeue(id);
        }
        if !self.record_failure(id, failure) {
            self.fail_permanently(id, failure);
        }
    }

    /// Fails a call permanently, and the calls that depend on it.
    pub(super) fn fail_permanently(&mut self, id: CallId, failure: &Failure) {
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Worker;
        let on_failure = call.options.on_failure;
        let failure = self.located(id, failure.clone());
        self.add_failure(id, failure.reason());
        self.report_failure(id, &failure, on_failure);
        let is_cancelled = failure.reason() == CANCELLED;
        let group = if is_cancelled { None } else { self.group_to_cancel(id, on_failure) };
        self.cancel(id, &failure);
        // The call itself has failed by now, and is not cancelled.
        if let Some(group) = group {
            self.cancel_failed_group(group);
        }
    }

    pub(super) fn failure_of(&self, id: CallId, reason: impl Into<String>) -> Failure {
        let task = self.calls.get(&id).map_or("", |call| call.task.name);
        self.located(id, Failure::new(task, id, reason))
    }

    /// Returns the failure of a call, with the path to the call if a task has made it.
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

    /// Records a failure that the program must receive.
    pub(super) fn report_failure(&mut self, id: CallId, failure: &Failure, on_failure: OnFailure) {
        // A restarted program cancels the call again.
        let parent = self.within(id).map(|within| within.parent);
        let nest = parent.and_then(|parent| self.nests.by_call.get_mut(&parent));
        if self.history.failure(id) != Some(CANCELLED) {
            if on_failure == OnFailure::CancelGroup {
                failure.set_cancels_group();
            }
            match (parent, nest) {
                (None, _) => self.failures.push(failure.clone()),
                // The task that has made the call receives the failure.
                (Some(_), Some(nest)) => nest.failures.push(failure.clone()),
                (Some(_), None) => return,
            }
            self.observed.of(self.calls[&id].task).failed += 1;
            if on_failure == OnFailure::Fail {
                self.fatal.get_or_insert_with(|| failure.clone());
            }
        }
    }

    /// Handles a call that has failed and has written defaults.
    pub(super) fn ignored(&mut self, id: CallId, reason: &str) {
        let of = self.calls[&id].task;
        let task = of.name;
        // A recomputation has been logged before.
        if !self.history.is_ignored(id) {
            tracing::warn!(task, call = id, reason, "a call has failed, which is ignored");
            self.figures.ignored += 1;
            self.observed.of(of).ignored += 1;
        }
        self.add_ignored(id);
    }

    /// Fails a call without output, and all calls that need it.
    pub(super) fn cancel(&mut self, id: CallId, failure: &Failure) {
        let mut cancelled = vec![id];
        while let Some(id) = cancelled.pop() {
            let Some(call) = self.calls.get_mut(&id) else { continue };
            // A reader of two failed versions is visited twice; and a running one has its inputs.
            if matches!(call.state, CallState::Done | CallState::Runs(_) | CallState::Recorded) {
                continue;
            }
            call.state = CallState::Done;
            self.unfinished -= 1;
            let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
            match call.origin {
                Origin::Get(execution) => self.get_fails(execution, failure),
                Origin::Program | Origin::Task(_) => self.observed.record_unsuccessful(call.task, id),
            }
            for id in written {
                // If the call had run before, some versions may exist, or be no longer needed.
                let Some(version) = self.versions.get_mut(&id).filter(|version| !version.is_present()) else {
                    continue;
                };
                version.state = State::Failed(failure.clone());
                cancelled.extend(&version.readers);
            }
            self.forget_unneeded(id, &arguments);
        }
    }

    /// Cancels calls that have not started, and the calls that depend on them.
    pub(crate) fn cancel_all(&mut self, calls: Range<CallId>) {
        self.cancel_each(calls);
    }

    /// Cancels calls that have not started, the calls that depend on them, and the nested calls of the others.
    pub(super) fn cancel_each(&mut self, calls: impl IntoIterator<Item = CallId>) {
        for id in calls {
            if !self.can_be_cancelled(id) {
                self.cancel_within(id);
                continue;
            }
            let failure = self.failure_of(id, CANCELLED);
            self.add_failure(id, failure.reason());
            self.cancel(id, &failure);
        }
    }

    /// Returns whether a call has never started: others may have seen the output of an earlier run.
    pub(super) fn can_be_cancelled(&self, id: CallId) -> bool {
        let waits = |call: &&Call| matches!(call.state, CallState::Inputs(_) | CallState::Worker);
        let Some(call) = self.calls.get(&id).filter(waits) else { return false };
        let is_present = |version| self.versions.get(&version).is_some_and(Version::is_present);
        !self.history_has(id, call.origin) && !call.written(id).any(is_present)
    }

    pub(crate) fn is_unfinished(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state != CallState::Done)
    }

    pub(crate) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the failure that ends the program immediately.
    pub(crate) fn fatal(&self) -> Option<&Failure> {
        self.fatal.as_ref()
    }
}
