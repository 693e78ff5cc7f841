//! Members that join, leave, are lost, and begin anew.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{End, MEMORY, Run, Running, Survivor};
use crate::{
    core::{
        Capacity, Demand, Graph, Held, Member, Outcome, Unfit, call::Call, graph_tests::version,
        lineage::DEATHS_MAX,
    },
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

    /// Lets a call not run on its member. Every second one has changed nothing.
    pub(super) fn unfit(&mut self, which: prop::sample::Index) {
        if self.running.is_empty() {
            return;
        }
        let which = which.index(self.running.len());
        let Running { member, assignment, .. } = &self.running[which];
        let (member, call) = (*member, assignment.call);
        // On its only member it would fail, and on each if that happens again.
        let has_demands = |call: &Call| Demand::of(&call.options) != Demand::NONE;
        let is_hopeless = !self.graph.members.any_other_than(&[member])
            || self.graph.calls.get(&call).is_none_or(has_demands);
        if is_hopeless || self.vanished.contains(&member) || !self.unfit.insert(call) {
            return;
        }
        let running = self.running.swap_remove(which);
        let changes_nothing = which.is_multiple_of(2) && self.graph_knows(&running);
        let unchanged = if changes_nothing { self.give_back(&running) } else { Vec::new() };
        let unfit = Unfit { reason: "its disk is full".to_owned(), unchanged, damaged: None };
        self.graph.ended(call, member, Outcome::Unfit(unfit));
    }

    /// Lets a member not have any more what it should, of what can be made again.
    pub(super) fn damage(&mut self, which: prop::sample::Index) {
        let there = self.stores.iter().filter(|(member, _)| !self.vanished.contains(member));
        let all = there.flat_map(|(member, store)| store.keys().map(|version| (*member, *version)));
        let can_be_made =
            |id: &VersionId| self.graph.calls.contains_key(&id.call) || !self.graph.versions.contains_key(id);
        let all: Vec<_> = all.filter(|(_, version)| can_be_made(version)).collect();
        if all.is_empty() {
            return;
        }
        let (member, version) = all[which.index(all.len())];
        let store = &self.stores[&member];
        let is_unseen = |(of, call, _, outcome): &End| {
            (*of, *call) == (member, version.call) && matches!(outcome, Outcome::Durable { .. })
        };
        // The rest of what the same execution has written is of no use without it.
        let is_rest = |other: &VersionId| {
            let is_own = other.call == version.call && !self.brought.contains(&(member, *other));
            is_own && self.unseen.iter().any(is_unseen)
        };
        let damaged: Vec<_> =
            store.keys().filter(|other| **other == version || is_rest(other)).copied().collect();
        for version in damaged {
            self.is_not_kept(member, version);
            self.graph.is_damaged(version, member, "it has vanished");
        }
    }

    /// Returns whether another member may be lost without a call failing because it was lost so often.
    pub(super) fn may_be_lost(&self) -> bool {
        let deaths = self.graph.calls.iter().map(|(_, call)| call.deaths).max().unwrap_or(0);
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
        self.graph.leaves(member);
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

    /// Undoes the beginning of a call, and returns what it would have changed in place.
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

    /// Has the member of the program leave, and the program begin anew on another one.
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
                // Nobody else may be there who would remember what was not written.
                self.write();
                self.perform();
            }
            if self.stores.contains_key(&Member::HERE) {
                self.end_first();
            }
        }
        self.memory.add(self.graph.take_news());
        // It goes when that is done.
        self.write();
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        self.begin_anew(here, None);
    }

    pub(super) fn restart(&mut self, here: prop::sample::Index, late: prop::sample::Index) {
        self.stores.remove(&Member::HERE);
        self.running.retain(|running| running.member != Member::HERE);
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        // What was under way may have been written.
        let written = late.index(self.waiting.len() + 1);
        self.journal.extend(self.waiting.drain(..written));
        self.waiting.clear();
        self.begin_anew(here, Some(late));
    }

    /// Begins the program anew on one of the members that are left, or on a new one.
    pub(super) fn begin_anew(&mut self, here: prop::sample::Index, late: Option<prop::sample::Index>) {
        self.copies.clear();
        self.leaving.clear();
        for vanished in std::mem::take(&mut self.vanished) {
            self.stores.remove(&vanished);
            self.running.retain(|running| running.member != vanished);
            self.unseen.retain(|(of, ..)| *of != vanished);
            self.brought.retain(|(to, _)| *to != vanished);
        }
        // What has not begun is dropped, in this case every third call.
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
        let mut survivors: Vec<_> = survivors.into_iter().map(|member| self.survives(member)).collect();
        self.repeated += self.graph.figures().repeated;
        self.graph = Graph::new(true);
        self.begin_journal();
        self.graph.remembers(self.memory.clone());
        self.members = 0;
        if survivors.is_empty() {
            self.join(2);
        }
        let late = late.map_or(survivors.len(), |late| 1.max(late.index(survivors.len() + 1)));
        let mut late = survivors.split_off(late.min(survivors.len()));
        for survivor in survivors {
            self.joins_again(survivor);
        }
        self.recalls_what_was_kept();
        let log = std::mem::take(&mut self.log);
        self.next = 0;
        self.begin_program();
        for (number, statement) in log.iter().enumerate() {
            if number == log.len() / 2 {
                late.drain(..).for_each(|survivor| self.joins_again(survivor));
            }
            self.state(statement, true);
        }
        late.drain(..).for_each(|survivor| self.joins_again(survivor));
        assert_eq!(self.graph.divergence(), None);
    }

    /// Returns whether the graph knows what a call would change in place.
    pub(super) fn graph_knows(&self, running: &Running) -> bool {
        let mut versions = running.assignment.arguments.iter().flat_map(Argument::versions);
        versions.all(|version| self.graph.versions.contains_key(version))
    }

    /// Takes a member out that takes part in the next run of the program, too.
    pub(super) fn survives(&mut self, member: Member) -> Survivor {
        let running = self.running.extract_if(.., |running| running.member == member).collect();
        self.forgets_halves(member);
        let unseen = self.unseen.extract_if(.., |(of, ..)| *of == member).collect();
        let (brought, others) =
            std::mem::take(&mut self.brought).into_iter().partition(|(to, _)| *to == member);
        self.brought = others;
        let store = self.stores.remove(&member).expect("it is there");
        Survivor { store, running, unseen, brought }
    }

    /// Lets a member not tell ends of calls of which it has not any more all that they have written.
    pub(super) fn forgets_halves(&mut self, member: Member) {
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

    /// Lets a member take part that has done so in the run before. It tells what it has before it is given anything to
    /// do.
    pub(super) fn joins_again(&mut self, survivor: Survivor) {
        let member = Member(self.members);
        self.join(2);
        let Survivor { store, running, unseen, brought } = survivor;
        self.stores.insert(member, store);
        self.running.extend(running.into_iter().map(|running| Running { member, ..running }));
        self.unseen.extend(unseen.into_iter().map(|(_, call, mark, outcome)| (member, call, mark, outcome)));
        self.brought.extend(brought.into_iter().map(|(_, version)| (member, version)));
        self.tell(member);
    }

    /// Tells the graph what a member has of earlier runs.
    pub(super) fn tell(&mut self, member: Member) {
        // What a call has written whose end nobody may have seen is told with that.
        let is_told = |version: &VersionId| {
            self.brought.contains(&(member, *version)) || !self.has_unseen(member, version.call)
        };
        let held: Vec<_> = self.stores[&member].iter().filter(|(version, _)| is_told(version)).collect();
        for (version, (_, mark)) in held {
            self.graph.holds(member, Held { version: *version, mark: *mark, bytes: 8 });
        }
        for Running { assignment, .. } in
            self.running.iter().filter(|running| running.member == member && running.is_earlier)
        {
            self.graph.runs(member, assignment.call, assignment.mark);
        }
        let unseen = self.unseen.iter().filter(|(of, ..)| *of == member);
        for (_, call, mark, _) in unseen.clone() {
            self.graph.runs(member, *call, *mark);
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

    /// Has all members leave, and the program begin anew on a new one.
    pub(super) fn all_leave(&mut self, first: prop::sample::Index) {
        for vanished in self.vanished.clone() {
            self.lose(vanished);
        }
        let mut all: Vec<_> = self.stores.keys().copied().collect();
        let count = all.len();
        all.rotate_left(first.index(count));
        // Were that of the program gone before, it would begin anew with the others.
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
        self.begin_anew(first, None);
    }
}
