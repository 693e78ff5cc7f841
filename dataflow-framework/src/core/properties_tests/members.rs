//! Members that join, leave and are lost, and restarts of the program.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{End, MEMORY, Run, Running, Survivor};
use crate::{
    core::{Capacity, Cause, Graph, Held, Member, Outcome, Unfit, graph::DEATHS_MAX, graph_tests::version},
    ids::{Argument, VersionId},
};

impl Run {
    pub(super) fn join(&mut self, workers: u32) {
        let member = Member(self.members);
        self.members += 1;
        self.stores.insert(member, BTreeMap::new());
        self.workers.insert(member, workers);
        self.graph.joined(member, Capacity { workers, memory: MEMORY, ..Capacity::default() });
    }

    /// Reports the member of a call as unfit to run it. Every second call has changed no input.
    pub(super) fn unfit(&mut self, which: prop::sample::Index) {
        if self.running.is_empty() {
            return;
        }
        let which = which.index(self.running.len());
        let Running { member, assignment, .. } = &self.running[which];
        let (member, call) = (*member, assignment.call);
        // The call would fail if no other member can take it, or if each member were unfit.
        let others = |demand| self.graph.known().members.any_other_than(&[member], demand);
        let is_hopeless = !self.graph.known().calls.get(&call).is_some_and(|call| others(call.demand()));
        if is_hopeless || self.vanished.contains(&member) || !self.unfit.insert(call) {
            return;
        }
        let running = self.running.swap_remove(which);
        let changes_nothing = which.is_multiple_of(2) && self.graph_knows(&running);
        let unchanged = if changes_nothing { self.give_back(&running) } else { Vec::new() };
        let unfit = Unfit { reason: "its disk is full".into(), unchanged, cause: Cause::Member };
        self.graph.ended(call, member, Outcome::Unfit(unfit));
    }

    /// Damages a version on a member that can be recomputed.
    pub(super) fn damage(&mut self, which: prop::sample::Index) {
        let there = self.stores.iter().filter(|(member, _)| !self.vanished.contains(member));
        let all = there.flat_map(|(member, store)| store.keys().map(|version| (*member, *version)));
        let can_be_made = |id: &VersionId| {
            self.graph.known().calls.contains_key(&id.call) || !self.graph.known().versions.contains_key(id)
        };
        let all: Vec<_> = all.filter(|(_, version)| can_be_made(version)).collect();
        if all.is_empty() {
            return;
        }
        let (member, version) = all[which.index(all.len())];
        let store = &self.stores[&member];
        let is_unseen = |(of, call, _, outcome): &End| {
            (*of, *call) == (member, version.call) && matches!(outcome, Outcome::Durable { .. })
        };
        // The other outputs of the same execution are useless without it.
        let is_rest = |other: &VersionId| {
            let is_own = other.call == version.call && !self.brought.contains(&(member, *other));
            is_own && self.unseen.iter().any(is_unseen)
        };
        let damaged: Vec<_> =
            store.keys().filter(|other| **other == version || is_rest(other)).copied().collect();
        for version in damaged {
            self.drop_version(member, version);
            self.graph.on_damaged(version, member, "it has vanished");
        }
    }

    /// Returns whether another loss leaves every call below its limit of lost members.
    pub(super) fn may_be_lost(&self) -> bool {
        let deaths = self.graph.known().calls.iter().map(|(_, call)| call.deaths).max().unwrap_or(0);
        deaths as usize + self.vanished.len() < DEATHS_MAX as usize
    }

    pub(super) fn lose(&mut self, member: Member) {
        self.vanished.remove(&member);
        self.stores.remove(&member);
        self.running.retain(|running| running.member != member);
        self.copies.retain(|(to, _)| *to != member);
        self.unseen.retain(|(of, ..)| *of != member);
        self.brought.retain(|(to, _)| *to != member);
        self.graph.lost(member);
    }

    pub(super) fn leave(&mut self, member: Member) {
        if self.vanished.contains(&member) {
            return;
        }
        self.leaving.insert(member);
        self.graph.on_leaving(member);
        self.return_calls(member);
    }

    /// Cordons a member, unless the graph will learn that it is lost.
    pub(super) fn cordon(&mut self, which: prop::sample::Index) {
        let there: Vec<_> = self.stores.keys().filter(|member| !self.vanished.contains(member)).collect();
        if there.is_empty() {
            return;
        }
        let member = *there[which.index(there.len())];
        self.cordoned.insert(member);
        self.graph.on_cordon(member, true);
        self.return_calls(member);
    }

    pub(super) fn uncordon_all(&mut self) {
        for member in std::mem::take(&mut self.cordoned) {
            self.graph.on_cordon(member, false);
        }
    }

    /// Returns every second call of a member as one that it has not started.
    fn return_calls(&mut self, member: Member) {
        let on_it = self.running.extract_if(.., |running| running.member == member);
        let on_it: Vec<_> = on_it.collect();
        for (number, running) in on_it.into_iter().enumerate() {
            if running.is_earlier || number % 2 == 0 {
                self.running.push(running);
                continue;
            }
            let unchanged = self.give_back(&running);
            self.graph.returned(running.assignment.call, member, &unchanged);
        }
    }

    /// Undoes the start of a call, and returns the inputs that it would have updated in place.
    pub(super) fn give_back(
        &mut self,
        Running { member, assignment, inputs, .. }: &Running,
    ) -> Vec<(VersionId, u64)> {
        let (mut unchanged, mut in_place) = (Vec::new(), assignment.in_place.iter());
        let mut inputs = inputs.iter();
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && *in_place.next().expect("one for each");
            for version in argument.versions() {
                let input = *inputs.next().expect("one for each");
                if is_taken {
                    let mark = self.marks_of(*version);
                    self.put(*member, *version, (input, mark));
                    unchanged.push((*version, 8));
                }
            }
        }
        unchanged
    }

    /// Lets the member of the program leave, and restarts the program on another one.
    pub(super) fn move_program(&mut self, here: prop::sample::Index) {
        if self.stores.len() < 2 {
            return;
        }
        self.leave(Member::HERE);
        let mut rounds = 0;
        while self.stores.contains_key(&Member::HERE) {
            rounds += 1;
            assert!(rounds < 1_000, "the program does not leave");
            self.perform();
            if self.stores.contains_key(&Member::HERE) {
                // Unwritten records may exist on no other member.
                self.write();
                self.perform();
            }
            if self.stores.contains_key(&Member::HERE) {
                self.end_first();
            }
        }
        self.memory.add(self.graph.journal().take_news());
        // The member leaves once these are written.
        self.write();
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        self.restart_program(here, None);
    }

    pub(super) fn restart(&mut self, here: prop::sample::Index, late: prop::sample::Index) {
        self.stores.remove(&Member::HERE);
        self.running.retain(|running| running.member != Member::HERE);
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        // A part of the pending records may have been written.
        let written = late.index(self.waiting.len() + 1);
        self.journal.extend(self.waiting.drain(..written));
        self.waiting.clear();
        self.restart_program(here, Some(late));
    }

    /// Restarts the program on a surviving member, or on a new one.
    pub(super) fn restart_program(&mut self, here: prop::sample::Index, late: Option<prop::sample::Index>) {
        self.copies.clear();
        self.leaving.clear();
        self.cordoned.clear();
        for vanished in std::mem::take(&mut self.vanished) {
            self.stores.remove(&vanished);
            self.running.retain(|running| running.member != vanished);
            self.unseen.retain(|(of, ..)| *of != vanished);
            self.brought.retain(|(to, _)| *to != vanished);
        }
        // Calls that have not started are dropped; here every third one counts as such.
        let all = std::mem::take(&mut self.running);
        for (number, running) in all.into_iter().enumerate() {
            if number % 3 > 0 || running.is_earlier {
                self.running.push(Running { is_earlier: true, ..running });
            } else if self.graph_knows(&running) {
                self.give_back(&running);
            }
        }
        let mut survivors: Vec<_> = self.stores.keys().copied().collect();
        if !survivors.is_empty() {
            let count = survivors.len();
            survivors.rotate_left(here.index(count));
        }
        let mut survivors: Vec<_> = survivors.into_iter().map(|member| self.take_survivor(member)).collect();
        self.repeated += self.graph.figures().repeated;
        self.graph = Graph::new(true);
        self.begin_journal();
        self.graph.journal().add_history(self.memory.clone());
        self.members = 0;
        if survivors.is_empty() {
            self.join(2);
        }
        let late = late.map_or(survivors.len(), |late| 1.max(late.index(survivors.len() + 1)));
        let mut late = survivors.split_off(late.min(survivors.len()));
        for survivor in survivors {
            self.rejoin(survivor);
        }
        self.restore_kept();
        let log = std::mem::take(&mut self.log);
        self.next = 0;
        self.begin_program();
        for (number, statement) in log.iter().enumerate() {
            if number == log.len() / 2 {
                late.drain(..).for_each(|survivor| self.rejoin(survivor));
            }
            self.execute(statement, true);
        }
        late.drain(..).for_each(|survivor| self.rejoin(survivor));
        assert_eq!(self.graph.divergence(), None);
    }

    /// Returns whether the graph knows the inputs of a call.
    pub(super) fn graph_knows(&self, running: &Running) -> bool {
        let mut versions = running.assignment.arguments.iter().flat_map(Argument::versions);
        versions.all(|version| self.graph.known().versions.contains_key(version))
    }

    /// Removes a member from this run, and returns its state for the next run.
    pub(super) fn take_survivor(&mut self, member: Member) -> Survivor {
        let running = self.running.extract_if(.., |running| running.member == member).collect();
        self.drop_partial_outcomes(member);
        let unseen = self.unseen.extract_if(.., |(of, ..)| *of == member).collect();
        let (brought, others) =
            std::mem::take(&mut self.brought).into_iter().partition(|(to, _)| *to == member);
        self.brought = others;
        let store = self.stores.remove(&member).expect("it is there");
        Survivor { store, running, unseen, brought }
    }

    /// Removes unrecorded outcomes of calls from a member that lacks some of their outputs.
    pub(super) fn drop_partial_outcomes(&mut self, member: Member) {
        let store = self.stores.get_mut(&member).expect("it is there");
        let (writes, brought) = (&self.writes, &self.brought);
        self.unseen.retain(|(of, call, _, outcome)| {
            let versions = (0..writes[call]).map(|slot| version(*call, slot));
            let is_whole = versions.clone().all(|version| store.contains_key(&version));
            if *of != member || is_whole || matches!(outcome, Outcome::Ignored { .. }) {
                return true;
            }
            for version in versions.filter(|version| !brought.contains(&(member, *version))) {
                store.remove(&version);
            }
            false
        });
    }

    /// Adds a member from the previous run. It reports its data before calls are assigned to it.
    pub(super) fn rejoin(&mut self, survivor: Survivor) {
        let member = Member(self.members);
        self.join(2);
        let Survivor { store, running, unseen, brought } = survivor;
        self.stores.insert(member, store);
        self.running.extend(running.into_iter().map(|running| Running { member, ..running }));
        self.unseen.extend(unseen.into_iter().map(|(_, call, mark, outcome)| (member, call, mark, outcome)));
        self.brought.extend(brought.into_iter().map(|(_, version)| (member, version)));
        self.report(member);
    }

    /// Reports to the graph the data and the calls that a member has from earlier runs.
    pub(super) fn report(&mut self, member: Member) {
        // The outputs of an unrecorded outcome are reported with that outcome.
        let is_reported = |version: &VersionId| {
            self.brought.contains(&(member, *version)) || !self.has_unseen(member, version.call)
        };
        let held: Vec<_> = self.stores[&member].iter().filter(|(version, _)| is_reported(version)).collect();
        for (version, (_, mark)) in held {
            self.graph.on_held(member, Held { version: *version, mark: *mark, bytes: 8 });
        }
        for Running { assignment, .. } in
            self.running.iter().filter(|running| running.member == member && running.is_earlier)
        {
            self.graph.on_running(member, assignment.call, assignment.mark);
        }
        let unseen = self.unseen.iter().filter(|(of, ..)| *of == member);
        for (_, call, mark, _) in unseen.clone() {
            self.graph.on_running(member, *call, *mark);
        }
        for (_, call, _, outcome) in unseen {
            self.graph.ended(*call, member, outcome.clone());
        }
    }

    /// Returns a member on which the program does not run.
    pub(super) fn other(&self, which: prop::sample::Index) -> Option<Member> {
        let others: Vec<_> = self.stores.keys().filter(|member| **member != Member::HERE).collect();
        (!others.is_empty()).then(|| *others[which.index(others.len())])
    }

    /// Lets all members leave, and restarts the program on a new one.
    pub(super) fn all_leave(&mut self, first: prop::sample::Index) {
        for vanished in self.vanished.clone() {
            self.lose(vanished);
        }
        let mut all: Vec<_> = self.stores.keys().copied().collect();
        let count = all.len();
        all.rotate_left(first.index(count));
        // All are asked before any has gone; otherwise the program would restart on one of the others.
        for member in all {
            self.leave(member);
        }
        self.perform();
        let mut rounds = 0;
        while !self.stores.is_empty() && self.graph.fatal().is_none() {
            rounds += 1;
            assert!(rounds < 1_000, "{:?} do not leave", self.stores.keys());
            self.write();
            self.perform();
            self.end_first();
            self.perform();
        }
        self.write();
        self.restart_program(first, None);
    }
}
