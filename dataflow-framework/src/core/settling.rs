//! Second copies of the output of run-once calls that is too large for the journal: they are made before the
//! end of such a call is recorded.

use std::collections::BTreeSet;

use super::{
    call::CallState,
    graph::{Action, Graph},
    members::Member,
    state::durable::Settling,
    version::Source,
};
use crate::ids::{CallId, VersionId};

/// The maximum total size of call output in the journal, in bytes. Later output counts as large.
const VALUES_BYTES_MAX: usize = 64 << 20;

impl Graph {
    /// Records the end of a call, after a second copy of its output if that is large.
    pub(super) fn settle(
        &mut self,
        id: CallId,
        (member, by): (Member, u64),
        bytes: Vec<u64>,
        values: Option<Vec<Vec<u8>>>,
    ) {
        let size: usize = values.iter().flatten().map(Vec::len).sum();
        let values = values.filter(|_| self.durable.values_bytes + size <= VALUES_BYTES_MAX);
        let to = match &values {
            None if !bytes.is_empty() => self.members.another_stays(bytes.iter().sum(), member),
            _ => None,
        };
        let Some(to) = to else { return self.record_end(id, (vec![member], by), bytes, values) };
        let mark = self.calls[&id].mark;
        let versions: BTreeSet<_> = self.calls[&id].written(id).collect();
        for version in &versions {
            self.copy(Source { version: *version, mark, members: vec![member] }, to);
        }
        self.calls.get_mut(&id).expect("it has run").state = CallState::Recorded;
        self.durable.settling.insert(id, Settling { member, by, to, bytes, awaited: versions });
    }

    /// Handles the arrival, or the failure, of a second copy of the output of a call. Returns whether one was
    /// expected.
    pub(super) fn is_second(&mut self, version: VersionId, member: Member, has_arrived: bool) -> bool {
        let id = version.call;
        let Some(settling) = self.durable.settling.get_mut(&id).filter(|settling| settling.to == member)
        else {
            return false;
        };
        if !settling.awaited.contains(&version) {
            return false;
        }
        self.copying.remove(&version);
        if has_arrived {
            settling.awaited.remove(&version);
        }
        if settling.awaited.is_empty() || !has_arrived {
            self.settled(id, has_arrived);
        }
        true
    }

    /// Records the end of a call, with or without a second copy.
    fn settled(&mut self, id: CallId, has_second: bool) {
        let Some(settling) = self.durable.settling.remove(&id) else { return };
        if !has_second {
            self.forget_second(id, &settling);
        }
        let Settling { member, by, to, bytes, .. } = settling;
        let mut members = vec![member];
        members.extend(Some(to).filter(|_| has_second));
        // The member of the program first, so that it need not fetch its own data.
        members.sort_unstable();
        self.record_end(id, (members, by), bytes, None);
    }

    /// Drops the parts of a second copy that does not count: if the call runs again it may write other output,
    /// which the owner of these parts would not receive.
    fn forget_second(&mut self, id: CallId, settling: &Settling) {
        for version in (0..).zip(&settling.bytes).map(|(slot, _)| VersionId { call: id, slot }) {
            if settling.awaited.contains(&version) {
                self.copying.remove(&version);
            } else {
                self.actions.push(Action::Forget(settling.to, version));
            }
        }
    }

    /// Handles the loss of a member with output of calls whose ends are not recorded, or with expected second
    /// copies.
    pub(super) fn on_durable_lost(&mut self, member: Member) {
        let all = self.durable.settling.iter();
        let lost: Vec<_> = all.clone().filter(|(_, one)| one.member == member).map(|(id, _)| *id).collect();
        let second: Vec<_> = all.filter(|(_, one)| one.to == member).map(|(id, _)| *id).collect();
        for id in lost {
            // It runs again, like a call that has not ended.
            self.calls.get_mut(&id).expect("it has run").state = CallState::Runs(member);
            if let Some(settling) = self.durable.settling.remove(&id) {
                self.forget_second(id, &settling);
            }
        }
        for id in second {
            let Some(Settling { member, by, bytes, awaited, .. }) = self.durable.settling.remove(&id) else {
                continue;
            };
            for version in awaited {
                self.copying.remove(&version);
            }
            self.settle(id, (member, by), bytes, None);
        }
        self.durable.early.retain(|_, early| early.remove_member(member));
        self.forget_damages_on(member);
    }
}
