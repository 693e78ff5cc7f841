//! State of the journal: outcomes that are permanent, outcomes that are being recorded, and marks of earlier runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    core::{call::Outcome, history::History, mark::Mark, members::Member},
    failure::Failure,
    ids::{CallId, VersionId},
};

/// What a call has written, encoded.
pub(in crate::core) type Values = Vec<Arc<[u8]>>;

/// What a graph knows of what has one outcome for ever.
#[derive(Debug, Default)]
pub(in crate::core) struct Durable {
    /// Whether there is a journal.
    pub(in crate::core) is_on: bool,
    /// By which this program is told from all others.
    pub(in crate::core) key: u128,
    /// What follows for calls when their ends are recorded.
    pub(in crate::core) recording: BTreeMap<CallId, After>,
    /// Calls that have ended, of which something is copied to a second member.
    pub(in crate::core) settling: BTreeMap<CallId, Settling>,
    /// Ends of calls of an earlier run, which this one has not made yet.
    pub(in crate::core) early: BTreeMap<CallId, Early>,
    /// What cannot be read any more of what calls have written whose ends are not recorded.
    pub(in crate::core) damaged: BTreeSet<(VersionId, Member)>,
    /// The calls that are not run a second time.
    pub(in crate::core) ended: BTreeMap<CallId, Once>,
    /// Those of them that have ended in this run, and of which nothing stands in the journal.
    pub(in crate::core) new: BTreeSet<CallId>,
    /// The size of what stands of them in the journal.
    pub(in crate::core) values_bytes: usize,
    pub(in crate::core) preserved: Preserved,
    pub(in crate::core) marks: Marks,
}

impl Durable {
    /// Returns the members that have what calls have written whose ends are being recorded: others see it, and copy it,
    /// only afterwards.
    pub(in crate::core) fn members_with_ends(&self) -> BTreeSet<Member> {
        let members = |after: &After| match after {
            After::Written { members, .. } => members.clone(),
            After::Ignored { member, .. } => vec![*member],
            After::Failed(_) => Vec::new(),
        };
        self.recording.values().flat_map(members).collect()
    }

    /// Returns the members that have told ends of calls which the program has not made yet in this run.
    pub(in crate::core) fn members_with_early_ends(&self) -> impl Iterator<Item = Member> {
        let is_there = |(_, outcome): &&(Member, Outcome)| !matches!(outcome, Outcome::Failed(_));
        self.early.values().flat_map(|early| &early.first).filter(is_there).map(|(member, _)| *member)
    }

    /// Keeps how a call of an earlier run has ended until this run makes it. Returns whether that is so. The member that
    /// `was_to_end` it is the one that was known to run it.
    pub(in crate::core) fn keeps_early(
        &mut self,
        id: CallId,
        member: Member,
        outcome: &Outcome,
        was_to_end: bool,
    ) -> bool {
        let is_failed = matches!(outcome, Outcome::Failed(_)) && was_to_end;
        let is_kept =
            is_failed || self.is_on && matches!(outcome, Outcome::Durable { .. } | Outcome::Ignored { .. });
        if is_kept {
            // Nothing is left of it there, so that it is known as well when the member is gone.
            let member = if is_failed { Member::HERE } else { member };
            let Early { first, others } = self.early.entry(id).or_default();
            if first.is_none() && was_to_end {
                *first = Some((member, outcome.clone()));
            } else {
                others.push((member, outcome.clone()));
            }
        }
        is_kept
    }
}

/// How a call has ended that is not run a second time.
#[derive(Debug)]
pub(in crate::core) struct Once {
    pub(in crate::core) mark: Mark,
    /// The execution that counts.
    pub(in crate::core) by: u64,
    /// What stands in the journal of what it has written.
    pub(in crate::core) values: Option<Values>,
}

/// Ends of one call, as members tell them that have run it.
#[derive(Debug, Default)]
pub(in crate::core) struct Early {
    /// The one that counts if none is recorded.
    pub(in crate::core) first: Option<(Member, Outcome)>,
    pub(in crate::core) others: Vec<(Member, Outcome)>,
}

impl Early {
    /// Forgets what a member has told that is lost. Returns whether anything is left.
    pub(in crate::core) fn loses(&mut self, member: Member) -> bool {
        self.first.take_if(|(on, _)| *on == member);
        self.others.retain(|(on, _)| *on != member);
        self.first.is_some() || !self.others.is_empty()
    }
}

/// What follows when the end of a call is recorded.
#[derive(Debug)]
pub(in crate::core) enum After {
    Written { members: Vec<Member>, bytes: Vec<u64> },
    Ignored { member: Member, bytes: Vec<u64>, reason: String },
    Failed(Failure),
}

/// A call that has ended, of which something is copied to a second member.
#[derive(Debug)]
pub(in crate::core) struct Settling {
    pub(in crate::core) member: Member,
    /// The execution.
    pub(in crate::core) by: u64,
    pub(in crate::core) to: Member,
    pub(in crate::core) bytes: Vec<u64>,
    /// What has not arrived yet.
    pub(in crate::core) awaited: BTreeSet<VersionId>,
}

impl Settling {
    /// Returns whether a member has what the call has written, or is to have it.
    pub(in crate::core) fn is_with(&self, member: Member) -> bool {
        self.member == member || self.to == member
    }
}

/// What was written to the journal since everybody leaves.
#[derive(Debug, Default)]
pub(in crate::core) struct Preserved {
    pub(in crate::core) versions: BTreeSet<VersionId>,
    pub(in crate::core) bytes: u64,
    /// The number of facts of these that are not written yet.
    pub(in crate::core) unwritten: usize,
    /// Which calls had ended when that was written last.
    pub(in crate::core) history: History,
}

/// The number of marks that are compared when the program begins anew.
pub(in crate::core) const MARKS_MAX: usize = 64;

/// Some of the calls and data of a program, by which a later run is compared with it.
#[derive(Debug, Default)]
pub(in crate::core) struct Marks {
    /// The last call, or data, of this run.
    pub(in crate::core) last: Option<(CallId, Mark)>,
    /// Some of this run and of earlier ones, at least so many calls from one to the next.
    pub(in crate::core) some: BTreeMap<CallId, Mark>,
    pub(in crate::core) spacing: u64,
    /// The last one that was returned.
    pub(in crate::core) told: Option<CallId>,
}

impl Marks {
    /// Returns the mark of the last call, and some of those before; `None` if they say nothing that was not returned
    /// before.
    pub(in crate::core) fn take_some(&mut self) -> Option<Vec<(CallId, Mark)>> {
        let (call, mark) = self.last?;
        let before = self.some.last_key_value().map(|(before, _)| *before);
        if self.told.replace(call) == Some(call) || before.is_some_and(|before| call <= before) {
            return None;
        }
        if before.is_none_or(|before| call >= before + self.spacing) {
            self.some.insert(call, mark);
        }
        if self.some.len() > MARKS_MAX {
            self.thin_out(call);
        }
        let before =
            self.some.iter().map(|(call, mark)| (*call, *mark)).filter(|(before, _)| *before != call);
        Some(before.chain([(call, mark)]).collect())
    }

    /// Keeps half of them, at equal distances.
    pub(in crate::core) fn thin_out(&mut self, last: CallId) {
        self.spacing = last / (MARKS_MAX as u64 / 2) + 1;
        let mut next = 0;
        self.some.retain(|call, _| {
            let stays = *call >= next;
            next = if stays { *call + self.spacing } else { next };
            stays
        });
    }
}
