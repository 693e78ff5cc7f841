//! Members: they carry out the actions of the graph.

use proptest::prelude::*;

use super::{Run, Running, default_of, written};
use crate::{
    core::{
        Action, Assignment, Fact, Failing, Held, Mark, Member, Outcome, Source, call::CallState,
        graph_tests::version, version::State, virtual_stores::fetch,
    },
    failure::Failure,
    ids::{Argument, CallId, VersionId},
};

/// The maximum number of turns in which the members carry out actions before another call completes.
const TURNS_MAX: usize = 10_000;

impl Run {
    pub(super) fn put(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        self.stores.get_mut(&member).expect("it is there").insert(version, value);
    }

    /// Completes a running call or a pending copy, if there is one.
    pub(super) fn end_any(&mut self, which: prop::sample::Index) {
        let all = self.running.len() + self.copies.len();
        if all > 0 {
            self.end(which.index(all));
        }
    }

    pub(super) fn ask(&mut self, which: prop::sample::Index) {
        let there: Vec<_> = self.stores.keys().filter(|member| !self.vanished.contains(member)).collect();
        if there.is_empty() {
            return;
        }
        let member = *there[which.index(there.len())];
        let versions = self.stores[&member].keys().copied().collect();
        self.graph.drop_spare_copies(member, versions);
    }

    pub(super) fn marks_of(&self, version: VersionId) -> Mark {
        self.graph.known().versions[&version].mark
    }

    /// Completes the first running call or pending copy, if there is one.
    pub(super) fn end_first(&mut self) {
        if self.running.len() + self.copies.len() > 0 {
            self.end(0);
        }
    }

    /// Carries out all actions of the graph, and checks that they are possible.
    pub(super) fn perform(&mut self) {
        for turn in 0.. {
            // The program has ended with its member, and continues after a restart.
            if turn > 0 && !self.stores.contains_key(&Member::HERE) {
                return;
            }
            let present: Vec<Member> = self.stores.keys().copied().collect();
            let actions = self.graph.actions();
            if actions.is_empty() {
                return;
            }
            assert!(turn < TURNS_MAX, "the actions never end: {actions:?}");
            for action in actions {
                match action {
                    // A message to a member that was lost after the graph had decided on it.
                    Action::Assign(member, _) | Action::Copy(member, _)
                        if !self.stores.contains_key(&member) =>
                    {
                        assert!(turn == 0 || present.contains(&member), "{member:?} was lost before");
                    }
                    Action::Forget(member, version) => {
                        self.drop_version(member, version);
                    }
                    Action::Bring(source) => {
                        if self.bring_to(Member::HERE, &source) {
                            self.graph.copied(source.version, Member::HERE);
                        } else {
                            self.graph.not_brought(source.version, &source.members);
                        }
                    }
                    Action::Copy(member, source) => self.copies.push((member, source)),
                    Action::Record(fact) => self.waiting.push(fact),
                    Action::Wake { root, call, failures, until_us, .. } => {
                        if until_us.is_none() && self.has_journal {
                            self.waiting.push(Fact::Paused { root, call, failures, until_us: 0 });
                        }
                        self.graph.wake(call, failures);
                    }
                    Action::Restore { version, mark, value } => {
                        // The member of the program may have left in the meantime.
                        if self.stores.contains_key(&Member::HERE) {
                            let value = u64::from_le_bytes((*value).try_into().expect("it is a number"));
                            self.put_brought(Member::HERE, version, (value, mark));
                        }
                    }
                    Action::Preserve { version, mark } => {
                        let value = self.stores[&Member::HERE][&version].0.to_le_bytes().to_vec();
                        self.waiting.push(Fact::Kept { version, mark, value });
                    }
                    Action::LetGo(member) => self.go(member),
                    Action::Assign(member, assignment) => {
                        assert!(!self.cordoned.contains(&member), "{member:?} is cordoned");
                        self.begin(member, assignment);
                    }
                    Action::Alias(..) | Action::Answer(..) => unreachable!("no task makes calls"),
                    Action::Cancel(member, call) => self.stop(member, call),
                }
            }
        }
    }

    /// Ends a cancelled call on a member. Every other one completes instead.
    fn stop(&mut self, member: Member, call: CallId) {
        let is_it = |running: &Running| (running.member, running.assignment.call) == (member, call);
        if call.is_multiple_of(2) || self.vanished.contains(&member) {
            return;
        }
        if let Some(at) = self.running.iter().position(is_it) {
            let running = self.running.remove(at);
            let store = &self.stores[&member];
            let unchanged = running.assignment.taken().filter(|taken| store.contains_key(taken));
            let unchanged: Vec<_> = unchanged.map(|taken| (taken, 8)).collect();
            self.graph.returned(call, member, &unchanged);
        }
    }

    /// Removes a version from a member, together with the unrecorded outcome of its call.
    pub(super) fn drop_version(&mut self, member: Member, version: VersionId) {
        if let Some(store) = self.stores.get_mut(&member) {
            store.remove(&version);
        }
        self.unseen.retain(|(of, call, ..)| (*of, *call) != (member, version.call));
        self.brought.remove(&(member, version));
    }

    /// Returns whether a member has an unrecorded outcome of a call.
    pub(super) fn has_unseen(&self, member: Member, call: CallId) -> bool {
        self.unseen.iter().any(|(of, ended, ..)| (*of, *ended) == (member, call))
    }

    /// Copies a version to a member, unless it has one. Returns whether the member has the version now.
    pub(super) fn bring_to(&mut self, member: Member, source: &Source) -> bool {
        let version = source.version;
        // The member's own unrecorded output is no copy.
        let counts = self.brought.contains(&(member, version)) || !self.has_unseen(member, version.call);
        let store = self.stores.get_mut(&member).expect("it is there");
        if counts && store.contains_key(&version) {
            return true;
        }
        store.remove(&version);
        let value = fetch(&self.stores, source, &self.vanished);
        value.map(|value| self.put_brought(member, version, value)).is_some()
    }

    /// Stores a copy on a member that may have another execution of the same call, running or unrecorded.
    pub(super) fn put_brought(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        let mut running = self.running.iter();
        let is_it = |running: &Running| (running.member, running.assignment.call) == (member, version.call);
        if running.any(is_it) || self.has_unseen(member, version.call) {
            self.brought.insert((member, version));
        }
        self.put(member, version, value);
    }

    /// Removes a member that the graph lets go.
    pub(super) fn go(&mut self, member: Member) {
        // A running call that the graph does not assign to this member does not count: it runs elsewhere, too.
        let is_idle = self.graph.known().calls.values().all(|call| call.state != CallState::Runs(member));
        let another_stays = !self.stores.keys().all(|member| self.leaving.contains(member));
        if another_stays && !self.vanished.contains(&member) {
            assert!(is_idle, "{member:?} runs calls");
            for (id, version) in &self.graph.known().versions {
                let State::Present(copies) = &version.state else { continue };
                let is_elsewhere = copies.members.iter().any(|other| *other != member);
                // The program creates its own data again after a restart, and running calls have their inputs.
                let mut readers = version.readers.iter().map(|reader| &self.graph.known().calls[reader]);
                let is_got =
                    readers.all(|reader| matches!(reader.state, CallState::Runs(_) | CallState::Recorded));
                let is_needed = version.handles > 0 || version.is_wanted || !is_got;
                let can_be_lost = !is_needed || !self.graph.known().calls.contains_key(&id.call);
                assert!(can_be_lost || is_elsewhere, "{id:?} would be lost with {member:?}");
            }
        }
        if member == Member::HERE && self.has_journal && !another_stays {
            let of_others = self.running.iter().filter(|running| !self.vanished.contains(&running.member));
            let mut counting = of_others.filter(|running| {
                let call = self.graph.known().calls.get(&running.assignment.call);
                call.is_some_and(|call| call.state == CallState::Runs(running.member))
            });
            assert!(counting.next().is_none(), "the outcomes of running calls would be lost");
        }
        if member == Member::HERE {
            self.stores.remove(&member);
            self.running.retain(|running| running.member != member);
        } else {
            self.lose(member);
        }
    }

    pub(super) fn begin(&mut self, member: Member, assignment: Assignment) {
        self.check_limit(assignment.call);
        if self.vanished.contains(&member) {
            let inputs = Vec::new();
            return self.running.push(Running { member, assignment, inputs, is_earlier: false });
        }
        for source in &assignment.elsewhere {
            let version = &source.version;
            if !self.bring_to(member, source) {
                let store = &self.stores[&member];
                let unchanged: Vec<_> =
                    assignment.taken().filter(|taken| store.contains_key(taken)).collect();
                let unchanged: Vec<_> = unchanged.into_iter().map(|taken| (taken, 8)).collect();
                return self.graph.unable(assignment.call, member, *version, &source.members, &unchanged);
            }
            let mut updates =
                assignment.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
            // A version that is updated in place is no source for other members.
            if updates
                .position(|update| update.versions() == [*version])
                .is_none_or(|update| !assignment.in_place[update])
            {
                self.graph.copied(*version, member);
            }
        }
        if self.has_begun_before(member, &assignment) {
            return;
        }
        self.drop_executions(member, assignment.call);
        let store = self.stores.get_mut(&member).expect("calls are assigned to members that are there");
        let (mut inputs, mut in_place, mut taken) = (Vec::new(), assignment.in_place.iter(), Vec::new());
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && *in_place.next().expect("one for each");
            for version in argument.versions() {
                taken.extend(is_taken.then_some(*version));
                let value = if is_taken { store.remove(version) } else { store.get(version).copied() };
                let (value, _) = value.unwrap_or_else(|| panic!("{version:?} is not with {member:?}"));
                inputs.push((*version, value));
            }
        }
        for taken in taken {
            self.drop_version(member, taken);
        }
        let call = assignment.call;
        if self.has_journal && self.merges.contains(&call) {
            let is_it = |fact: &Fact| match fact {
                Fact::Merged { call: of, .. } | Fact::Commuted { call: of, .. } => *of == call,
                _ => false,
            };
            assert!(self.journal.iter().any(is_it), "{call} starts before its parts are recorded");
            let parts = [inputs[0].0, inputs[1].0];
            assert_eq!(
                *self.merged.entry(call).or_insert(parts),
                parts,
                "{call} merges other parts than before"
            );
        }
        assert!(!self.is_recorded(call), "{call} runs although its completion is recorded");
        for (version, value) in &inputs {
            self.record_seen(*version, *value);
        }
        let inputs = inputs.into_iter().map(|(_, value)| value).collect();
        self.running.push(Running { member, assignment, inputs, is_earlier: false });
    }

    /// Returns whether a member already has an execution of an assigned call: it runs since an earlier run of the
    /// program, or has completed and the report is under way. The member does not start another one then.
    pub(super) fn has_begun_before(&mut self, member: Member, assignment: &Assignment) -> bool {
        let Assignment { call, mark, .. } = assignment;
        let is_it = |running: &Running| {
            let of = (running.member, running.assignment.call, running.assignment.mark);
            running.is_earlier && of == (member, *call, *mark)
        };
        let store = self.stores.get_mut(&member).expect("calls are assigned to members that are there");
        let has_ended = self.unseen.iter().any(|(of, ended, with, outcome)| match outcome {
            Outcome::Durable { bytes, .. } if (of, ended, with) == (&member, call, mark) => {
                let mut slots = (0..).zip(bytes).map(|(slot, _)| slot);
                slots.all(|slot| store.contains_key(&version(*call, slot)))
            }
            _ => false,
        });
        if !has_ended && !self.running.iter().any(is_it) {
            return false;
        }
        let updates = assignment.arguments.iter().filter(|one| matches!(one, Argument::Update(_)));
        for (update, _) in updates.zip(&assignment.in_place).filter(|(_, in_place)| **in_place) {
            for taken in update.versions() {
                self.drop_version(member, *taken);
            }
        }
        true
    }

    /// Removes the outputs of earlier executions of a call from a member that starts it.
    pub(super) fn drop_executions(&mut self, member: Member, call: CallId) {
        let is_it =
            |of: Member, outcome: &Outcome| of == member && matches!(outcome, Outcome::Durable { .. });
        if self.unseen.iter().any(|(of, ended, _, outcome)| *ended == call && is_it(*of, outcome)) {
            for slot in 0..self.writes[&call] {
                self.drop_version(member, version(call, slot));
            }
        }
        self.brought.retain(|(to, version)| (*to, version.call) != (member, call));
    }

    pub(super) fn end(&mut self, which: usize) {
        let member = match self.running.get(which) {
            Some(running) => running.member,
            None => self.copies[which - self.running.len()].0,
        };
        if self.vanished.contains(&member) {
            // The call or copy does not complete, and the loss is noticed.
            return self.lose(member);
        }
        if which >= self.running.len() {
            let (member, source) = self.copies.swap_remove(which - self.running.len());
            let Some(value) = fetch(&self.stores, &source, &self.vanished) else {
                return self.graph.not_copied(source.version, member, &source.members);
            };
            self.put(member, source.version, value);
            return self.graph.copied(source.version, member);
        }
        let Running { member, assignment, inputs, is_earlier } = self.running.swap_remove(which);
        let Assignment { call, mark, .. } = assignment;
        let fails = self.failing.contains(&call);
        if fails && assignment.manner.failing == Failing::Nothing {
            let failure = Failure::new("task", call, "failed as requested");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        assert!(fails || assignment.manner.failing != Failing::HasFailed, "{call} has not failed");
        let writes = self.writes[&call];
        let reads = assignment.arguments[0].versions().len();
        let is_durable = self.has_journal && assignment.manner.once_token.is_some();
        self.executions += 1;
        let mut values = Vec::new();
        for slot in 0..writes {
            let value = if fails {
                default_of(slot, &inputs[reads..])
            } else if self.merges.contains(&call) {
                inputs[0].wrapping_add(inputs[1])
            } else if is_durable {
                written(self.executions, slot, &inputs)
            } else {
                written(call, slot, &inputs)
            };
            values.push(value.to_le_bytes().to_vec());
            let may_differ = fails || is_durable;
            if !may_differ || !self.brought.contains(&(member, version(call, slot))) {
                self.put(member, version(call, slot), (value, mark));
            }
            if is_earlier && !is_durable && !(fails && self.has_journal) {
                self.graph.on_held(member, Held { version: version(call, slot), mark, bytes: 8 });
            }
        }
        let bytes = (0..writes).map(|_| 8).collect();
        let outcome = if is_durable && !fails {
            // One in four is too large for the journal.
            let values = (call % 4 > 0).then_some(values);
            Outcome::Durable { bytes, ns: 1_000_000, by: self.executions, values }
        } else if fails {
            Outcome::Ignored { bytes, reason: "failed as requested".to_owned() }
        } else {
            Outcome::Written { bytes, ns: Some(1_000_000) }
        };
        if self.has_journal && !matches!(outcome, Outcome::Written { .. }) {
            self.unseen.retain(|(of, ended, ..)| (*of, *ended) != (member, call));
            self.unseen.push((member, call, mark, outcome.clone()));
        }
        self.graph.ended(call, member, outcome);
    }
}
