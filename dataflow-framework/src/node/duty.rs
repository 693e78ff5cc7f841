//! Which calls a site runs, for which run of the program, and whom it tells how they end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use super::{
    executor::Executor,
    messages::{News, Report},
    stopwatch::Timing,
    store::Store,
};
use crate::{
    core::{Held, Mark, Outcome, Seen},
    ids::{CallId, VersionId},
};

/// What the site does now.
#[derive(Default)]
pub(super) struct Duty {
    pub(super) epoch: u64,
    /// None before the first run.
    pub(super) report: Option<Weak<dyn Report>>,
    /// The calls that run, if there are other nodes to know of them.
    pub(super) running: BTreeMap<CallId, Mark>,
    /// Those that have made calls, which have to be run again in another run.
    pub(super) nesting: BTreeSet<CallId>,
    /// The calls whose ends nobody may see before they are recorded, and how they have ended.
    pub(super) unseen: BTreeMap<CallId, (Mark, Outcome)>,
    /// The versions that were brought here, of calls of which this node has another execution: it runs, or is one of
    /// those above.
    pub(super) brought: BTreeSet<VersionId>,
    /// The number of calls that have ended here for ever.
    pub(super) executions: u64,
}

/// Whether a call begins that was assigned.
pub(super) enum Begins {
    Now,
    /// Its run of the program is over.
    No,
    /// It has begun before, and that counts.
    Before,
}

impl Duty {
    /// Returns whether a call runs here, or has ended and nobody may have seen that.
    pub(super) fn has_execution(&self, call: CallId) -> bool {
        self.running.contains_key(&call) || self.unseen.contains_key(&call)
    }

    /// Forgets of which versions it is of no interest any more that they were brought here.
    fn forget_brought(&mut self) {
        let Self { running, unseen, brought, .. } = self;
        brought.retain(|version| running.contains_key(&version.call) || unseen.contains_key(&version.call));
    }

    /// Forgets the ends of calls of which something is not here any more that they have written, and the rest of that.
    pub(super) fn forget_halves(&mut self, store: &Store) {
        let Self { unseen, brought, .. } = self;
        unseen.retain(|call, (_, outcome)| {
            let Outcome::Durable { bytes, .. } = outcome else { return true };
            let versions = (0..).zip(&*bytes).map(|(slot, _)| VersionId { call: *call, slot });
            let is_whole = versions.clone().all(|version| store.has(version));
            for version in versions.filter(|version| !is_whole && !brought.contains(version)) {
                drop(store.forget(version));
            }
            is_whole
        });
        self.forget_brought();
    }
}

impl Executor {
    /// Notes that the task of a call makes calls. Returns who is told of them, and whether the run of the program is
    /// still the one that has assigned it.
    pub(super) fn nests(&self, epoch: u64, call: CallId) -> (Option<Arc<dyn Report>>, bool) {
        let mut duty = self.duty();
        let is_current = duty.epoch == epoch;
        if is_current {
            duty.nesting.insert(call);
        } else {
            duty.running.remove(&call);
        }
        let report = duty.report.as_ref().and_then(Weak::upgrade);
        (report.filter(|_| !self.is_over.load(Relaxed)), is_current)
    }

    /// Tells when a call has run, if it was timed.
    pub(super) fn tell_timing(&self, epoch: u64, timing: Timing) {
        let duty = self.duty();
        let report = duty.report.as_ref().filter(|_| duty.epoch == epoch).and_then(Weak::upgrade);
        drop(duty);
        if let Some(report) = report {
            report.tell(News::Timed(timing));
        }
    }

    /// Tells how a call has ended.
    pub(super) fn tell(&self, epoch: u64, (call, mark): (CallId, Mark), has_calls: bool, outcome: Outcome) {
        self.queue.platform.see(|| Seen::ran(call, &outcome));
        let (report, is_current) = self.ends_as(epoch, call, Some((mark, has_calls, &outcome)));
        let Some(report) = report else { return };
        if has_calls && !is_current {
            // The present run of the program does not know its calls, and has it run again.
            if let Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } = &outcome {
                let written = (0..).zip(bytes).map(|(slot, _)| VersionId { call, slot });
                written.for_each(|version| drop(self.forget(version)));
            }
            return;
        }
        // What others may not see yet is told with the end.
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

    /// Takes in that the task of a call has ended that has to be run again.
    pub(super) fn is_run_again(&self, epoch: u64, call: CallId) {
        drop(self.ends(epoch, call));
    }

    /// Forgets how calls have ended whose ends are recorded; but not of those that have written something large, since
    /// that counts only if it is theirs that was recorded.
    pub(crate) fn is_recorded(&self, is_recorded: impl Fn(CallId, Mark) -> bool) {
        let is_large = |outcome: &Outcome| matches!(outcome, Outcome::Durable { values: None, .. });
        let mut duty = self.duty();
        duty.unseen.retain(|call, (mark, outcome)| is_large(outcome) || !is_recorded(*call, *mark));
        duty.forget_brought();
    }

    /// Forgets how the call has ended whose version is not kept any more.
    pub(super) fn is_not_kept(&self, version: VersionId) {
        let mut duty = self.duty();
        duty.brought.remove(&version);
        duty.unseen.remove(&version.call);
        duty.forget_brought();
    }

    /// Notes that a call begins, unless it must not. If it runs since an earlier run of the program, that counts, and not
    /// another execution, which might write something else. The same is true if it has ended, which is being told.
    pub(super) fn begins(&self, epoch: u64, call: CallId, mark: Mark) -> Begins {
        if self.is_over.load(Relaxed) {
            return Begins::No;
        }
        if self.has_peers {
            let mut duty = self.duty();
            if duty.epoch != epoch {
                return Begins::No;
            }
            let runs = duty.running.get(&call) == Some(&mark) && !duty.nesting.contains(&call);
            if runs {
                return Begins::Before;
            }
            if let Some((of, Outcome::Durable { bytes, .. })) = duty.unseen.get(&call) {
                let versions = (0..).zip(bytes).map(|(slot, _)| VersionId { call, slot });
                if *of == mark && versions.clone().all(|version| self.store.has(version)) {
                    return Begins::Before;
                }
                // It would be taken for what is written now.
                versions.for_each(|version| drop(self.store.forget(version)));
                duty.unseen.remove(&call);
            }
            duty.brought.retain(|version| version.call != call);
            duty.running.insert(call, mark);
        }
        Begins::Now
    }

    /// Notes that a call has ended. Returns who is to be told, and whether its run of the program is the present one.
    pub(super) fn ends(&self, epoch: u64, call: CallId) -> (Option<Arc<dyn Report>>, bool) {
        self.ends_as(epoch, call, None)
    }

    /// Does the same, and keeps how it has ended if nobody may see that before it is recorded, so that it can be told
    /// again if the head is lost before. At each moment the call is in one list or in the other.
    fn ends_as(
        &self,
        epoch: u64,
        call: CallId,
        end: Option<(Mark, bool, &Outcome)>,
    ) -> (Option<Arc<dyn Report>>, bool) {
        let mut duty = self.duty();
        let is_current = duty.epoch == epoch;
        if self.has_peers {
            duty.running.remove(&call);
            if let Some((mark, has_calls, outcome @ (Outcome::Durable { .. } | Outcome::Ignored { .. }))) =
                end
                && (is_current || !has_calls)
            {
                duty.unseen.insert(call, (mark, outcome.clone()));
            }
        }
        duty.nesting.remove(&call);
        let report = duty.report.as_ref().and_then(Weak::upgrade);
        (report.filter(|_| !self.is_over.load(Relaxed)), is_current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{program::Engine, value::Value};

    const CALL: CallId = 7;

    /// Creates the site of a node of several.
    fn site() -> Executor {
        Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks)
    }

    /// Begins to serve another run of the program.
    fn begin(site: &Executor) -> u64 {
        site.begin(Weak::<Engine>::new()).epoch
    }

    /// Ends the call for ever: it has written one version, which is large.
    fn ends(site: &Executor, epoch: u64) {
        let outcome = Outcome::Durable { bytes: vec![1], ns: 0, by: 0, values: None };
        site.tell(epoch, (CALL, Mark::default()), false, outcome);
    }

    #[test]
    fn what_runs_since_an_earlier_run_is_not_begun_a_second_time() {
        let (site, mark) = (site(), Mark::default());
        let first = begin(&site);
        assert!(matches!(site.begins(first, CALL, mark), Begins::Now));
        let second = begin(&site);
        assert!(matches!(site.begins(first, CALL + 1, mark), Begins::No));
        assert!(matches!(site.begins(second, CALL, mark), Begins::Before));
        drop(site.ends(first, CALL));
        assert!(matches!(site.begins(second, CALL, mark), Begins::Now), "it has ended");
    }

    #[test]
    fn what_has_ended_for_ever_is_not_begun_a_second_time_as_long_as_it_is_there() {
        let (site, mark) = (site(), Mark::default());
        let first = begin(&site);
        assert!(matches!(site.begins(first, CALL, mark), Begins::Now));
        let version = VersionId { call: CALL, slot: 0 };
        site.put(version, Value::from_encoded(vec![1]), mark, 1);
        ends(&site, first);
        let second = begin(&site);
        assert!(matches!(site.begins(second, CALL, mark), Begins::Before));
        drop(site.store.forget(version));
        assert!(matches!(site.begins(second, CALL, mark), Begins::Now), "what it has written is lost");
    }
}
