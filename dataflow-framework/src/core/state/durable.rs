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

/// The encoded output of a call.
pub(in crate::core) type Values = Vec<Arc<[u8]>>;

/// The state of permanent outcomes.
#[derive(Debug, Default)]
pub(in crate::core) struct Durable {
    /// Whether there is a journal.
    pub(in crate::core) is_on: bool,
    /// The number that identifies the program.
    pub(in crate::core) key: u128,
    /// The consequences of the ends of calls, once they are recorded.
    pub(in crate::core) recording: BTreeMap<CallId, After>,
    /// Completed calls whose output is being copied to a second member.
    pub(in crate::core) settling: BTreeMap<CallId, Settling>,
    /// Ends of calls of an earlier run, which this one has not made yet.
    pub(in crate::core) early: BTreeMap<CallId, Early>,
    /// The unreadable versions of calls whose ends are not recorded.
    pub(in crate::core) damaged: BTreeSet<(VersionId, Member)>,
    /// The run-once calls.
    pub(in crate::core) ended: BTreeMap<CallId, Once>,
    /// The run-once calls of this run that are not in the journal yet.
    pub(in crate::core) new: BTreeSet<CallId>,
    /// The size of their output in the journal.
    pub(in crate::core) values_bytes: usize,
    pub(in crate::core) preserved: Preserved,
    pub(in crate::core) marks: Marks,
}

impl Durable {
    /// Returns the members with output of calls whose ends are being recorded: the output becomes visible, and
    /// is copied, only afterwards.
    pub(in crate::core) fn members_with_ends(&self) -> BTreeSet<Member> {
        let members = |after: &After| match after {
            After::Written { members, .. } => members.clone(),
            After::Ignored { member, .. } => vec![*member],
            After::Failed(_) => Vec::new(),
        };
        self.recording.values().flat_map(members).collect()
    }

    /// Returns the members that have reported ends of calls that this run has not made yet.
    pub(in crate::core) fn members_with_early_ends(&self) -> impl Iterator<Item = Member> {
        let is_there = |(_, outcome): &&(Member, Outcome)| !matches!(outcome, Outcome::Failed(_));
        self.early.values().flat_map(|early| &early.first).filter(is_there).map(|(member, _)| *member)
    }

    /// Keeps the outcome of a call of an earlier run until this run makes the call. Returns whether it was
    /// kept. The member that `was_to_end` it is the one that was known to run it.
    pub(in crate::core) fn keep_early(
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
            // A failure leaves no data on the member, so it stays known when the member is gone.
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

/// The completion of a run-once call.
#[derive(Debug)]
pub(in crate::core) struct Once {
    pub(in crate::core) mark: Mark,
    /// The execution that counts.
    pub(in crate::core) by: u64,
    /// The output of the call in the journal.
    pub(in crate::core) values: Option<Values>,
}

/// The outcomes of one call, as reported by the members that have run it.
#[derive(Debug, Default)]
pub(in crate::core) struct Early {
    /// The outcome that counts if none is recorded.
    pub(in crate::core) first: Option<(Member, Outcome)>,
    pub(in crate::core) others: Vec<(Member, Outcome)>,
}

impl Early {
    /// Removes the reports of a lost member. Returns whether any are left.
    pub(in crate::core) fn remove_member(&mut self, member: Member) -> bool {
        self.first.take_if(|(on, _)| *on == member);
        self.others.retain(|(on, _)| *on != member);
        self.first.is_some() || !self.others.is_empty()
    }
}

/// The consequences of the recorded end of a call.
#[derive(Debug)]
pub(in crate::core) enum After {
    Written { members: Vec<Member>, bytes: Vec<u64> },
    Ignored { member: Member, bytes: Vec<u64>, reason: String },
    Failed(Failure),
}

/// A completed call whose output is being copied to a second member.
#[derive(Debug)]
pub(in crate::core) struct Settling {
    pub(in crate::core) member: Member,
    /// The execution.
    pub(in crate::core) by: u64,
    pub(in crate::core) to: Member,
    pub(in crate::core) bytes: Vec<u64>,
    /// The versions that have not arrived yet.
    pub(in crate::core) awaited: BTreeSet<VersionId>,
}

impl Settling {
    /// Returns whether a member has the output of the call, or will receive it.
    pub(in crate::core) fn is_with(&self, member: Member) -> bool {
        self.member == member || self.to == member
    }
}

/// The data written to the journal since all members leave.
#[derive(Debug, Default)]
pub(in crate::core) struct Preserved {
    pub(in crate::core) versions: BTreeSet<VersionId>,
    pub(in crate::core) bytes: u64,
    /// The number of facts not written yet.
    pub(in crate::core) unwritten: usize,
    /// The completed calls at the time of the last write.
    pub(in crate::core) history: History,
}

/// The number of marks that are compared when the program restarts.
pub(in crate::core) const MARKS_MAX: usize = 64;

/// Some of the calls and data of a program, by which a later run is compared with it.
#[derive(Debug, Default)]
pub(in crate::core) struct Marks {
    /// The last call, or data, of this run.
    pub(in crate::core) last: Option<(CallId, Mark)>,
    /// Marks of this run and of earlier ones, with a minimum distance in calls.
    pub(in crate::core) some: BTreeMap<CallId, Mark>,
    pub(in crate::core) spacing: u64,
    /// The last call whose mark was returned.
    pub(in crate::core) told: Option<CallId>,
}

impl Marks {
    /// Returns the mark of the last call, and some of those before; `None` if they are unchanged.
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

    /// Keeps every second mark.
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
