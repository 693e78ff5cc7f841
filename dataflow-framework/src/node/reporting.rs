//! The start and the end of calls on an executor, and the reporting of their outcomes.

use std::sync::{Arc, Weak, atomic::Ordering::Relaxed};

use super::{
    assignments::Begins,
    executor::Executor,
    messages::{News, Report, Returned},
    stopwatch::Timing,
};
use crate::{
    core::{Held, How, Mark, Outcome, Seen},
    ids::{CallId, VersionId},
};

impl Executor {
    /// Records that the task of a call makes calls. Returns the receiver of reports, and whether the run of the
    /// program that assigned the call is the current one.
    pub(super) fn record_nesting(&self, epoch: u64, call: CallId) -> (Option<Arc<dyn Report>>, bool) {
        let mut assignments = self.assignments();
        let is_current = assignments.epoch == epoch;
        if is_current {
            assignments.nesting.insert(call);
        } else {
            assignments.running.remove(&call);
        }
        let report = assignments.report.as_ref().and_then(Weak::upgrade);
        (report.filter(|_| !self.is_over.load(Relaxed)), is_current)
    }

    pub(super) fn report_timing(&self, epoch: u64, timing: Timing) {
        let assignments = self.assignments();
        let report =
            assignments.report.as_ref().filter(|_| assignments.epoch == epoch).and_then(Weak::upgrade);
        drop(assignments);
        if let Some(report) = report {
            report.tell(News::Timed(timing));
        }
    }

    pub(super) fn report_outcome(
        &self,
        epoch: u64,
        (call, mark): (CallId, Mark),
        has_calls: bool,
        outcome: Outcome,
    ) {
        self.queue.platform.see(|| Seen::ran(call, &outcome));
        let (report, is_current) = self.end_call_as(epoch, call, Some((mark, has_calls, &outcome)));
        let Some(report) = report else { return };
        if has_calls && !is_current {
            // The current run of the program does not know the nested calls, and runs the call again.
            if let Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } = &outcome {
                let written = (0..).zip(bytes).map(|(slot, _)| VersionId { call, slot });
                written.for_each(|version| drop(self.forget(version)));
            }
            return;
        }
        // Versions that the new run does not know are reported with the outcome.
        if let Outcome::Written { bytes, .. } = &outcome
            && !is_current
        {
            let held = |(slot, bytes): (u32, &u64)| {
                let version = VersionId { call, slot };
                Held { version, mark, bytes: *bytes }
            };
            report.tell(News::Holds((0..).zip(bytes).map(held).collect()));
        }
        report.tell(News::ended(call, outcome));
    }

    /// Cancels a call that was assigned to this node. Returns it if it has not started; otherwise it is returned to the
    /// coordinator when it has ended.
    pub(crate) fn cancel(&self, call: CallId) -> Option<Returned> {
        // A call whose last input has just arrived is found neither in `fetches` nor in `queue`.
        if self.has_peers {
            self.assignments().cancelled.insert(call);
        }
        let waiting = self.fetches().take(call);
        let waiting = waiting.map_or_else(|| self.queue.cancel(call), Ok);
        if !matches!(waiting, Err(false)) {
            self.assignments().cancelled.remove(&call);
        }
        // If its task waits for calls that it has made, it stops.
        self.waits.end_of(call);
        waiting.ok().map(|assignment| self.give_back(&assignment))
    }

    /// Reports that a cancelled call has ended.
    pub(super) fn report_cancelled(&self, epoch: u64, call: CallId) {
        self.see(|| Seen::Ran { call, how: How::Cancelled });
        let (report, _) = self.end_call(epoch, call);
        if let Some(report) = report {
            report.tell(News::Returned { call, unchanged: Vec::new() });
        }
    }

    /// Records the end of a task that has to be run again.
    pub(super) fn end_for_rerun(&self, epoch: u64, call: CallId) {
        drop(self.end_call(epoch, call));
    }

    /// Removes the recorded outcomes. The outcomes of calls with a large output stay: the output is valid only if it
    /// was this execution's outcome that was recorded.
    pub(crate) fn remove_recorded(&self, is_recorded: impl Fn(CallId, Mark) -> bool) {
        let is_large = |outcome: &Outcome| matches!(outcome, Outcome::Durable { values: None, .. });
        let mut assignments = self.assignments();
        assignments.unseen.retain(|call, (mark, outcome)| is_large(outcome) || !is_recorded(*call, *mark));
        assignments.forget_brought();
    }

    /// Removes the outcome of the call whose version is removed.
    pub(super) fn forget_outcome_of(&self, version: VersionId) {
        let mut assignments = self.assignments();
        assignments.brought.remove(&version);
        assignments.unseen.remove(&version.call);
        assignments.forget_brought();
    }

    /// Records that a call starts, if it may. If an execution from an earlier run of the program is still running,
    /// that one is used: another one could have a different output. The same holds if that execution has completed
    /// and is being reported.
    pub(super) fn start_call(&self, epoch: u64, call: CallId, mark: Mark) -> Begins {
        if self.is_over.load(Relaxed) {
            return Begins::No;
        }
        if self.has_peers {
            let mut assignments = self.assignments();
            if assignments.epoch != epoch {
                return Begins::No;
            }
            let runs = assignments.running.get(&call) == Some(&mark) && !assignments.nesting.contains(&call);
            // A cancelled execution reports no outcome.
            if runs && !self.queue.is_stopping(call) {
                return Begins::Before;
            }
            if let Some((of, Outcome::Durable { bytes, .. })) = assignments.unseen.get(&call) {
                let versions = (0..).zip(bytes).map(|(slot, _)| VersionId { call, slot });
                if *of == mark && versions.clone().all(|version| self.store.has(version)) {
                    return Begins::Before;
                }
                // It would be mistaken for the new output.
                versions.for_each(|version| drop(self.store.forget(version)));
                assignments.unseen.remove(&call);
            }
            assignments.brought.retain(|version| version.call != call);
            assignments.running.insert(call, mark);
            if assignments.cancelled.remove(&call) {
                return Begins::Cancelled;
            }
        }
        Begins::Now
    }

    /// Records that a call has ended. Returns the receiver of the report, and whether the run of the program that
    /// assigned the call is the current one.
    pub(super) fn end_call(&self, epoch: u64, call: CallId) -> (Option<Arc<dyn Report>>, bool) {
        self.end_call_as(epoch, call, None)
    }

    /// Records that a call has ended, and keeps an outcome that takes effect only when it is recorded, so that it can be
    /// reported again if the coordinator is lost before. At any time the call is in exactly one of `running` and
    /// `unseen`.
    fn end_call_as(
        &self,
        epoch: u64,
        call: CallId,
        end: Option<(Mark, bool, &Outcome)>,
    ) -> (Option<Arc<dyn Report>>, bool) {
        let mut assignments = self.assignments();
        let is_current = assignments.epoch == epoch;
        if self.has_peers {
            assignments.running.remove(&call);
            if let Some((mark, has_calls, outcome @ (Outcome::Durable { .. } | Outcome::Ignored { .. }))) =
                end
                && (is_current || !has_calls)
            {
                assignments.unseen.insert(call, (mark, outcome.clone()));
            }
        }
        assignments.nesting.remove(&call);
        let report = assignments.report.as_ref().and_then(Weak::upgrade);
        (report.filter(|_| !self.is_over.load(Relaxed)), is_current)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::store::Store, *};
    use crate::{program::Engine, value::Value};

    const CALL: CallId = 7;

    /// Creates the executor of a node with peers.
    fn executor() -> Executor {
        Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks)
    }

    /// Starts another run of the program.
    fn begin(executor: &Executor) -> u64 {
        executor.begin(Weak::<Engine>::new()).epoch
    }

    /// Completes the call permanently, with one large version as output.
    fn complete(executor: &Executor, epoch: u64) {
        let outcome = Outcome::Durable { bytes: vec![1], ns: 0, by: 0, values: None };
        executor.report_outcome(epoch, (CALL, Mark::default()), false, outcome);
    }

    #[test]
    fn running_call_of_earlier_run_is_not_started_again() {
        let (executor, mark) = (executor(), Mark::default());
        let first = begin(&executor);
        assert!(matches!(executor.start_call(first, CALL, mark), Begins::Now));
        let second = begin(&executor);
        assert!(matches!(executor.start_call(first, CALL + 1, mark), Begins::No));
        assert!(matches!(executor.start_call(second, CALL, mark), Begins::Before));
        drop(executor.end_call(first, CALL));
        assert!(
            matches!(executor.start_call(second, CALL, mark), Begins::Now),
            "the first execution has ended"
        );
    }

    #[test]
    fn permanently_completed_call_is_not_started_again_while_its_output_exists() {
        let (executor, mark) = (executor(), Mark::default());
        let first = begin(&executor);
        assert!(matches!(executor.start_call(first, CALL, mark), Begins::Now));
        let version = VersionId { call: CALL, slot: 0 };
        executor.put(version, Value::from_encoded(vec![1]), mark, 1);
        complete(&executor, first);
        let second = begin(&executor);
        assert!(matches!(executor.start_call(second, CALL, mark), Begins::Before));
        drop(executor.store.forget(version));
        assert!(matches!(executor.start_call(second, CALL, mark), Begins::Now), "its output is lost");
    }
}
