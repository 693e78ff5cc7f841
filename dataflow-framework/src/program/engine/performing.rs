//! Performing the actions of the graph: on this node, or by orders to other nodes.

use std::{
    sync::{Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use taskwork::NodeId;

use super::{Engine, State};
use crate::{
    core::{Action, Fact, Mark, Member, Source},
    ids::{CallId, VersionId},
    node::{Missing, Order, Returned},
    value::Value,
};

impl Engine {
    /// Records the value of a version. Returns whether it could be read.
    fn preserve(&self, state: &mut State, version: VersionId, mark: Mark) -> bool {
        let value = self.executor.get(version).and_then(|value| value.part(0, usize::MAX).ok());
        let Some((_, value)) = value else {
            state.graph.journal().on_preserved();
            return false;
        };
        state.records.tell(Fact::Kept { version, mark, value });
        true
    }

    /// Performs the actions of the graph under the lock, so that a node receives the order to drop a version
    /// before the order to write it again.
    pub(super) fn perform(&self, state: &mut State) -> After {
        let mut after = After::default();
        if state.is_stopped {
            return after;
        }
        let mut is_unreadable = true;
        // An unreadable version unblocks the calls that waited for it.
        while std::mem::take(&mut is_unreadable) {
            for action in state.graph.actions() {
                match action {
                    Action::Forget(Member::HERE, version) => {
                        after.forgotten.extend(self.executor.forget(version));
                    }
                    Action::Assign(Member::HERE, assignment) => {
                        let missing =
                            assignment.elsewhere.iter().map(|source| self.missing(source)).collect();
                        // Missing inputs are requested immediately.
                        after.brings |= !assignment.elsewhere.is_empty();
                        self.executor.assign(self.epoch.load(Relaxed), assignment, missing);
                        after.assigned += 1;
                    }
                    Action::Bring(source) | Action::Copy(Member::HERE, source) => {
                        after.brought.push(self.missing(&source));
                    }
                    Action::Record(fact) => {
                        state.records.tell(fact);
                        after.brings = true;
                    }
                    Action::Wake { root, call, failures, pause, until_us } => {
                        self.wake(state, (root, call), failures, pause, until_us);
                        after.brings = true;
                    }
                    Action::Restore { version, mark, value } => {
                        let bytes = value.len() as u64;
                        self.executor.put_brought(version, Value::from_encoded(value.to_vec()), mark, bytes);
                    }
                    Action::Preserve { version, mark } => {
                        is_unreadable |= !self.preserve(state, version, mark);
                    }
                    Action::LetGo(Member::HERE) => {
                        self.may_go.store(true, Relaxed);
                        after.brings = true;
                    }
                    Action::Alias(Member::HERE, from, to, mark) => {
                        let is_here = self.executor.alias(from, to, mark);
                        debug_assert!(is_here, "it is here as far as the graph knows");
                    }
                    Action::Answer(Member::HERE, execution, answer) => {
                        self.executor.answer_task(execution, answer);
                    }
                    Action::Cancel(Member::HERE, call) => after.returned.extend(self.executor.cancel(call)),
                    Action::Cancel(member, call) => self.order(member, &Order::Cancel(call)),
                    Action::Alias(member, from, to, mark) => {
                        self.order(member, &Order::Alias { from, to, mark });
                    }
                    Action::Answer(member, execution, answer) => {
                        self.order(member, &Order::Answer(execution, answer));
                    }
                    Action::Forget(member, version) => self.order(member, &Order::Forget(version)),
                    Action::Assign(member, assignment) => {
                        let missing = assignment.elsewhere.iter().map(|source| self.to_send(source));
                        self.order(member, &Order::assign(&assignment, missing.collect()));
                    }
                    Action::Copy(member, source) => {
                        self.order(member, &Order::Copy(self.to_send(&source)));
                    }
                    Action::LetGo(member) => self.order(member, &Order::MayLeave),
                }
            }
        }
        after
    }

    /// Ends the pause of a call later, and records the time if that is new.
    fn wake(
        &self,
        state: &mut State,
        (root, call): (CallId, CallId),
        failures: u32,
        pause: Duration,
        recorded_us: Option<u64>,
    ) {
        let now_us = self.queue.platform.now_us();
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let until_us = recorded_us.unwrap_or_else(|| now_us.saturating_add(pause_us));
        if recorded_us.is_none() && self.others.is_some() {
            state.records.tell(Fact::Paused { root, call, failures, until_us });
        }
        // The clocks of nodes differ: a pause does not become longer.
        let pause = pause.min(Duration::from_micros(until_us.saturating_sub(now_us)));
        let me = Weak::clone(&self.me);
        self.queue.after(pause, move || {
            if let Some(engine) = me.upgrade() {
                engine.change(|graph| graph.wake(call, failures));
            }
        });
    }

    fn order(&self, member: Member, order: &Order) {
        self.others.as_ref().expect("everything is here otherwise").order(member, order);
    }

    fn missing(&self, source: &Source) -> Missing {
        let Source { version, mark, members } = source;
        let from = self.others.as_ref().map(|others| others.peers(members)).unwrap_or_default();
        Missing { version: *version, mark: *mark, from, content: None }
    }

    pub(super) fn members(&self, peers: &[NodeId]) -> Vec<Member> {
        self.others.as_ref().map(|others| others.members(peers)).unwrap_or_default()
    }

    /// Returns the missing input for another node; small data that is here is sent along.
    fn to_send(&self, source: &Source) -> Missing {
        let content =
            if source.members.contains(&Member::HERE) { self.executor.small(source.version) } else { None };
        Missing { content, ..self.missing(source) }
    }

    /// Writes the pending facts.
    pub(in crate::program) fn flush(&self) {
        if let Some(others) = &self.others {
            others.flush(true);
        }
    }

    /// Does the work that does not need the lock.
    pub(super) fn finish(&self, after: &mut After) {
        let brought = std::mem::take(&mut after.brought);
        let brings = after.brings || !brought.is_empty();
        for missing in brought {
            self.executor.fetch(missing);
        }
        for (call, unchanged) in std::mem::take(&mut after.returned) {
            self.change(|graph| graph.returned(call, Member::HERE, &unchanged));
        }
        if let Some(others) = &self.others {
            others.flush(brings);
        }
        if self.is_sequential {
            for _ in 0..after.assigned {
                self.queue.run_one();
            }
        }
    }
}

/// The work that follows after the lock is released.
#[derive(Default)]
pub(super) struct After {
    /// Dropped outside of the lock.
    forgotten: Vec<Value>,
    /// The number of calls that were assigned here.
    assigned: usize,
    /// The data to fetch to this node.
    brought: Vec<Missing>,
    /// The cancelled calls that have not started here.
    returned: Vec<Returned>,
    /// Whether the companion must process new events.
    brings: bool,
}

impl After {
    pub(super) fn is_nothing(&self) -> bool {
        self.forgotten.is_empty()
            && self.assigned == 0
            && self.brought.is_empty()
            && self.returned.is_empty()
            && !self.brings
    }
}
