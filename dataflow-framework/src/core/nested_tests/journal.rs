//! The journal of a chance program, and what was seen of what is written once.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{Fact, Graph, Mark, Member, Outcome, graph_tests::version},
    ids::{CallId, VersionId},
};

/// How a call has ended on a member.
pub(super) type End = (Member, CallId, Mark, Outcome);

/// What has one outcome for ever.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Whether there is a journal.
    pub(super) is_kept: bool,
    /// What stands there.
    facts: Vec<Fact>,
    /// What is to be written there.
    pub(super) waiting: Vec<Fact>,
    /// The calls that are not run again, since that stands there.
    recorded: BTreeSet<CallId>,
    /// How calls have ended whose ends nobody may see before they are recorded, as their members know it.
    unseen: Vec<End>,
    /// What was brought to members of calls of which they have another execution, that runs or is one of those above.
    brought: BTreeSet<(Member, VersionId)>,
    /// The calls that write something else each time.
    once: BTreeSet<CallId>,
    /// What was seen of what they write, or stands in the journal.
    seen: BTreeMap<CallId, u64>,
}

impl Book {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// Tells a graph what stands in the journal.
    pub(super) fn begins(&self, graph: &mut Graph) {
        if self.is_kept {
            graph.records();
            self.facts.iter().for_each(|fact| graph.recalls(fact.clone()));
        }
    }

    /// Writes everything that is to be written.
    pub(super) fn writes(&mut self, graph: &mut Graph) {
        for fact in std::mem::take(&mut self.waiting) {
            self.stands(fact.clone());
            graph.journalled(fact);
        }
    }

    fn stands(&mut self, fact: Fact) {
        if let Fact::Ended(ended) = &fact {
            self.recorded.insert(ended.call);
            let value = ended.values.iter().flatten().next();
            if let Some(value) = value {
                let value = u64::from_le_bytes(value[..].try_into().expect("it is a number"));
                self.sees(version(ended.call, 0), value);
            }
        }
        self.facts.push(fact);
    }

    /// Loses the member of the program. So much of what was to be written then is.
    pub(super) fn is_interrupted(&mut self, written: usize) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().take(written).for_each(|fact| self.stands(fact));
        self.is_lost(Member::HERE);
    }

    /// Notes that a call is assigned that may write something else each time.
    pub(super) fn is_assigned(&mut self, call: CallId, is_once: bool) {
        if is_once {
            assert!(
                !self.recorded.contains(&call),
                "{call} runs although it stands in the journal that it has ended"
            );
            self.once.insert(call);
        }
    }

    /// Notes that somebody sees what a call has written: it is the same for all.
    pub(super) fn sees(&mut self, version: VersionId, value: u64) {
        let call = version.call;
        if self.is_kept && self.once.contains(&call) {
            assert!(self.recorded.contains(&call), "{version:?} is seen before it is recorded");
            let before = *self.seen.entry(call).or_insert(value);
            assert_eq!(before, value, "{version:?} is something else than before");
        }
    }

    /// Returns what was seen, if there is a journal.
    pub(super) fn seen(&self) -> Option<&BTreeMap<CallId, u64>> {
        self.is_kept.then_some(&self.seen)
    }

    /// Notes how a call has ended that nobody may see yet.
    pub(super) fn ends(&mut self, member: Member, call: CallId, mark: Mark, outcome: Outcome) {
        self.unseen.push((member, call, mark, outcome));
    }

    /// Lets a member not tell again how a call has ended of which it has not any more what was written.
    pub(super) fn is_forgotten(&mut self, member: Member, version: VersionId) {
        self.unseen.retain(|(of, call, ..)| (*of, *call) != (member, version.call));
        self.brought.remove(&(member, version));
    }

    pub(super) fn is_lost(&mut self, member: Member) {
        self.unseen.retain(|(of, ..)| *of != member);
        self.brought.retain(|(to, _)| *to != member);
    }

    /// Returns whether a member has something that was not written by an execution whose end nobody may have seen.
    pub(super) fn is_seen(&self, member: Member, version: VersionId) -> bool {
        let is_it = |(of, call, ..): &End| (*of, *call) == (member, version.call);
        self.brought.contains(&(member, version)) || !self.unseen.iter().any(is_it)
    }

    /// Notes that something is brought to a member, which runs the same call or not.
    pub(super) fn is_brought(&mut self, member: Member, version: VersionId, is_running: bool) {
        if is_running || !self.is_seen(member, version) {
            self.brought.insert((member, version));
        }
    }

    /// Returns whether something was brought to a member that has another execution of its call.
    pub(super) fn was_brought(&self, member: Member, version: VersionId) -> bool {
        self.brought.contains(&(member, version))
    }

    /// Takes what the members know that nobody may have seen, to tell it to the next head; and what was brought to them.
    pub(super) fn take_unseen(&mut self) -> (Vec<End>, BTreeSet<(Member, VersionId)>) {
        (std::mem::take(&mut self.unseen), std::mem::take(&mut self.brought))
    }

    /// Takes in what was brought to a member before.
    pub(super) fn has_brought(&mut self, member: Member, brought: impl Iterator<Item = VersionId>) {
        self.brought.extend(brought.map(|version| (member, version)));
    }

    /// Returns whether the program has failed because something is lost that is neither made again nor in the journal.
    pub(super) fn has_lost(&self, graph: &Graph) -> bool {
        let Some(failure) = graph.fatal() else { return false };
        assert!(self.once.contains(&failure.call()), "{failure}");
        true
    }
}
