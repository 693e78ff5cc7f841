//! Leaving members: the choice of members that take over their data, and the time when they may go.

use std::collections::BTreeSet;

use super::{Load, Member, Members};
use crate::core::demand::Capacity;

/// The conditions under which leaving members may go.
#[derive(Clone, Copy)]
struct Parting<'a> {
    is_copied: bool,
    recording: &'a BTreeSet<Member>,
    can_be_lost: bool,
    anybody_stays: bool,
}

impl Members {
    pub(in crate::core) fn leave(&mut self, member: Member) {
        if let Some(load) = self.known.get_mut(&member) {
            (load.is_leaving, load.may_go) = (true, false);
        }
        self.note(member);
        self.count_leavers();
    }

    pub(super) fn count_leavers(&mut self) {
        self.leavers = self.known.values().filter(|load| load.is_leaving && !load.may_go).count();
    }

    /// Returns whether a member leaves, and was not allowed to go yet.
    pub(in crate::core) fn any_leaves(&self) -> bool {
        self.leavers > 0
    }

    /// Returns whether a member leaves, or is unknown.
    pub(in crate::core) fn is_leaving(&self, member: Member) -> bool {
        self.known.get(&member).is_none_or(|load| load.is_leaving)
    }

    pub(in crate::core) fn anybody_stays(&self) -> bool {
        self.known.values().any(|load| !load.is_leaving)
    }

    pub(in crate::core) fn on_given(&mut self, member: Member, bytes: u64) {
        if let Some(load) = self.known.get_mut(&member) {
            load.rescued += bytes;
        }
    }

    /// Returns a staying member that takes over data of this size, if it `may`.
    pub(in crate::core) fn staying(&mut self, bytes: u64, may: impl Fn(Member) -> bool) -> Option<Member> {
        let staying = self.known.iter_mut().filter(|(member, load)| !load.is_leaving && may(**member));
        let (member, load) = staying.min_by_key(|(_, load)| load.rescued)?;
        load.rescued += bytes;
        Some(*member)
    }

    /// Returns the leaving members that may go now: those without calls, and without outcomes that are
    /// `recording`, if all data that others need `is_copied`; or all if no other member exists and the data
    /// `can_be_lost`. If no member stays, the one of the program is the last. Each is returned once.
    pub(in crate::core) fn let_go(
        &mut self,
        is_copied: bool,
        recording: &BTreeSet<Member>,
        can_be_lost: bool,
    ) -> Vec<Member> {
        let parting = Parting { is_copied, recording, can_be_lost, anybody_stays: self.anybody_stays() };
        let told = self.known.iter().filter(|(_, load)| !load.may_go);
        let may_go = told.filter(|(member, load)| self.has_nothing(**member, load, parting));
        let gone: Vec<_> = may_go.map(|(member, _)| *member).collect();
        for member in &gone {
            self.known.entry(*member).and_modify(|load| load.may_go = true);
        }
        self.count_leavers();
        gone
    }

    /// Returns whether the member of the program may go by the same rules. It may no longer go if others have
    /// started to leave since it was allowed to.
    pub(in crate::core) fn here_may_go(
        &self,
        is_copied: bool,
        recording: &BTreeSet<Member>,
        can_be_lost: bool,
    ) -> bool {
        let parting = Parting { is_copied, recording, can_be_lost, anybody_stays: self.anybody_stays() };
        self.known.get(&Member::HERE).is_some_and(|load| self.has_nothing(Member::HERE, load, parting))
    }

    /// Returns whether a leaving member has nothing to wait for.
    fn has_nothing(&self, member: Member, load: &Load, parting: Parting<'_>) -> bool {
        let Parting { is_copied, recording, can_be_lost, anybody_stays } = parting;
        if !load.is_leaving {
            return false;
        }
        if can_be_lost && !anybody_stays {
            return true;
        }
        let has_work = |load: &Load| load.assigned > 0 || load.futures > 0 || load.lent > 0;
        // If no other member remembers it, the program has to receive the outcome of the last call.
        let must_stay = member == Member::HERE && !anybody_stays && {
            let others_work = self.known.iter().any(|(other, load)| *other != Member::HERE && has_work(load));
            others_work || !recording.is_empty()
        };
        is_copied && !has_work(load) && !recording.contains(&member) && !must_stay
    }

    pub(in crate::core) fn all_staying(&self) -> Vec<Member> {
        let staying = self.known.iter().filter(|(_, load)| !load.is_leaving);
        staying.map(|(member, _)| *member).collect()
    }

    pub(in crate::core) fn capacities(&self) -> impl Iterator<Item = &Capacity> + Clone {
        self.known.values().filter(|load| !load.is_leaving).map(|load| &load.capacity)
    }
}
