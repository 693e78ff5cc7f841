//! The journal of a random program, and the outputs of run-once calls that were seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{Fact, Graph, Mark, Member, Outcome, graph_tests::version},
    ids::{CallId, VersionId},
};

/// An outcome of a call, reported by a member.
pub(super) type End = (Member, CallId, Mark, Outcome);

/// The permanent outcomes.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Whether there is a journal.
    pub(super) is_kept: bool,
    /// The written records.
    facts: Vec<Fact>,
    /// The records to be written.
    pub(super) waiting: Vec<Fact>,
    /// The calls with a recorded completion, which must not run again.
    recorded: BTreeSet<CallId>,
    /// The unrecorded outcomes that are invisible until they are recorded, by the member that reported them.
    unseen: Vec<End>,
    /// Copies on members that have another execution of the same call, running or unrecorded.
    brought: BTreeSet<(Member, VersionId)>,
    /// The calls with a different output in each execution.
    once: BTreeSet<CallId>,
    /// The outputs of run-once calls that were seen or recorded.
    seen: BTreeMap<CallId, u64>,
}

impl Book {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// Reports the records of the journal to a graph.
    pub(super) fn recall(&self, graph: &mut Graph) {
        if self.is_kept {
            graph.journal().enable();
            self.facts.iter().for_each(|fact| graph.recall(fact.clone()));
        }
    }

    /// Writes all pending records.
    pub(super) fn write(&mut self, graph: &mut Graph) {
        for fact in std::mem::take(&mut self.waiting) {
            self.add(fact.clone());
            graph.journalled(fact);
        }
    }

    fn add(&mut self, fact: Fact) {
        if let Fact::Ended(ended) = &fact {
            self.recorded.insert(ended.call);
            let value = ended.values.iter().flatten().next();
            if let Some(value) = value {
                let value = u64::from_le_bytes(value[..].try_into().expect("it is a number"));
                self.record_seen(version(ended.call, 0), value);
            }
        }
        self.facts.push(fact);
    }

    /// Loses the member of the program, after this number of pending records was written.
    pub(super) fn interrupt(&mut self, written: usize) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().take(written).for_each(|fact| self.add(fact));
        self.on_lost(Member::HERE);
    }

    /// Records the assignment of a call. The output of a run-once call differs in each execution.
    pub(super) fn on_assigned(&mut self, call: CallId, is_once: bool) {
        if is_once {
            assert!(!self.recorded.contains(&call), "{call} runs although its completion is recorded");
            self.once.insert(call);
        }
    }

    /// Records that an output was seen, and checks that every reader sees the same value.
    pub(super) fn record_seen(&mut self, version: VersionId, value: u64) {
        let call = version.call;
        if self.is_kept && self.once.contains(&call) {
            assert!(self.recorded.contains(&call), "{version:?} is seen before it is recorded");
            let before = *self.seen.entry(call).or_insert(value);
            assert_eq!(before, value, "{version:?} differs from its earlier value");
        }
    }

    /// Returns the outputs that were seen, if there is a journal.
    pub(super) fn seen(&self) -> Option<&BTreeMap<CallId, u64>> {
        self.is_kept.then_some(&self.seen)
    }

    /// Adds an outcome that is invisible until it is recorded.
    pub(super) fn add_unseen(&mut self, member: Member, call: CallId, mark: Mark, outcome: Outcome) {
        self.unseen.push((member, call, mark, outcome));
    }

    /// Removes the unrecorded outcome of a call from a member that has forgotten the output.
    pub(super) fn on_forgotten(&mut self, member: Member, version: VersionId) {
        self.unseen.retain(|(of, call, ..)| (*of, *call) != (member, version.call));
        self.brought.remove(&(member, version));
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        self.unseen.retain(|(of, ..)| *of != member);
        self.brought.retain(|(to, _)| *to != member);
    }

    /// Returns whether a member's version does not come from an execution with an unrecorded outcome.
    pub(super) fn is_seen(&self, member: Member, version: VersionId) -> bool {
        let is_it = |(of, call, ..): &End| (*of, *call) == (member, version.call);
        self.brought.contains(&(member, version)) || !self.unseen.iter().any(is_it)
    }

    /// Records a copy to a member. `is_running` is whether the member runs the same call.
    pub(super) fn on_brought(&mut self, member: Member, version: VersionId, is_running: bool) {
        if is_running || !self.is_seen(member, version) {
            self.brought.insert((member, version));
        }
    }

    /// Returns whether a version was copied to a member that has another execution of the same call.
    pub(super) fn was_brought(&self, member: Member, version: VersionId) -> bool {
        self.brought.contains(&(member, version))
    }

    /// Takes the unrecorded outcomes, to report them to the next coordinator, and the copies on members.
    pub(super) fn take_unseen(&mut self) -> (Vec<End>, BTreeSet<(Member, VersionId)>) {
        (std::mem::take(&mut self.unseen), std::mem::take(&mut self.brought))
    }

    /// Adds copies that a member has from the previous run.
    pub(super) fn restore_brought(&mut self, member: Member, brought: impl Iterator<Item = VersionId>) {
        self.brought.extend(brought.map(|version| (member, version)));
    }

    /// Returns whether the program has failed because lost data can be neither recomputed nor restored.
    pub(super) fn has_failed_by_loss(&self, graph: &Graph) -> bool {
        let Some(failure) = graph.fatal() else { return false };
        assert!(self.once.contains(&failure.call()), "{failure}");
        true
    }
}
