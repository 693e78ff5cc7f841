//! Permanent outcomes: completions of run-once calls, failures and cancellations.
//!
//! With a journal, such an outcome becomes visible only when it is recorded ([`Fact`]): dependent calls and the
//! program wait for it. Until then the call counts as running, and runs again if its member is lost.
//!
//! ```text
//!   runs ── has ended ──► small ─────────────────────────────────► Record ──► recorded ──► dependent calls
//!                └──────► large ──► a copy with another member ──► Record ──┘
//! ```
//!
//! The output of such a call is never recomputed. Small output is stored in the journal, and restored from
//! there when it is needed and no member has it. Large output stays with its members until the program ends; if
//! all of them are lost, the program fails.

use std::{ops::Range, sync::Arc};

use super::{
    call::{CallState, Outcome},
    fact::{Ended, Fact},
    failing::CANCELLED,
    graph::{Action, Graph},
    mark::Mark,
    members::Member,
    state::durable::{After, Durable, Once, Values},
    version::State,
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, VersionId},
};

impl Graph {
    /// Lets permanent outcomes be recorded.
    pub(crate) fn enable_recording(&mut self) {
        self.durable.is_on = true;
    }

    /// Sets the number that identifies the program.
    pub(crate) fn set_key(&mut self, key: u128) {
        self.durable.key = key;
    }

    /// Returns the number that identifies the program.
    pub(crate) fn key(&self) -> u128 {
        self.durable.key
    }

    /// Returns the idempotency token of a call, by which external systems detect another execution; `None` if
    /// the task may be executed repeatedly.
    pub(super) fn once_token(&self, id: CallId, mark: Mark) -> Option<u128> {
        self.calls[&id].options.is_durable().then(|| mark.token(self.durable.key, id))
    }

    /// Returns whether a call never runs again once it has completed.
    pub(super) fn is_durable(&self, call: CallId) -> bool {
        self.durable.is_on && self.calls.get(&call).is_some_and(|call| call.options.is_durable())
    }

    /// Returns whether the completion of a call is recorded, so that it does not run again.
    pub(super) fn is_permanent(&self, call: CallId) -> bool {
        self.durable.ended.contains_key(&call)
    }

    /// Returns whether a version can neither be recomputed nor restored, so that its copies must be kept.
    pub(super) fn is_precious(&self, id: VersionId) -> bool {
        matches!(self.durable.ended.get(&id.call), Some(Once { values: None, .. }))
    }

    /// Returns whether an execution of a call is the one that counts, and its output is only with members.
    pub(super) fn is_permanent_execution(&self, call: CallId, execution: u64) -> bool {
        let ended = self.durable.ended.get(&call);
        ended.is_some_and(|Once { by, values, .. }| *by == execution && values.is_none())
    }

    /// Handles the outcome of a call that is no longer assigned, if it must be recorded before it becomes
    /// visible. Returns any other outcome.
    pub(super) fn defer_until_recorded(
        &mut self,
        id: CallId,
        member: Member,
        outcome: Outcome,
    ) -> Option<Outcome> {
        if !self.durable.is_on {
            return Some(match outcome {
                Outcome::Durable { bytes, ns, .. } => Outcome::Written { bytes, ns },
                other => other,
            });
        }
        match outcome {
            Outcome::Durable { bytes, ns, by, values } => {
                self.record_duration(id, ns);
                self.settle(id, (member, by), bytes, values);
                None
            }
            Outcome::Ignored { bytes, reason } if !self.history.is_ignored(id) => {
                self.record(Fact::Ignored(id), id, After::Ignored { member, bytes, reason });
                None
            }
            other => Some(other),
        }
    }

    pub(super) fn record_end(
        &mut self,
        id: CallId,
        (members, by): (Vec<Member>, u64),
        bytes: Vec<u64>,
        values: Option<Vec<Vec<u8>>>,
    ) {
        let fact = Fact::Ended(Ended { call: id, mark: self.calls[&id].mark, by, values });
        self.record(fact, id, After::Written { members, bytes });
    }

    fn record(&mut self, fact: Fact, id: CallId, after: After) {
        self.calls.get_mut(&id).expect("it has been made").state = CallState::Recorded;
        self.durable.recording.insert(id, after);
        self.actions.push(Action::Record(fact));
    }

    /// Lets a failure be recorded before it becomes visible. Returns whether that is necessary.
    pub(super) fn record_failure(&mut self, id: CallId, failure: &Failure) -> bool {
        if self.durable.is_on {
            let fact = Fact::Failed { call: id, reason: failure.reason().to_owned() };
            self.record(fact, id, After::Failed(failure.clone()));
        }
        self.durable.is_on
    }

    /// Prepares to cancel calls that have not started: they will not start, but this becomes visible only when
    /// it is [journalled](Self::journalled). Returns the calls.
    pub(crate) fn prepare_cancellation(&mut self, calls: Range<CallId>) -> Vec<Range<CallId>> {
        let mut cancelled: Vec<Range<CallId>> = Vec::new();
        for id in calls {
            if !self.can_be_cancelled(id) {
                continue;
            }
            let call = self.calls.get_mut(&id).expect("it can be cancelled");
            call.state = CallState::Recorded;
            let failure = Failure::new(call.task.name, id, CANCELLED);
            self.durable.recording.insert(id, After::Failed(failure));
            match cancelled.last_mut() {
                Some(last) if last.end == id => last.end += 1,
                _ => cancelled.push(id..id + 1),
            }
        }
        cancelled
    }

    /// Handles a recorded fact, which may become visible from now on.
    pub(crate) fn journalled(&mut self, fact: Fact) {
        let calls = fact.calls();
        match fact {
            Fact::Ended(ended) => {
                self.durable.new.extend(Some(ended.call).filter(|_| ended.values.is_none()));
                self.on_durable(ended);
            }
            Fact::Merged { call, parts } => self.on_merge_recorded(call, parts),
            Fact::Commuted { call, with } => self.on_turn_recorded(call, with),
            Fact::Kept { .. } | Fact::History(_) => self.on_preserved(),
            _ => {}
        }
        for id in calls {
            match self.durable.recording.remove(&id) {
                Some(After::Written { members, bytes }) => {
                    self.make_outcome_permanent(id, &members, &bytes);
                    self.cut_lineage(id);
                }
                Some(After::Ignored { member, bytes, reason }) => {
                    self.ignored(id, &reason);
                    if self.members.has(member) && !self.is_any_damaged(id, member) {
                        self.written(id, member, &bytes);
                    } else {
                        // The call writes the defaults again.
                        self.discard_duplicate_output(id, member, bytes.len());
                        self.requeue(id);
                    }
                }
                Some(After::Failed(failure)) => self.fail_permanently(id, &failure),
                None => {}
            }
            self.forget_damages(id);
        }
    }

    pub(super) fn on_durable(&mut self, ended: Ended) {
        let Ended { call, mark, by, values } = ended;
        let values = values.map(|values| values.into_iter().map(Arc::from).collect::<Values>());
        let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
        if self.durable.ended.insert(call, Once { mark, by, values }).is_none() {
            self.durable.values_bytes += bytes;
        }
    }

    fn make_outcome_permanent(&mut self, id: CallId, members: &[Member], bytes: &[u64]) {
        let call = self.calls.get_mut(&id).expect("it was recorded");
        call.state = CallState::Done;
        let arguments = Arc::clone(&call.arguments);
        let versions: Vec<_> = call.written(id).collect();
        self.unfinished -= 1;
        self.add_end(id);
        for (version, bytes) in versions.iter().zip(bytes) {
            for member in members {
                if self.members.has(*member) && !self.durable.damaged.contains(&(*version, *member)) {
                    self.on_present(*version, *member, *bytes);
                }
            }
            // The version may be lost or damaged by now.
            let known = self.versions.get_mut(version).map(|version| &mut version.state);
            if let Some(state @ State::Awaited) = known {
                *state = State::Gone;
            }
        }
        self.forget_unneeded(id, &arguments);
        for version in versions {
            let known = self.versions.get(&version);
            if known.is_some_and(|known| known.is_awaited() && matches!(known.state, State::Gone)) {
                self.make_again(version);
            }
        }
    }

    /// Notes that a version on a member is no longer readable, if its call has completed and that is not
    /// recorded.
    pub(super) fn on_unrecorded_output_corrupt(&mut self, id: VersionId, member: Member) {
        let Durable { recording, settling, early, damaged, .. } = &mut self.durable;
        let call = &id.call;
        if recording.contains_key(call) || settling.contains_key(call) || early.contains_key(call) {
            damaged.insert((id, member));
        }
    }

    fn is_any_damaged(&self, call: CallId, member: Member) -> bool {
        let of_call = VersionId { call, slot: 0 }..VersionId { call: call + 1, slot: 0 };
        let all = (of_call.start, Member::HERE)..(of_call.end, Member::HERE);
        self.durable.damaged.range(all).any(|(_, on)| *on == member)
    }

    /// Forgets the damage to output of a call that occurred before its completion was recorded.
    pub(super) fn forget_damages(&mut self, call: CallId) {
        if !self.durable.damaged.is_empty() {
            self.durable.damaged.retain(|(version, _)| version.call != call);
        }
    }

    pub(super) fn forget_damages_on(&mut self, member: Member) {
        self.durable.damaged.retain(|(_, on)| *on != member);
    }

    /// Forgets the data that was needed only to run a call again, if it never runs again.
    pub(super) fn cut_lineage(&mut self, id: CallId) {
        if !self.durable.ended.contains_key(&id) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        let arguments = std::mem::replace(&mut call.arguments, Arc::new([]));
        for version in arguments.iter().flat_map(Argument::versions) {
            self.version_mut(*version).dependants -= 1;
            self.forget_unless_needed(*version);
        }
    }

    /// Restores a lost version from the journal if its call must not run again. Returns whether that is so.
    pub(super) fn restore(&mut self, id: VersionId) -> bool {
        let Some(Once { mark, values, .. }) = self.durable.ended.get(&id.call) else { return false };
        let value = values.as_ref().and_then(|values| values.get(id.slot as usize));
        let Some(value) = value else {
            let task = self.calls.get(&id.call).map_or("", |call| call.task.name);
            let reason = "what it has written was with nodes that are lost, and it must not run again, since it has an \
                          effect or might write something else: it is larger than what goes to the journal";
            let failure = Failure::new(task, id.call, reason);
            self.fatal.get_or_insert(failure);
            return true;
        };
        let (mark, value) = (*mark, Arc::clone(value));
        let bytes = value.len() as u64;
        self.actions.push(Action::Restore { version: id, mark, value });
        self.on_present(id, Member::HERE, bytes);
        true
    }
}
