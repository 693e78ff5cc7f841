//! A program that is started again: what it does not need to do a second time.
//!
//! When the node of the program is lost, or leaves, the program begins anew on another one. It makes the same calls, so
//! they have the same numbers. The other nodes tell what they still have of the run before: the versions that they
//! keep, the calls that they run, and which calls have ended ([`History`]). A call that has ended is not run again; it
//! is known as the recipe of what it has written, like any that has ended in this run, and its versions are where they
//! are kept, or gone. So only that is made again which somebody needs and nobody has. What runs goes on, and counts.
//!
//! That is right only if the program does make the same calls. So each version has a [`Mark`], and a version of another
//! mark ends the program: it would be made of two that differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    call::{CallId, CallState, Outcome},
    graph::{Action, Graph},
    history::History,
    mark::Mark,
    members::Member,
    version::{Copies, State, VersionId},
};
/// A version that a member keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
}

/// What is known of a call from earlier runs of the program, before it is made in this one.
#[derive(Debug)]
pub(super) struct Earlier {
    mark: Mark,
    /// The versions that it has written, by their slots.
    pub(super) copies: BTreeMap<u32, Copies>,
    /// The member that runs it.
    pub(super) runs_on: Option<Member>,
}

/// A call that differs from the one of the same number in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) call: CallId,
    pub(crate) was: Mark,
    pub(crate) is: Mark,
}

impl Graph {
    /// Tells that a member keeps a version of an earlier run.
    pub(crate) fn holds(&mut self, member: Member, held: Held) {
        let Held { version: id, mark, bytes } = held;
        if id.call >= self.next() {
            let earlier = self.earlier(id.call, mark);
            if earlier.mark == mark {
                let copies = earlier.copies.entry(id.slot);
                copies.or_insert_with(|| Copies { members: Vec::new(), bytes }).add(member);
            } else {
                // Of a run before that.
                self.actions.push(Action::Forget(member, id));
            }
            return;
        }
        match self.versions.get(&id).map(|version| version.mark) {
            Some(known) if known == mark => {
                if self.is_unseen(id, member) {
                    return;
                }
                self.is_there(id, member, bytes);
                self.forget_unless_needed(id);
            }
            Some(known) => self.diverges(Divergence { call: id.call, was: mark, is: known }),
            // It is not needed any more.
            None => self.actions.push(Action::Forget(member, id)),
        }
    }

    /// Tells that a member runs a call of an earlier run.
    pub(crate) fn runs(&mut self, member: Member, id: CallId, mark: Mark) {
        if id >= self.next() {
            let earlier = self.earlier(id, mark);
            if earlier.mark == mark {
                earlier.runs_on = Some(member);
            }
            return;
        }
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.mark == mark) else { return };
        if matches!(call.state, CallState::Inputs(_) | CallState::Worker) {
            call.state = CallState::Runs(member);
            self.members.assigned(member);
        }
    }

    /// Tells which calls have ended in earlier runs, before this one has made them.
    pub(crate) fn remembers(&mut self, history: History) {
        self.history.add(history);
    }

    /// Takes in that a call of an earlier run has ended that the program has not made yet. What it has written was told
    /// before.
    pub(super) fn ended_early(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        let Some(earlier) = self.earlier.get_mut(&id).filter(|earlier| earlier.runs_on == Some(member))
        else {
            return;
        };
        if self.durable.keeps_early(id, member, outcome) {
            return;
        }
        earlier.runs_on = None;
        match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => self.has_ended(id),
            Outcome::Ignored { .. } => self.is_ignored(id),
            // It is tried again.
            Outcome::Failed(_) => {}
        }
    }

    fn earlier(&mut self, call: CallId, mark: Mark) -> &mut Earlier {
        let new = || Earlier { mark, copies: BTreeMap::new(), runs_on: None };
        self.earlier.entry(call).or_insert_with(new)
    }

    /// Returns what is known of a call, or of data, that is made now.
    pub(super) fn known_of(&mut self, call: CallId, mark: Mark) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if earlier.mark == mark {
            return Some(earlier);
        }
        self.diverges(Divergence { call, was: earlier.mark, is: mark });
        None
    }

    pub(super) fn diverges(&mut self, divergence: Divergence) {
        self.divergence.get_or_insert(divergence);
    }

    /// Returns the call by which it was noticed that the program differs from its earlier run.
    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.divergence
    }

    /// Forgets what was told of calls before this one after they were made: data of the program, which is not counted
    /// by [`next`](Self::next).
    pub(super) fn forget_earlier(&mut self, call: CallId) {
        while let Some(entry) = self.earlier.first_entry().filter(|entry| *entry.key() < call) {
            let (call, earlier) = entry.remove_entry();
            for (slot, copies) in earlier.copies {
                let version = VersionId { call, slot };
                self.actions.extend(copies.members.into_iter().map(|member| Action::Forget(member, version)));
            }
        }
    }

    /// Forgets what was known of a member from earlier runs.
    pub(super) fn earlier_is_lost(&mut self, member: Member) {
        for earlier in self.earlier.values_mut() {
            earlier.runs_on = earlier.runs_on.filter(|on| *on != member);
            earlier.copies.retain(|_, copies| {
                copies.members.retain(|other| *other != member);
                !copies.members.is_empty()
            });
        }
    }

    /// Adds what has ended to what other nodes are told.
    pub(super) fn has_ended(&mut self, id: CallId) {
        if self.has_losses {
            self.history.ends(id);
            self.news.ends(id);
        }
    }

    /// The same for a call that has failed and has written defaults.
    pub(super) fn is_ignored(&mut self, id: CallId) {
        self.history.ignores(id);
        self.news.ignores(id);
    }

    /// The same for a call that has failed for good.
    pub(super) fn has_failed(&mut self, id: CallId, reason: &str) {
        if self.has_losses {
            self.history.fails(id, reason);
            self.news.fails(id, reason);
        }
    }

    /// Returns which calls have ended altogether, in this run and before.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns which calls have ended since this was last asked.
    pub(crate) fn take_news(&mut self) -> History {
        std::mem::take(&mut self.news)
    }

    /// Takes in what a member has written for a call that was not assigned to it, or taken from it.
    pub(super) fn is_left_over(&mut self, call: CallId, member: Member, bytes: &[u64]) {
        if !self.members.has(member) {
            return;
        }
        for (slot, bytes) in (0..).zip(bytes) {
            let id = VersionId { call, slot };
            match self.versions.get(&id).map(|version| &version.state) {
                // It is as good as any other copy.
                Some(State::Present(_) | State::Awaited | State::Gone) => {
                    self.is_there(id, member, *bytes);
                    self.forget_unless_needed(id);
                }
                Some(State::Failed(_)) | None => self.actions.push(Action::Forget(member, id)),
            }
        }
    }
}
